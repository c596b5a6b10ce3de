// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/cache/types.hpp>
#include <optional>
#include <string>
#include <vector>

#include "executor/conditions.hpp"
#include "executor/cpu/kernels.hpp"
#include "executor/sampling.hpp"
#include "model/weights.hpp"
#include "scheduler/run.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime::verify {

/// One serving run that is decided by a seed: requests and everything that could change where
/// their state lives or when it is computed, and that must not change a bit of what they compute.
struct Scenario : ServingPolicy {
  std::string name;
  std::uint64_t seed = 0;
  Arm arm = Arm::s2;
  Carry carry = Carry::bf16_per_token;
  Tokens block_tokens = 64;       ///< of attention
  Tokens checkpoint_tokens = 64;  ///< between boundaries
  PoolUnits units;                ///< usable, per pool
  std::uint32_t cap = 8;
  Tokens token_budget = 128;
  Units headroom = 0;  ///< units in each pool
  SamplingOptions sampling;
  Condition broken = Condition::none;  ///< given up on purpose, in the reference as well
  Workload workload;
};

/// What to draw from; absent: drawn as well.
struct ScenarioChoice {
  std::optional<Arm> arm;
  std::optional<Carry> carry;
};

/// A random run: prompts that share prefixes on several levels, end on boundaries or are covered by
/// a checkpoint, under salts; arrivals together or apart; a pool between roomy and barely one
/// request.
Scenario random_scenario(const FalconH1Config& model, std::uint64_t seed,
                         const ScenarioChoice& choice);

/// The runs of the paper's Appendix D.5 on the 512-token grid: "depths" (continuation at 600 to
/// 1,800 and at 2,400 tokens), "concurrent" (16 at once), "batches" (8, 32, 53), "reclaim". Then
/// "cuts" (prompts in pieces that end anywhere), "preempted" (while generating), and "common":
/// continuation at 3,584 tokens, where the boundaries of 512 and of 1,792 tokens meet.
const std::vector<std::string>& named_scenarios();
std::vector<Scenario> named_scenario(const FalconH1Config& model, const std::string& name, Arm arm,
                                     Carry carry);

/// The grids of a scenario, and the memory that it lives in.
LayoutOptions layout_options(const Scenario& scenario);
StateLayout layout_of(const Scenario& scenario, const FalconH1Config& model);
/// Units of each pool that hold `tokens` tokens of attention and `states` recurrent states.
PoolUnits units_for(const Scenario& scenario, const StateLayout& layout, Tokens tokens,
                    Units states);
/// The settings in one line, for messages.
std::string describe(const Scenario& scenario);

}  // namespace hybridstate::runtime::verify
