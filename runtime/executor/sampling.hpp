// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <span>
#include <vector>

namespace hybridstate::runtime {

struct SamplingOptions {
  double temperature = 0;   ///< 0: greedy
  std::uint32_t top_k = 0;  ///< 0: all tokens
  double top_p = 1;         ///< the smallest set of likeliest tokens with this probability
  std::uint64_t seed = 0;
};

/// The random bits of the token at a position.
std::uint64_t sampling_random(std::uint64_t seed, Tokens position) noexcept;

/// Chooses tokens, the same ones as the kernels (kernels/greedy.hpp, kernels/sampling.hpp). A draw
/// depends on the logits, the options and the position of the chosen token alone, so a request that
/// was preempted draws what it would have drawn.
class Sampler {
 public:
  /// The largest logit, the lowest id among equals.
  static TokenId greedy(std::span<const float> logits) noexcept;

  TokenId sample(std::span<const float> logits, const SamplingOptions& options, Tokens position);

 private:
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> likelihoods_;
};

}  // namespace hybridstate::runtime
