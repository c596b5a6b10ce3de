// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/rotation_case.hpp"

#include <doctest/doctest.h>

#include "kernels/recording.hpp"

using namespace rotation_test;

TEST_CASE("queries, keys and values arrive with the CPU executor's bits") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (bool const bf16 : {true, false})
      for (unsigned const v : {4U, 1U}) {
        CAPTURE(seed);
        check_rotation(every_order, bf16, v, seed);
      }
}

TEST_CASE(
    "keys and values of Falcon-H1-7B are written once, in little more than the least traffic") {
  RotationCase c;
  c.heads = 12;
  c.head_dim = 128;
  c.block_tokens = 512;
  for (std::int32_t p = 500; p < 524; ++p) c.positions.push_back(p), c.table_rows.push_back(1);
  c.draw(1);
  auto const region = [](const char* name, const auto& v, std::int64_t written) {
    return Region{name, v.data(), v.size() * sizeof(v[0]), -1, written};
  };
  auto const tokens = static_cast<std::int64_t>(c.tokens());
  std::int64_t const stored = tokens * 2 * c.kv_width() * 2;
  std::int64_t const queries = tokens * c.q_width() * 4;
  std::int64_t const angles = tokens * c.head_dim * 4;
  check_traffic(
      "rotation",
      record_job(c.job(), {region("queries", c.q, queries), region("keys and values", c.kv, 0),
                           region("cosines", c.cosines, 0), region("sines", c.sines, 0),
                           region("positions", c.positions, 0), region("rows", c.table_rows, 0),
                           region("units", c.pool, stored)}),
      static_cast<std::uint64_t>(2 * queries + 2 * stored + stored + angles));
}
