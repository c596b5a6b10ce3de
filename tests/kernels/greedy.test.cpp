// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/greedy_case.hpp"

#include <doctest/doctest.h>

#include "kernels/recording.hpp"

using namespace greedy_test;

TEST_CASE("the greedy choice is the CPU sampler's, ties and NaNs included") {
  check_greedy(every_order);
}

TEST_CASE("the greedy choice moves little more than the logits") {
  constexpr std::uint32_t rows = 2, n = 130'048;  // Falcon-H1-7B
  GreedyCase c(rows, n, 0);
  GreedyRows const job = c.job();
  auto const bytes = std::int64_t{rows} * n * 4;
  auto const kept = c.candidates.size() * sizeof(Candidate);
  std::vector<Region> const regions{
      {"logits", job.logits.data, static_cast<std::uint64_t>(bytes), -1, 0},
      {"candidates", job.candidates, kept},
      {"ids", job.ids, rows * sizeof(std::int32_t), 0, -1}};
  check_traffic("greedy choice", record_job(job, regions), static_cast<std::uint64_t>(bytes));
}
