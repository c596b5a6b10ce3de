// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.hpp"

#include "verify/verify_template.hpp"

namespace hybridstate::runtime::verify {

std::vector<Reference> references_of(const Scenario& s, const VerifyModel& model) {
  ForwardOptions options;
  options.carry = s.carry;
  options.linear_input = model.linear_input;
  options.broken = s.broken;
  options.max_tokens = 300;
  options.threads = model.threads;
  cpu::CpuForward forward(tensors_of(*model.model), options);
  Tokens const chunk = s.token_budget == 256 ? 300 : 256;
  std::vector<Reference> references;
  references.reserve(s.workload.requests.size());
  for (Request const& r : s.workload.requests)
    references.push_back(
        compute_reference(forward, r, s.block_tokens, s.checkpoint_tokens, chunk, s.sampling));
  return references;
}

namespace {

Counts drive(const Scenario& s, const VerifyModel& model, const std::vector<Reference>& references,
             const Drive& by) {
  switch (kind_of(s.arm)) {
    case OrganizationKind::coarse_page:
      return verify_coarse_page(s, model, references, by);
    case OrganizationKind::recurrent_paged:
      return verify_recurrent_paged(s, model, references, by);
    case OrganizationKind::native_dual_pool:
      return verify_native_dual_pool(s, model, references, by);
    default:
      return verify_conv_slab_packed(s, model, references, by);
  }
}

}  // namespace

Counts verify_scenario(const Scenario& s, const VerifyModel& model,
                       const std::vector<Reference>& references) {
  return drive(s, model, references, {});
}
Counts verify_scenario(const Scenario& s, const VerifyModel& model) {
  return verify_scenario(s, model, references_of(s, model));
}

Counts record_scenario(const Scenario& s, const VerifyModel& model,
                       const std::vector<Reference>& references, Schedule& recorded) {
  return drive(s, model, references, {&recorded, nullptr});
}
Counts replay_schedule(const Schedule& schedule, const Scenario& s, const VerifyModel& model,
                       const std::vector<Reference>& references) {
  return drive(s, model, references, {nullptr, &schedule});
}

Scenario shrink(const Scenario& scenario, const VerifyModel& model) {
  Scenario smallest = scenario;
  for (std::size_t i = smallest.workload.requests.size(); i-- > 0;) {
    Scenario fewer = smallest;
    fewer.workload.requests.erase(fewer.workload.requests.begin() + static_cast<std::ptrdiff_t>(i));
    if (!fewer.workload.requests.empty() && verify_scenario(fewer, model).mismatches() > 0)
      smallest = std::move(fewer);
  }
  return smallest;
}

}  // namespace hybridstate::runtime::verify
