// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

TEST_CASE("S1 under the paper's order equals the naive model over random operations") {
  naive::sweep<hybridstate::RecurrentPaged<>, hybridstate::PaperOrder>("S1 the paper's order",
                                                                       400000);
}
