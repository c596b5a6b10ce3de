// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <hybridstate/kernels/greedy.hpp>
#include <limits>
#include <random>
#include <vector>

#include "executor/cpu/sampling.hpp"
#include "kernels/recording.hpp"
#include "test_scale.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;

namespace {

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
  template <bool Vectors>
  void check() {
    for (ThreadOrder const order :
         {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
      GreedyRows const j = job();
      Interpreter(order).run(GreedyChunks<Vectors>{j});
      Interpreter(order).run(GreedyChoice{j});
      for (std::uint32_t r = 0; r < j.rows; ++r) {
        std::int64_t const of = rows_of.empty() ? std::int64_t{r} : rows_of[r];
        std::int64_t const want = of < 0 ? -1
                                         : std::int64_t{runtime::cpu::Sampler::greedy(
                                               {row(static_cast<std::size_t>(of)), n})};
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

}  // namespace

TEST_CASE("the greedy choice is the CPU sampler's, ties and NaNs included") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937_64 random(7);
  for (std::uint32_t const n : {1U, 5U, 8191U, 8192U, 8196U, 20'001U})
    for (int round = test_scale() < 0.5 ? 2 : 0; round < 3; ++round) {
      CAPTURE(n);
      GreedyCase c(8, n, 4 - n % 4);
      for (float& f : c.logits)  // few values: many ties
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
      c.check<false>();
      if (n % 4 == 0) c.check<true>();
    }
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
