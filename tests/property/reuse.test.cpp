// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

// The harness asserts before every write that the unit holds no published object, that the state is
// held once, and that the position is not below kv_valid_until; and that what is read is right.
TEST_CASE("re-use of attention beyond J never writes to a published object") {
  naive::Seen total;
  std::uint64_t runs = 0;
  auto const wanted = static_cast<std::uint64_t>(1200 * test_scale());
  for (std::uint64_t seed = 500001; runs < wanted; ++seed, ++runs) {
    naive::Setup s = naive::nth_setup(seed, false);
    s.options.reuse_beyond_joint = true;
    s.invalidations = seed % 4 == 0;
    if (seed % 2 == 0) s.grid = 3 * s.block;  // attention reaches further than checkpoints
    naive::Harness<hybridstate::ConvSlabPacked<>, hybridstate::PaperOrder> harness(s, seed);
    std::string const wrong = harness.run(250);
    total.add(harness.seen());
    INFO(naive::describe(s, seed));
    REQUIRE(wrong == "");
  }
  naive::report("re-use", total);
  CHECK(total.runs_with_reuse > runs / 2);
}
