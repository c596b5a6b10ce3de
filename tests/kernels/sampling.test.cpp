// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <hybridstate/kernels/sampling.hpp>
#include <limits>
#include <random>
#include <vector>

#include "executor/sampling.hpp"
#include "kernels/recording.hpp"
#include "test_scale.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;

namespace {

struct Draw {
  runtime::SamplingOptions options;
  Tokens position = 0;
};

/// Rows of logits, `stride` apart, and draws from some of them.
struct SamplingCase {
  SamplingCase(std::uint32_t count, std::uint32_t width, std::uint32_t gap)
      : n(width), stride(width + gap), logits(std::size_t{count} * stride) {}

  std::span<const float> row(std::size_t r) const {
    return std::span(logits).subspan(r * stride, n);
  }
  SampleRows job() {
    SampleRows j;
    j.logits = {logits.data(), static_cast<std::int64_t>(stride)};
    j.rows = static_cast<std::uint32_t>(draws.size());
    if (!rows_of.empty()) j.rows_of = rows_of.data();
    rows.clear();
    for (Draw const& d : draws)
      rows.push_back({static_cast<float>(d.options.temperature), d.options.top_k, d.options.top_p,
                      runtime::sampling_random(d.options.seed, d.position)});
    ids.assign(draws.size(), -7);
    scratch.assign(draws.size() * stride, -1.0F);
    j.options = rows.data();
    j.ids = ids.data();
    j.scratch = {scratch.data(), static_cast<std::int64_t>(stride)};
    j.n = n;
    return j;
  }
  void check() {
    std::vector<std::int32_t> want;
    for (std::size_t r = 0; r < draws.size(); ++r) {
      std::int64_t const of = rows_of.empty() ? static_cast<std::int64_t>(r) : rows_of[r];
      want.push_back(
          of < 0 ? -1
                 : static_cast<std::int32_t>(runtime::Sampler().sample(
                       row(static_cast<std::size_t>(of)), draws[r].options, draws[r].position)));
    }
    for (ThreadOrder const order :
         {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
      REQUIRE(with_kernel(job(), [&](const auto& kernel) { Interpreter(order).run(kernel); }));
      CHECK(ids == want);
    }
  }

  std::uint32_t n;
  std::size_t stride;
  std::vector<float> logits, scratch;
  std::vector<Draw> draws;
  std::vector<SamplingRow> rows;
  std::vector<std::int32_t> rows_of, ids;
};

}  // namespace

TEST_CASE("the drawn tokens are the CPU sampler's") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937_64 random(11);
  for (std::uint32_t const n : {1U, 2U, 5U, 1024U, 1029U, 6000U})
    for (int round = test_scale() < 0.5 ? 2 : 0; round < 3; ++round) {
      CAPTURE(n);
      CAPTURE(round);
      SamplingCase c(8, n, round == 0 ? 0 : 4 - n % 4);
      std::normal_distribution<float> normal(0, 3);
      for (float& f : c.logits)  // few values: ties
        f = round == 1 ? static_cast<float>(random() % 6) : normal(random);
      auto const fill = [&](std::size_t r, float value) {
        std::fill_n(c.logits.begin() + static_cast<std::ptrdiff_t>(r * c.stride), n, value);
      };
      fill(1, -infinity);
      fill(2, nan);
      fill(3, 0.5F);
      c.logits[4 * c.stride] = nan;
      c.logits[5 * c.stride + n / 2] = nan;
      c.logits[6 * c.stride + n - 1] = infinity;
      for (std::uint32_t r = 0; r < 8; ++r) {
        Draw d;
        d.options.temperature =
            r == 7 && round == 0 ? 0 : 0.2 + static_cast<double>(random() % 20) / 8;
        std::uint32_t const limits[] = {0, 1, 3, 40, n, n + 1};
        d.options.top_k = limits[random() % 6];
        double const shares[] = {1, 0.9, 0.5, 1e-9, 0, 2};
        d.options.top_p = shares[random() % 6];
        d.options.seed = random();
        d.position = static_cast<Tokens>(random() % 5000);
        c.draws.push_back(d);
      }
      if (round == 2) {
        c.rows_of = {7, -1, 3, 0, 0, 7, 5, 1};
        c.draws[5].options = c.draws[0].options;
      }
      c.check();
    }
}

TEST_CASE("every draw between the first and the last random number finds its token") {
  SamplingCase c(1, 7, 1);
  c.logits = {1, 3, 1, -200, 3, 0, 1, 0};
  SampleRows j;
  auto const drawn = [&](SamplingRow o) {
    c.draws.resize(1);
    j = c.job();
    c.rows[0] = o;
    with_kernel(j, [](const auto& kernel) { Interpreter(ThreadOrder::forward).run(kernel); });
    return c.ids[0];
  };
  constexpr std::uint64_t last = ~std::uint64_t{0};
  CHECK(drawn({1, 0, 1, 0}) == 0);
  CHECK(drawn({1, 0, 1, last}) == 6);
  CHECK(drawn({1, 2, 1, 0}) == 1);
  CHECK(drawn({1, 2, 1, last / 2}) == 1);
  CHECK(drawn({1, 2, 1, last / 2 + 1}) == 4);
  CHECK(drawn({1, 2, 1, last}) == 4);
  CHECK(drawn({1, 3, 1, 0}) == 0);  // of three equal ones the first
  CHECK(drawn({1, 3, 1, last}) == 4);
  CHECK(drawn({1, 4, 1, last}) == 4);
  CHECK(drawn({1, 5, 1, last}) == 6);
  CHECK(drawn({1, 5, 0.5, last}) == 4);
  CHECK(drawn({1, 5, 1e-30, last}) == 1);
  CHECK(drawn({1, 5, -1, last}) == 1);

  c.logits = {3, 1, 1, 3, 0, 0, 0, 0};
  CHECK(drawn({1, 3, 1, last / 9 * 5}) == 3);  // the second of two equal ones is left out
}

TEST_CASE("a draw reads and writes its own row only, in place too") {
  constexpr std::uint32_t n = 4096;
  SamplingCase c(2, n, 0);
  std::mt19937_64 random(3);
  for (float& f : c.logits) f = static_cast<float>(random() % 1000) / 100;
  c.draws.resize(2);
  for (Draw& d : c.draws) d.options = {0.8, 50, 0.9, 4};
  SampleRows job = c.job();
  job.scratch = {c.logits.data(), static_cast<std::int64_t>(n)};
  auto const bytes = c.logits.size() * sizeof(float);
  std::vector<float> const before = c.logits;
  Recording const recording =
      record(Sample<true>{job}, {{"logits", c.logits.data(), bytes, -1, -1},
                                 {"options", c.rows.data(), 2 * sizeof(SamplingRow), -1, -1},
                                 {"ids", c.ids.data(), 2 * sizeof(std::int32_t), 0, 8}});
  for (std::size_t r = 0; r < 2; ++r)
    CHECK(c.ids[r] == static_cast<std::int32_t>(runtime::Sampler().sample(
                          std::span(before).subspan(r * n, n), c.draws[r].options, 0)));
  for (auto const& violation : recording.violations) CHECK_MESSAGE(false, violation);
}

TEST_CASE("no kernel draws from nothing") {
  SampleRows job;
  auto const taken = [&] { return with_kernel(job, [](const auto&) {}); };
  job.rows = 1;
  CHECK_FALSE(taken());
  job.n = most_sampled + 1;
  CHECK_FALSE(taken());
  job.n = most_sampled;
  CHECK(taken());
  job.rows = 1U << 31;
  CHECK_FALSE(taken());
}
