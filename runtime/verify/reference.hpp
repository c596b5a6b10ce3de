// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/cpu/forward.hpp"
#include "executor/sampling.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime::verify {

/// A hash of values to the bit: equal hashes stand for equal bits.
std::uint64_t bits_of(std::span<const float> values) noexcept;
/// Every value of a recurrent state, SSM and convolution, all layers, wherever its bytes lie.
std::uint64_t bits_of_state(const FalconH1Config& model, const StateRow& row);
/// Keys and values of `tokens` tokens in one attention unit, all layers.
std::uint64_t bits_of_block(const FalconH1Config& model, const KvArena& kv, std::int32_t unit,
                            Tokens tokens);

/// What a request computes when nothing disturbs it.
struct Reference {
  std::vector<TokenId> generated;
  std::vector<std::uint64_t> logits;       ///< of each generated token
  std::vector<std::uint64_t> checkpoints;  ///< at each multiple of `grid`; [0] is unused
  std::vector<std::uint64_t> blocks;       ///< of each full block
};

/// Serves one request alone in plain memory, without a cache, an organization or a scheduler; the
/// prompt goes in chunks of `chunk` tokens.
Reference compute_reference(cpu::CpuForward& forward, const Request& request, Tokens block_tokens,
                            Tokens grid, Tokens chunk, const SamplingOptions& sampling);

}  // namespace hybridstate::runtime::verify
