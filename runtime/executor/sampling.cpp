// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/sampling.hpp"

#include <algorithm>
#include <numeric>

#include "math/deterministic.hpp"

namespace hybridstate::runtime {

TokenId Sampler::greedy(std::span<const float> logits) noexcept {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<TokenId>(best);
}

TokenId Sampler::sample(std::span<const float> logits, const SamplingOptions& options,
                        Tokens position) {
  TokenId const best = greedy(logits);
  if (!(options.temperature > 0) || logits.size() < 2) return best;

  std::size_t const n = logits.size();
  auto const largest = static_cast<double>(logits[best]);
  weights_.resize(n);
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0U);
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    weights_[i] = portable_exp((static_cast<double>(logits[i]) - largest) / options.temperature);
    if (!(weights_[i] >= 0)) weights_[i] = 0;  // NaN: never drawn
    total += weights_[i];
  }

  // Likeliest first; equal ones by id, so that the order is one order.
  auto const before = [&](std::uint32_t a, std::uint32_t b) {
    return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
  };
  std::size_t kept = options.top_k > 0 ? std::min<std::size_t>(n, options.top_k) : n;
  std::size_t sorted = 0;
  auto const sort_to = [&](std::size_t end) {
    end = std::min(end, n);
    if (end <= sorted) return;
    std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(sorted),
                      order_.begin() + static_cast<std::ptrdiff_t>(end), order_.end(), before);
    sorted = end;
  };
  if (kept < n) {
    sort_to(kept);
    total = 0;
    for (std::size_t i = 0; i < kept; ++i) total += weights_[order_[i]];
  }
  if (options.top_p < 1) {
    double reached = 0;
    std::size_t i = 0;
    for (; i < kept && (i == 0 || reached < options.top_p * total); ++i) {
      if (i >= sorted) sort_to(std::max<std::size_t>(64, sorted * 4));
      reached += weights_[order_[i]];
    }
    kept = i;
    total = reached;
  }

  double left = BitGenerator(options.seed, std::uint64_t{position} + 1).uniform() * total;
  std::uint32_t chosen = best;
  for (std::size_t i = 0; i < kept; ++i) {
    double const weight = weights_[order_[i]];
    if (weight <= 0) continue;
    chosen = order_[i];
    if (left < weight) break;
    left -= weight;
  }
  return chosen;
}

}  // namespace hybridstate::runtime
