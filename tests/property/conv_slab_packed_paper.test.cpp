// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

TEST_CASE("S2 under the paper's order equals the naive model over random operations") {
  naive::sweep<hybridstate::ConvSlabPacked<>, hybridstate::PaperOrder>("S2 the paper's order",
                                                                       400000);
}
