// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hybridstate::runtime::verify {

/// What was served and compared, and what differed.
struct Counts {
  std::uint64_t runs = 0;
  std::uint64_t requests = 0;
  std::uint64_t adopted_tokens = 0;  ///< over all admissions, resumes too
  std::uint64_t preemptions = 0;
  std::uint64_t tokens = 0;       ///< emitted tokens compared
  std::uint64_t logits = 0;       ///< logit vectors compared
  std::uint64_t checkpoints = 0;  ///< reads of a published checkpoint compared
  std::uint64_t blocks = 0;       ///< reads of a published attention block compared
  std::uint64_t different_tokens = 0;
  std::uint64_t different_logits = 0;
  std::uint64_t different_checkpoints = 0;
  std::uint64_t different_blocks = 0;
  std::uint64_t forbidden_writes = 0;  ///< below kv_valid_until, or into a published unit

  std::uint64_t mismatches() const noexcept {
    return different_tokens + different_logits + different_checkpoints + different_blocks +
           forbidden_writes;
  }
  Counts& operator+=(const Counts& o) noexcept {
    runs += o.runs;
    requests += o.requests;
    adopted_tokens += o.adopted_tokens;
    preemptions += o.preemptions;
    tokens += o.tokens;
    logits += o.logits;
    checkpoints += o.checkpoints;
    blocks += o.blocks;
    different_tokens += o.different_tokens;
    different_logits += o.different_logits;
    different_checkpoints += o.different_checkpoints;
    different_blocks += o.different_blocks;
    forbidden_writes += o.forbidden_writes;
    return *this;
  }
};

}  // namespace hybridstate::runtime::verify
