// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

TEST_CASE("S0 under the greedy-dual order equals the naive model over random operations") {
  naive::Seen const seen = naive::sweep<hybridstate::CoarsePage<>, hybridstate::GreedyDual>(
      "S0 the greedy-dual order", 200000, 1, naive::often_at_junctions);
  CHECK(seen.offers > 0);
}
