// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

TEST_CASE("D0 under the paper's order equals the naive model over random operations") {
  naive::sweep<hybridstate::NativeDualPool<>, hybridstate::PaperOrder>("D0 the paper's order",
                                                                       400000);
}
