// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "executor/sampling.hpp"
#include "scheduler/run.hpp"
#include "verify/scenario.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime::verify {

/// Tokens [first, first + tokens) of one request, computed in one step.
struct ScheduledChunk {
  std::uint64_t step = 0;
  std::uint32_t request = 0;
  Tokens first = 0;
  Tokens tokens = 0;
  /// Set where the request is admitted, for the first time or again: the boundary that it continues
  /// from.
  std::optional<Tokens> adopted;

  friend bool operator==(const ScheduledChunk&, const ScheduledChunk&) = default;
};

/// What a run computed and in which order, without where its state lay: the same under every
/// organization that keeps a checkpoint at every adopted boundary.
///
/// As a file, one JSON object a line: a header
///   {"schedule": 1, "block_tokens": 512, "native_block_tokens": 16,
///    "native_boundary_tokens": 1792, "carry": "bf16-per-token", "temperature": 0, "top_k": 0,
///    "top_p": 1, "seed": 0, "requests": 2}
/// (blocks and boundaries of S0, S1, S2 and D0-M512, then attention units and boundaries of D0),
/// then the requests in order
///   {"request": 0, "salt": 0, "output_length": 6, "input_tokens": [...]}
/// then the chunks in scheduling order
///   {"step": 1, "request": 0, "first": 0, "tokens": 512, "adopted": 0}
/// and {"end": N} with the number of chunks, so that a file cut short is noticed.
struct Schedule {
  Tokens block_tokens = 512;
  Tokens native_block_tokens = 16;
  Tokens native_boundary_tokens = 1792;
  Carry carry = Carry::bf16_per_token;
  SamplingOptions sampling;
  Workload workload;
  std::vector<ScheduledChunk> chunks;
};

/// Throws WorkloadError naming file, line and field; a schedule that it returns can have happened:
/// chunks follow each other, each begins where its request stands, and nothing is computed before
/// its token is known.
Schedule parse_schedule(std::string_view text, const std::string& name);
Schedule read_schedule(const std::string& path);
std::string schedule_text(const Schedule& schedule);

/// An empty schedule of a scenario's requests, for recording: the scenario's blocks and boundaries
/// on its own side, and on the other side (D0's or the others') ones that fit them.
Schedule schedule_for(const Scenario& scenario);

/// Why an organization cannot replay the schedule; empty when it can.
std::string replay_problem(const Schedule& schedule, Arm arm, Carry carry,
                           const FalconH1Config& model);
/// The organization that replays it: memory for everything that the schedule computes, so that
/// every boundary is still there when it is adopted.
Scenario replay_scenario(const Schedule& schedule, Arm arm, Carry carry,
                         const FalconH1Config& model);

}  // namespace hybridstate::runtime::verify
