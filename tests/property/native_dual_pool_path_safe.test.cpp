// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

TEST_CASE("D0 under the path-safe order equals the naive model over random operations") {
  naive::Seen const seen = naive::sweep<hybridstate::NativeDualPool<>, hybridstate::PathSafeLru>(
      "D0 the path-safe order", 400000);
  CHECK(seen.guarded > 0);
}
