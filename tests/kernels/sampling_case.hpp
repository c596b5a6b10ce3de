// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "executor/sampling.hpp"
#include "kernels/target.hpp"
#include "test_scale.hpp"

namespace sampling_test {

using namespace hybridstate;
using namespace hybridstate::kernels;

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
  template <class Targets>
  void check(Targets& targets) {
    std::vector<std::int32_t> want;
    for (std::size_t r = 0; r < draws.size(); ++r) {
      std::int64_t const of = rows_of.empty() ? static_cast<std::int64_t>(r) : rows_of[r];
      want.push_back(
          of < 0 ? -1
                 : static_cast<std::int32_t>(runtime::Sampler().sample(
                       row(static_cast<std::size_t>(of)), draws[r].options, draws[r].position)));
    }
    for (auto& target : targets) {
      run_on(target, job(), logits, rows, rows_of, ids, scratch);
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

/// Ties, infinities, NaNs, and every kind of option.
template <class Targets>
void check_sampling(Targets& targets) {
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
      c.check(targets);
    }
}

}  // namespace sampling_test
