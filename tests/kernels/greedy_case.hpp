// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "executor/sampling.hpp"
#include "kernels/target.hpp"
#include "test_scale.hpp"

namespace greedy_test {

using namespace hybridstate;
using namespace hybridstate::kernels;

/// Rows of logits, `stride` apart, and the choices from some of them.
struct GreedyCase {
  GreedyCase(std::uint32_t rows, std::uint32_t width, std::uint32_t gap)
      : n(width), stride(width + gap), logits(std::size_t{rows} * stride) {}

  float* row(std::size_t r) { return logits.data() + r * stride; }
  GreedyRows job() {
    GreedyRows j;
    j.logits = {logits.data(), static_cast<std::int64_t>(stride)};
    j.rows = static_cast<std::uint32_t>(logits.size() / stride);
    if (!rows_of.empty()) {
      j.rows_of = rows_of.data();
      j.rows = static_cast<std::uint32_t>(rows_of.size());
    }
    j.n = n;
    ids.assign(j.rows, -7);
    candidates.assign(std::size_t{j.rows} * greedy_candidates(n), {-7, -7});
    j.ids = ids.data();
    j.candidates = candidates.data();
    return j;
  }
  template <class Targets>
  void check(Targets& targets) {
    for (auto& target : targets) {
      GreedyRows const j = job();
      run_on(target, j, logits, rows_of, ids, candidates);
      for (std::uint32_t r = 0; r < j.rows; ++r) {
        std::int64_t const of = rows_of.empty() ? std::int64_t{r} : rows_of[r];
        std::int64_t const want =
            of < 0 ? -1
                   : std::int64_t{runtime::Sampler::greedy({row(static_cast<std::size_t>(of)), n})};
        CHECK(ids[r] == want);
      }
    }
  }

  std::uint32_t n;
  std::size_t stride;
  std::vector<float> logits;
  std::vector<std::int32_t> rows_of, ids;
  std::vector<Candidate> candidates;
};

/// Ties, infinities and NaNs.
template <class Targets>
void check_greedy(Targets& targets) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937_64 random(7);
  for (std::uint32_t const n : {1U, 5U, 8191U, 8192U, 8196U, 20'001U})
    for (int round = test_scale() < 0.5 ? 2 : 0; round < 3; ++round) {
      CAPTURE(n);
      GreedyCase c(8, n,
                   4 - n % 4 + static_cast<std::uint32_t>(round % 2));  // rows at odd elements too
      for (float& f : c.logits)                                         // few values: many ties
        f = round == 0 ? static_cast<float>(random() % 50) - 60 : static_cast<float>(random() % n);
      std::fill_n(c.row(1), n, -infinity);
      std::fill_n(c.row(2), n, nan);
      for (std::size_t i = 0; i < n; i += 3)
        c.row(3)[i + random() % std::min<std::size_t>(3, n - i)] = nan;
      c.row(4)[0] = nan;
      for (std::size_t i = 0; i < n; ++i) c.row(5)[i] = random() % 2 == 0 ? 0.0F : -0.0F;
      c.row(6)[n - 1] = infinity;
      std::fill_n(c.row(7), n, 1.0F);
      if (round == 2) c.rows_of = {7, -1, 6, 6, 0};
      c.check(targets);
    }
}

}  // namespace greedy_test
