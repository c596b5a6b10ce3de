// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Pools just large enough for one request, random workloads, every policy: nothing livelocks, and
// nothing is lost or counted twice.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <hybridstate/geometry/presets.hpp>
#include <hybridstate/organization/coarse_page.hpp>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <hybridstate/organization/native_dual_pool.hpp>
#include <hybridstate/organization/recurrent_paged.hpp>
#include <initializer_list>
#include <string>
#include <vector>

#include "falcon_spec.hpp"
#include "math/deterministic.hpp"
#include "support.hpp"

using namespace scheduler_test;

namespace {

/// `count` random runs at the full size, fewer where HYBRIDSTATE_TEST_SCALE says so.
int scaled(int count) {
  const char* const text = std::getenv("HYBRIDSTATE_TEST_SCALE");
  double const scale = text == nullptr ? 1.0 : std::strtod(text, nullptr);
  return std::max(8, static_cast<int>(scale * count));
}

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : bits_(seed) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(bits_.next() % n); }
  Tokens between(Tokens low, Tokens high) { return low + below(high - low + 1); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::uint32_t>(values.size()))];
  }

 private:
  BitGenerator bits_;
};

/// Requests around a few shared prefixes, with lengths that like multiples of `grid`.
Workload random_workload(Chance& chance, Tokens grid, Tokens longest_output) {
  std::vector<Request> all;
  std::uint32_t const count = chance.between(1, 16);
  bool const at_once = chance.one_in(3);
  std::int64_t arrival = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!at_once && chance.one_in(2)) arrival += chance.below(400'000);
    Tokens const context = chance.of({0U, grid, 2 * grid, 2 * grid + 1, 3 * grid, 4 * grid - 1});
    Tokens const own = chance.one_in(3)   ? chance.of({1U, grid - 1, grid, grid + 1, 2 * grid})
                       : chance.one_in(3) ? chance.between(1, 3 * grid)
                                          : chance.between(1, 8);
    Tokens const output =
        chance.one_in(6) ? chance.between(1, longest_output) : chance.between(1, 6);
    Request r = request(0, chance.below(3), context, output);
    r.arrival_ns = arrival * 1000;
    // Some requests repeat another's private part as well.
    std::uint64_t const stream = chance.one_in(4) ? 100 + chance.below(3) : 1000 + i;
    r.prompt_tokens = context + own;
    r.content.push_back({stream, 0, own});
    if (context == 0) r.content.erase(r.content.begin());
    if (chance.one_in(12)) r.salt = 9;
    all.push_back(std::move(r));
  }
  return workload(std::move(all));
}

Tokens longest(const Workload& w) {
  Tokens most = 0;
  for (Request const& r : w.requests) most = std::max(most, r.prompt_tokens + r.output_tokens);
  return most;
}

std::string text(const RunSpec& s, std::uint64_t seed) {
  return "seed " + std::to_string(seed) + ", " + arm_name(s.arm) + ", " + policy_name(s) +
         ", cap " + std::to_string(s.cap) + ", step of " + std::to_string(s.token_budget) +
         ", headroom " + std::to_string(s.headroom) + ", " + s.budget_text;
}

constexpr Arm all_arms[] = {Arm::s0,      Arm::s1,       Arm::s2,        Arm::d0,
                            Arm::d0_m512, Arm::infinite, Arm::byte_exact};

RunSpec random_spec(Chance& chance, Arm arm) {
  RunSpec spec = falcon_spec(arm);
  spec.null_units = chance.below(2);
  spec.cap = chance.of({1U, 2U, 3U, 8U});
  spec.token_budget = chance.of({64U, 500U, 512U, 2048U, 4096U});
  spec.headroom = chance.of({0.0, 0.0, 0.2, 0.9});
  spec.order = chance.of({OrderPolicy::paper, OrderPolicy::path_safe, OrderPolicy::greedy_dual});
  spec.slab_position =
      chance.of({SlabPosition::by_last_state, SlabPosition::front, SlabPosition::back});
  spec.placement =
      chance.of({Placement{}, Placement{}, Placement{PlacementKind::every_kth, 2},
                 Placement{PlacementKind::last_only, 1}, Placement{PlacementKind::junction, 1}});
  spec.prefix_aware = chance.one_in(4);
  spec.reuse_beyond_joint = chance.one_in(2);
  spec.fences = chance.one_in(2);
  spec.fence_lag = spec.fences ? chance.below(4) : 0;
  spec.keep_timeline = chance.one_in(2);
  if (arm != Arm::d0 && chance.one_in(2)) spec.tail_tokens = tail_quarter_tokens;
  spec.branch_points = {chance.one_in(2), 3};
  spec.adaptive_headroom = chance.one_in(2);
  spec.score.kind =
      chance.of({StateScore::greedy_dual, StateScore::marconi, StateScore::clairvoyant});
  spec.priced = chance.one_in(2);
  return spec;
}

/// The smallest nominal budget whose pools can hold so many tokens.
void smallest_budget(RunSpec& spec, Tokens tokens) {
  for (Units number = 1;; ++number) {
    spec.budget = nominal_budget(layout_of(spec), number);
    spec.budget_text = "b" + std::to_string(number);
    if (!plan_budget(kind_of(spec.arm), layout_of(spec), spec.budget, spec.split)) continue;
    if (never_fits(spec, tokens).empty()) return;
  }
}

}  // namespace

