// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/sampling.hpp"

#include <algorithm>
#include <hybridstate/kernels/sampling.hpp>

#include "math/deterministic.hpp"

namespace hybridstate::runtime {

TokenId Sampler::greedy(std::span<const float> logits) noexcept {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<TokenId>(best);
}

std::uint64_t sampling_random(std::uint64_t seed, Tokens position) noexcept {
  return BitGenerator(seed, std::uint64_t{position} + 1).next();
}

TokenId Sampler::sample(std::span<const float> logits, const SamplingOptions& options,
                        Tokens position) {
  TokenId const best = greedy(logits);
  if (!(options.temperature > 0) || logits.size() < 2) return best;

  auto const temperature = static_cast<float>(options.temperature);
  likelihoods_.resize(logits.size());
  order_.clear();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    likelihoods_[i] =
        kernels::likelihood(kernels::relative_likelihood(logits[i], logits[best], temperature));
    total += likelihoods_[i];
    if (likelihoods_[i] > 0) order_.push_back(static_cast<std::uint32_t>(i));
  }
  if (order_.empty()) return best;

  // Likeliest first; equal ones by id, so that the order is one order.
  auto const before = [&](std::uint32_t a, std::uint32_t b) {
    return likelihoods_[a] != likelihoods_[b] ? likelihoods_[a] > likelihoods_[b] : a < b;
  };
  std::size_t sorted = 0;
  auto const sort_to = [&](std::size_t end) {
    end = std::min(end, order_.size());
    if (end <= sorted) return;
    std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(sorted),
                      order_.begin() + static_cast<std::ptrdiff_t>(end), order_.end(), before);
    sorted = end;
  };
  auto const keep = [&](std::size_t count, std::uint64_t sum) {
    order_.resize(count);
    total = sum;
  };
  if (options.top_k > 0 && options.top_k < order_.size()) {
    sort_to(options.top_k);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < options.top_k; ++i) sum += likelihoods_[order_[i]];
    keep(options.top_k, sum);
  }
  if (std::uint64_t const need = kernels::share_of(total, options.top_p); need < total) {
    std::uint64_t reached = 0;
    std::size_t i = 0;
    for (; reached < need; ++i) {
      if (i >= sorted) sort_to(std::max<std::size_t>(64, sorted * 4));
      reached += likelihoods_[order_[i]];
    }
    keep(i, reached);
  }

  std::sort(order_.begin(), order_.end());
  std::uint64_t left = kernels::scaled_random(sampling_random(options.seed, position), total);
  std::size_t i = 0;
  for (; left >= likelihoods_[order_[i]]; ++i) left -= likelihoods_[order_[i]];
  return order_[i];
}

}  // namespace hybridstate::runtime
