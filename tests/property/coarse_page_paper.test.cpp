// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

TEST_CASE("S0 under the paper's order equals the naive model over random operations") {
  naive::sweep<hybridstate::CoarsePage<>, hybridstate::PaperOrder>("S0 the paper's order", 400000);
}
