// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "scheduler/run.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "report/file.hpp"
#include "scheduler/run_template.hpp"

namespace hybridstate::runtime {

const char* arm_name(Arm arm) {
  switch (arm) {
    case Arm::s0:
      return "S0";
    case Arm::s1:
      return "S1";
    case Arm::s2:
      return "S2";
    case Arm::d0:
      return "D0";
    case Arm::d0_m512:
      return "D0-M512";
    case Arm::infinite:
      return "infinite memory";
    case Arm::byte_exact:
      return "byte-exact bound";
  }
  return "";
}

Arm parse_arm(std::string_view name) {
  for (Arm arm : {Arm::s0, Arm::s1, Arm::s2, Arm::d0, Arm::d0_m512})
    if (name == arm_name(arm)) return arm;
  if (name == "infinite") return Arm::infinite;
  if (name == "byte-exact") return Arm::byte_exact;
  throw std::invalid_argument(fmt::format(
      "organization \"{}\" is unknown; use S0, S1, S2, D0, D0-M512, infinite or byte-exact", name));
}

OrganizationKind kind_of(Arm arm) {
  switch (arm) {
    case Arm::s0:
      return OrganizationKind::coarse_page;
    case Arm::s1:
      return OrganizationKind::recurrent_paged;
    case Arm::d0:
    case Arm::d0_m512:
      return OrganizationKind::native_dual_pool;
    default:
      return OrganizationKind::conv_slab_packed;
  }
}

std::string policy_name(const ServingPolicy& policy) {
  constexpr const char* orders[] = {"paper", "path-safe", "greedy-dual"};
  bool const greedy = policy.order == OrderPolicy::greedy_dual;
  bool const best =
      greedy && policy.reuse_beyond_joint && policy.placement.kind == PlacementKind::junction;
  std::string name = best ? "best" : orders[static_cast<int>(policy.order)];
  if (policy.order == OrderPolicy::path_safe && policy.branch_points.protect) {
    name = "branch-point";
    if (policy.adaptive_headroom) name += " + adaptive headroom";
  }
  if (greedy && policy.score.kind == StateScore::marconi)
    name += fmt::format(" + Marconi-like score (alpha = {})", policy.score.alpha);
  if (greedy && policy.score.kind == StateScore::clairvoyant) name += " + next uses known";
  if (greedy && !policy.priced) name += " + admission without a price";
  if (policy.named_headroom > 0) name += fmt::format(" + headroom {}", policy.named_headroom);
  if (policy.reuse_beyond_joint && !best) name += " + reuse beyond J";
  if (policy.prefix_aware) name += " + prefix-aware admission";
  if (policy.tail_tokens > 0) name += " + tails";
  if (policy.placement.kind == PlacementKind::every_kth)
    name += fmt::format(" + every {} boundaries", policy.placement.every);
  if (policy.placement.kind == PlacementKind::last_only) name += " + last boundary only";
  if (policy.placement.kind == PlacementKind::junction && !best) name += " + junctions";
  if (policy.slab_position == SlabPosition::front) name += " + slabs to front";
  if (policy.slab_position == SlabPosition::back) name += " + slabs to back";
  if (policy.retention.mode != RetentionMode::none) {
    name += fmt::format(" + {} retention (K = {})",
                        policy.retention.mode == RetentionMode::producer ? "producer" : "holders'",
                        policy.retention.distinct);
    if (policy.retention.yield == RetentionYield::before_preemption)
      name += " yielding before preemption";
  }
  if (policy.pinning.distinct > 0)
    name += fmt::format(" + pinning (K = {})", policy.pinning.distinct);
  if (policy.fences) name += fmt::format(" + fences (lag {})", policy.fence_lag);
  return name;
}

StateLayout layout_of(const RunSpec& spec) {
  LayoutOptions options;
  if (spec.arm == Arm::d0_m512) options = with_matched_native_grid(options);
  return checked_layout(spec.model, options).value();
}

Tokens block_tokens_of(const RunSpec& spec) {
  return block_tokens(kind_of(spec.arm), layout_of(spec));
}

Bytes nominal_layer_bytes(const RunSpec& spec) {
  return spec.budget.scope == Budget::Scope::per_layer
             ? spec.budget.bytes
             : spec.budget.bytes / layout_of(spec).group_layers();
}

std::optional<LiveStorage> live_storage_of(const RunSpec& spec) {
  if (spec.arm == Arm::infinite || spec.arm == Arm::byte_exact) return std::nullopt;
  return LiveStorage(checked_layout(spec.model).value(),
                     checked_layout(spec.model, with_matched_native_grid({})).value(),
                     nominal_layer_bytes(spec));
}

std::string never_fits(const RunSpec& spec, Tokens tokens) {
  if (spec.arm == Arm::infinite || spec.arm == Arm::byte_exact) return {};
  StateLayout const layout = layout_of(spec);
  OrganizationKind const kind = kind_of(spec.arm);
  BudgetPlan const plan = plan_budget(kind, layout, spec.budget, spec.split).value();
  PoolUnits usable;
  for (int pool = 0; pool < pool_count(kind); ++pool)
    usable[pool] = plan.units[pool] > spec.null_units ? plan.units[pool] - spec.null_units : 0;
  // With tails a sequence may have two last blocks for a step.
  Tokens const covered = tokens + (spec.tail_tokens > 0 ? block_tokens(kind, layout) : 0);
  UnitDemand const need =
      units_needed(kind, layout, SequenceDemand{covered, std::min<Units>(2, tokens)});
  if (need.fits(usable)) return {};
  for (int pool = 0; pool < pool_count(kind); ++pool)
    if (need[pool] > usable[pool])
      return fmt::format("{} tokens need {} units of {}'s pool {}, which has {}", tokens,
                         need[pool], arm_name(spec.arm), pool, usable[pool]);
  return {};
}

RunResult run_workload(const RunSpec& spec, const Workload& workload, const BlockIds& ids) {
  if (spec.trace != nullptr && (spec.arm == Arm::infinite || spec.arm == Arm::byte_exact))
    throw ReportError(
        fmt::format("A trace of {} was asked for, which never loses anything; use S0, S1, S2, D0 "
                    "or D0-M512.",
                    arm_name(spec.arm)));
  switch (spec.arm) {
    case Arm::s0:
      return run_coarse_page(spec, workload, ids);
    case Arm::s1:
      return run_recurrent_paged(spec, workload, ids);
    case Arm::s2:
      return run_conv_slab_packed(spec, workload, ids);
    case Arm::d0:
    case Arm::d0_m512:
      return run_native_dual_pool(spec, workload, ids);
    case Arm::infinite:
    case Arm::byte_exact:
      return run_reference(spec, workload, ids);
  }
  return {};
}

}  // namespace hybridstate::runtime
