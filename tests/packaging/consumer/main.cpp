// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <hybridstate/hybridstate.hpp>
#include <vector>

// What an engine that found the package does first: plan, build a cache, admit.
int main() {
  using namespace hybridstate;
  StateLayout const layout = make_layout(find_preset("falcon-h1-7b")->geometry);
  BudgetPlan const plan =
      plan_budget(OrganizationKind::conv_slab_packed, layout, nominal_budget(layout, 63)).value();
  JointCache cache(ConvSlabPacked(layout, plan.units[0]));
  std::vector<TokenId> const prompt(600, 1);
  cache.begin_step();
  Admission const a = cache.admit(Prompt::of_tokens(prompt), {});
  bool const reserved = a && cache.reserve(a.sequence, 600);
  std::printf("hybridstate %d.%d.%d: %u pages, admitted %d, reserved %d\n",
              HYBRIDSTATE_VERSION_MAJOR, HYBRIDSTATE_VERSION_MINOR, HYBRIDSTATE_VERSION_PATCH,
              plan.units[0], static_cast<int>(static_cast<bool>(a)), static_cast<int>(reserved));
  return reserved && plan.units[0] == 193 ? 0 : 1;
}
