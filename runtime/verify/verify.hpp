// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/weights.hpp"
#include "verify/counts.hpp"
#include "verify/reference.hpp"
#include "verify/scenario.hpp"
#include "verify/schedule.hpp"

namespace hybridstate::runtime::verify {

/// The model that all runs of one verification share.
struct VerifyModel {
  const FalconH1Model* model = nullptr;
  unsigned threads = 1;  ///< of each run
  LinearInput linear_input = LinearInput::bf16;
  Compute compute = Compute::cpu;  ///< of the served runs; requests alone run on the CPU

  const FalconH1Config& config() const { return model->config(); }
};

/// What every request of the scenario computes alone. The chunks of its prompt are of another size
/// than the scenario's.
std::vector<Reference> references_of(const Scenario& scenario, const VerifyModel& model);

/// Serves the scenario through scheduler, joint cache and CPU executor, and compares every emitted
/// token, every logit vector, every published checkpoint and attention block (when it is published,
/// when it is adopted, and at the end) with the reference, to the bit; watches every write: the
/// planned ones before a step, the bytes that changed after it.
Counts verify_scenario(const Scenario& scenario, const VerifyModel& model);
Counts verify_scenario(const Scenario& scenario, const VerifyModel& model,
                       const std::vector<Reference>& references);
/// The same with what was computed written down; `recorded` begins as schedule_for(scenario).
Counts record_scenario(const Scenario& scenario, const VerifyModel& model,
                       const std::vector<Reference>& references, Schedule& recorded);
/// Computes a schedule in a replay_scenario() instead of scheduling its requests; WorkloadError
/// when the schedule continues from something that it did not compute before.
Counts replay_schedule(const Schedule& schedule, const Scenario& scenario, const VerifyModel& model,
                       const std::vector<Reference>& references);

/// The scenario with as few of its requests as still fail.
Scenario shrink(const Scenario& scenario, const VerifyModel& model);

}  // namespace hybridstate::runtime::verify
