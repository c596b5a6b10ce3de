// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "executor/forward_pass.hpp"
#include "executor/sampling.hpp"
#include "executor/simulated.hpp"
#include "model/weights.hpp"
#include "report/result.hpp"
#include "scheduler/serving_policy.hpp"
#include "workload/block_ids.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime {

/// A row of a comparison: an organization of the library, or a reference that no memory could beat.
enum class Arm : std::uint8_t {
  s0,
  s1,
  s2,
  d0,
  d0_m512,
  infinite,    ///< S2 with units for everything: nothing is ever reclaimed
  byte_exact,  ///< infinite reuse, admission by exactly packed bytes
};
inline constexpr Arm organization_arms[] = {Arm::s0, Arm::s1, Arm::s2, Arm::d0};

const char* arm_name(Arm arm);
/// Throws std::invalid_argument with one sentence.
Arm parse_arm(std::string_view name);
OrganizationKind kind_of(Arm arm);

/// A real model instead of the step law.
struct CpuSettings {
  const FalconH1Model* model = nullptr;
  Compute compute = Compute::cpu;
  LinearForm linear = LinearForm::exact;
  Carry carry = Carry::bf16_per_token;
  LinearInput linear_input = LinearInput::bf16;
  SamplingOptions sampling;
  unsigned threads = 0;  ///< 0: all of the machine
  /// Filled with the tokens that each request generated, unless null.
  std::vector<std::vector<TokenId>>* generated = nullptr;
};

/// A state-history trace of the run (docs/trace.md). It changes nothing in the run's result.
struct TraceSettings {
  std::filesystem::path path;
  std::string note;                                ///< workload and seed, for people
  std::size_t ring_bytes = std::size_t{32} << 20;  ///< records waiting for the background writer
  /// Filled by the run: one sentence when the file is not complete, else empty.
  std::string problem;
};

/// Everything that decides a run except the requests.
struct RunSpec : ServingPolicy {
  Arm arm = Arm::s2;
  ModelGeometry model;
  Budget budget;
  std::string budget_text;  ///< as the user wrote it
  PoolSplit split;          ///< of dual pools
  Units null_units = 1;     ///< units of each pool that the engine keeps as its null page
  StepLaw law;

  std::uint32_t cap = 63;
  Tokens token_budget = 2048;
  double headroom = 0;  ///< f: H = floor(f * B) in each pool
  bool keep_timeline = true;
  const CpuSettings* cpu = nullptr;  ///< null: simulated
  TraceSettings* trace = nullptr;    ///< null: none
};

StateLayout layout_of(const RunSpec& spec);
Tokens block_tokens_of(const RunSpec& spec);
/// B per layer as the budget was asked for, before it is rounded to units.
Bytes nominal_layer_bytes(const RunSpec& spec);

/// Whether the pools of the spec could ever hold a request of this many tokens; a sentence if not.
std::string never_fits(const RunSpec& spec, Tokens tokens);

/// Serves the workload: in virtual time, or with spec.cpu for real. `ids` must be for
/// block_tokens_of(spec). Throws ConfigurationError when the budget leaves a pool without units.
RunResult run_workload(const RunSpec& spec, const Workload& workload, const BlockIds& ids);

}  // namespace hybridstate::runtime
