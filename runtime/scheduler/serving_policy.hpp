// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/cache/joint_cache.hpp>
#include <hybridstate/policy/greedy_dual.hpp>
#include <hybridstate/policy/placement.hpp>
#include <hybridstate/policy/reclaim_order.hpp>
#include <hybridstate/policy/retention.hpp>
#include <string>
#include <utility>

namespace hybridstate::runtime {

enum class OrderPolicy : std::uint8_t { paper, path_safe, greedy_dual };

/// Parts of an attention block that tails take: quarters of 512 tokens.
inline constexpr Tokens tail_quarter_tokens = 128;

/// How a cache keeps and gives up what it holds, whatever the model, memory, workload and executor.
struct ServingPolicy {
  OrderPolicy order = OrderPolicy::paper;
  SlabPosition slab_position = SlabPosition::by_last_state;  ///< of the paper's order
  Placement placement;
  bool reuse_beyond_joint = false;
  bool prefix_aware = false;       ///< admission by what is left to compute, see Scheduler
  Tokens tail_tokens = 0;          ///< parts of the slabs that tails share; 0: whole blocks
  BranchPoints branch_points;      ///< of the path-safe order
  double named_headroom = 0;       ///< f that comes with the policy, before RunSpec::headroom
  bool adaptive_headroom = false;  ///< with it: see adaptive_fraction
  ScoreRule score;     ///< of the greedy-dual order; run_workload() sees into the future
  bool priced = true;  ///< and its gate: by price, or by need and headroom as others
  Retention retention;
  Pinning pinning;
  bool fences = false;
  std::uint32_t fence_lag = 0;
};

/// Adaptive headroom: admissions leave the units of cached protected states alone, up to this part
/// of each pool.
inline constexpr double adaptive_fraction = 0.4;

/// In words, for headings, e.g. "paper + reuse beyond J".
std::string policy_name(const ServingPolicy& policy);

/// The options that follow from the policy; sizes and identity are the caller's.
inline CacheOptions cache_options(const ServingPolicy& policy) {
  CacheOptions options;
  options.key_bytes = 0;
  options.fences = policy.fences;
  options.placement = policy.placement;
  options.reuse_beyond_joint = policy.reuse_beyond_joint;
  options.retention = policy.retention;
  options.pinning = policy.pinning;
  options.tail_tokens = policy.tail_tokens;
  return options;
}

/// Calls use(cache) with a cache under the policy's reclaim order, with a copy of the observer.
template <class Organization, class Use, class Observer = NullObserver>
auto with_cache(Organization organization, const CacheOptions& options, const ServingPolicy& policy,
                Use&& use, Observer observer = {}) {
  if (policy.order == OrderPolicy::paper) {
    JointCache<Organization, PaperOrder, Observer> cache(
        std::move(organization), options, PaperOrder{policy.slab_position}, observer);
    return use(cache);
  }
  if (policy.order == OrderPolicy::path_safe) {
    JointCache<Organization, PathSafeLru, Observer> cache(
        std::move(organization), options, PathSafeLru{policy.branch_points}, observer);
    return use(cache);
  }
  JointCache<Organization, GreedyDual, Observer> cache(std::move(organization), options,
                                                       GreedyDual{policy.score}, observer);
  return use(cache);
}

}  // namespace hybridstate::runtime