TEST_CASE("random runs in the smallest pools finish every request") {
  int const runs = scaled(900);
  std::uint64_t completed = 0, preempted = 0, refused = 0, tail_copies = 0;
  for (int i = 0; i < runs; ++i) {
    std::uint64_t const seed = 7000 + static_cast<std::uint64_t>(i);
    Chance chance(seed);
    Arm const arm = all_arms[static_cast<std::size_t>(i) % std::size(all_arms)];
    RunSpec spec = random_spec(chance, arm);
    Workload const w = random_workload(chance, 512, 600);
    // Sometimes too small for the longest, which then must be refused.
    Tokens const fitting = chance.one_in(5) ? longest(w) / 2 + 1 : longest(w);
    smallest_budget(spec, fitting);
    if (chance.one_in(4)) spec.budget.bytes += spec.budget.bytes / 3;
    CAPTURE(text(spec, seed));
    BlockIds const ids(w, block_tokens_of(spec));
    RunResult const run = run_workload(spec, w, ids);
    check_run(run, w);
    // What passes the test of fitting alone never fails later.
    CHECK(run.capacity_ended == 0);
    CHECK(run.tails.has_value() == (spec.tail_tokens > 0));
    if (run.tails) tail_copies += run.tails->copies;
    for (RequestRecord const& r : run.requests) {
      std::string const reason =
          never_fits(spec, r.prompt_tokens + w.requests[r.index].output_tokens);
      CHECK((r.outcome == RequestOutcome::refused) == !reason.empty());
      if (r.outcome == RequestOutcome::completed) ++completed;
    }
    preempted += run.preemptions;
    refused += run.refused;
  }
  MESSAGE(runs << " runs, " << completed << " completed, " << preempted << " preemptions, "
               << refused << " refused, " << tail_copies << " tail copies");
  CHECK(tail_copies > 0);
  CHECK(completed > 0);
  CHECK(preempted > 0);
  CHECK(refused > 0);
}

namespace {

/// The same on a grid of a few tokens, where everything collides more often, with the cache's
/// invariants checked after every step.
template <class Order, class Organization>
void random_small(std::uint64_t seed, Organization organization, const Workload& w,
                  Chance& chance) {
  CacheOptions options = cache_options(chance.between(2, 6));
  options.max_sequence_tokens = longest(w);
  options.fences = chance.one_in(2);
  options.reuse_beyond_joint = chance.one_in(2);
  options.placement =
      chance.of({Placement{}, Placement{PlacementKind::every_kth, 2},
                 Placement{PlacementKind::last_only, 1}, Placement{PlacementKind::junction, 1}});
  if (Organization::pools == 1 && chance.one_in(2)) options.tail_tokens = chance.of({2U, 4U});
  JointCache<Organization, Order> cache(std::move(organization), options);
  SchedulerOptions const scheduling{options.max_sequences, chance.of({5U, 16U, 64U}),
                                    options.fences ? chance.below(4) : 0};
  FixedHeadroom gate;
  gate.headroom[0] = chance.of({0U, 0U, 2U});
  CAPTURE(seed);
  Served served(w, cache, scheduling, gate);
  served.run();
  for (std::uint32_t r = 0; r < w.requests.size(); ++r) {
    CHECK(served.scheduler.record(r).outcome == RequestOutcome::completed);
    CHECK(served.scheduler.record(r).output_tokens == w.requests[r].output_tokens);
  }
  CHECK(cache.running() == 0);
  for (int pool = 0; pool < Organization::pools; ++pool)
    CHECK(cache.usage().pool[pool].referenced == 0);
}

template <class Order>
void random_small(std::uint64_t seed) {
  Chance chance(seed);
  Workload const w = random_workload(chance, 8, 40);
  StateLayout const layout = small_layout();
  auto const kind = organization_kinds[seed % std::size(organization_kinds)];
  // With tails a sequence may have two last blocks for a step.
  UnitDemand const need = units_needed(kind, layout, {longest(w) + layout.block_tokens(), 2});
  auto const units = [&](int pool) { return static_cast<Units>(need[pool]) + chance.below(4); };
  switch (kind) {
    case OrganizationKind::coarse_page:
      return random_small<Order>(seed, CoarsePage<>(layout, units(0)), w, chance);
    case OrganizationKind::recurrent_paged:
      return random_small<Order>(seed, RecurrentPaged<>(layout, units(0)), w, chance);
    case OrganizationKind::conv_slab_packed:
      return random_small<Order>(seed, ConvSlabPacked<>(layout, units(0)), w, chance);
    case OrganizationKind::native_dual_pool: {
      Units const attention = units(0);
      return random_small<Order>(seed, NativeDualPool<>(layout, {{attention, units(1)}}), w,
                                 chance);
    }
  }
}

}  // namespace

TEST_CASE("random runs on a grid of eight tokens keep the cache's invariants at every step") {
  int const runs = scaled(400);
  for (int i = 0; i < runs; ++i) {
    std::uint64_t const seed = 90'000 + static_cast<std::uint64_t>(i);
    if (i / 4 % 2 == 0)
      random_small<PaperOrder>(seed);
    else
      random_small<PathSafeLru>(seed);
  }
}
