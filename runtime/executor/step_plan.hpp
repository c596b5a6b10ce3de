// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <vector>

namespace hybridstate::runtime {

/// A run of tokens of one sequence that one step computes.
struct Chunk {
  SequenceHandle sequence;
  std::uint32_t request = 0;  ///< position in the workload
  Tokens begin = 0;
  Tokens count = 0;
  bool decode = false;   ///< one token that follows a generated one
  bool samples = false;  ///< the chunk ends at the last known token: an output token follows
};

/// What one scheduler step asks of the device.
struct StepPlan {
  Step step = 0;
  std::vector<Chunk> chunks;
  std::uint64_t prefill_tokens = 0;         ///< P: prompt and recomputed tokens
  std::uint64_t decode_requests = 0;        ///< D
  std::uint64_t decode_context_tokens = 0;  ///< tokens that the decoding requests attend to
  Bytes copied_bytes = 0;  ///< of partial blocks and tails before the step, per layer of a group

  void clear(Step next) {
    step = next;
    chunks.clear();
    prefill_tokens = decode_requests = decode_context_tokens = copied_bytes = 0;
  }
};

/// Runs steps: against a virtual clock (the returned nanoseconds are added to it) or for real.
/// `run` may throw; the scheduler then invalidates what the step published.
template <class E>
concept step_executor = requires(E& executor, const StepPlan& plan) {
  { executor.run(plan) } -> std::same_as<std::int64_t>;
};

}  // namespace hybridstate::runtime
