// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The body of a run, simulated or on the CPU, instantiated once per organization in its own file.

#include <algorithm>
#include <cmath>
#include <hybridstate/cache/joint_cache.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "executor/model_executor.hpp"
#include "scheduler/content.hpp"
#include "scheduler/future_uses.hpp"
#include "scheduler/run.hpp"
#include "scheduler/scheduler.hpp"
#include "scheduler/step_statistics.hpp"
#include "trace/session.hpp"

namespace hybridstate::runtime {

/// What the scheduler tells: the run's statistics, and its trace if there is one.
class RunObserver {
 public:
  RunObserver(StepStatistics& statistics, StateHistory* history)
      : statistics_(statistics), history_(history) {}

  template <class Scheduler>
  void after_step(const Scheduler& scheduler, const StepPlan& plan) {
    statistics_.after_step(scheduler, plan);
    if (history_ != nullptr) history_->after_step(scheduler.now(), plan);
  }
  template <class Scheduler>
  void on_step(const Scheduler& scheduler, Step step) {
    if (history_ != nullptr)
      history_->on_step(scheduler.now(), step, scheduler.running(), scheduler.waiting());
  }
  template <class Scheduler>
  void on_queued(const Scheduler& scheduler, std::uint32_t request, std::uint32_t preemptions,
                 const Prompt& prompt) {
    if (history_ != nullptr) history_->on_queued(scheduler.now(), request, preemptions, prompt);
  }

 private:
  StepStatistics& statistics_;
  StateHistory* history_;
};

/// The gate of the byte-exact bound: what runs, packed without any rounding and with adopted tokens
/// counted for nobody, must leave room for the newcomer.
struct ByteExactGate {
  double capacity = 0;
  double token_bytes = 0;
  double state_bytes = 0;
  std::function<double()> held;  ///< bytes of what runs now

  template <class Scheduler>
  void attach(const Scheduler& scheduler) {
    held = [this, &scheduler] {
      double bytes = 0;
      scheduler.for_each_running([&](Tokens known, Tokens adopted) {
        bytes += token_bytes * (known - adopted) + state_bytes;
      });
      return bytes;
    };
  }
  int refusing_pool(const AdmissionView& view) const noexcept {
    double const wants = token_bytes * (view.tokens - view.joint) + state_bytes;
    return held() + wants <= capacity ? -1 : 0;
  }
};

/// The gate of a run under a policy: need and headroom, or prices.
struct ServingGate : FixedHeadroom {
  std::optional<PricedGate> priced;

  void set_time(std::int64_t now_ns) noexcept {
    if (priced) priced->set_time(now_ns);
  }
  void observe_step(std::int64_t ns) noexcept {
    if (priced) priced->observe_step(ns);
  }
  /// Without prices there is no need for a market.
  bool stands_by_refusal(const AdmissionView& view) const noexcept {
    return !priced || priced->stands_by_refusal(view);
  }
  int refusing_pool(const AdmissionView& view) const noexcept {
    return priced ? priced->refusing_pool(view) : FixedHeadroom::refusing_pool(view);
  }
  int refusing_pool(const AdmissionView& view, Market& market) const noexcept {
    return priced ? priced->refusing_pool(view, market) : refusing_pool(view);
  }
};
static_assert(pricing_gate<ServingGate>);

/// What M_X is counted with; absent for reference rows.
std::optional<LiveStorage> live_storage_of(const RunSpec& spec);

/// One run over a cache that is ready, whatever executes the steps.
template <class Cache, class Gate, class Executor, class Clock, class Content>
RunResult serve(const RunSpec& spec, const Workload& workload, Cache& cache, Gate& gate,
                Executor& executor, Clock& clock, Content& content) {
  std::optional<LiveStorage> const storage = live_storage_of(spec);
  StepStatistics statistics(spec.keep_timeline, workload, storage);
  SchedulerOptions const options{spec.cap, spec.token_budget, spec.fence_lag, spec.prefix_aware};
  StateHistory* history = nullptr;
  if constexpr (requires { cache.observer().history; }) history = cache.observer().history;
  RunObserver observer(statistics, history);
  Scheduler scheduler(workload, cache, executor, clock, content, gate, options, observer);
  if constexpr (requires { gate.attach(scheduler); }) gate.attach(scheduler);
  scheduler.run();

  RunResult result;
  result.organization = arm_name(spec.arm);
  result.policy = policy_name(spec);
  result.executor = spec.cpu != nullptr ? compute_name(spec.cpu->compute) : "simulated";
  result.device = spec.cpu != nullptr ? "this machine" : spec.law.name;
  result.budget = spec.budget_text;
  result.block_tokens = cache.block_tokens();
  result.checkpoint_tokens = cache.checkpoint_tokens();
  result.cap = spec.cap;
  auto const& totals = scheduler.totals();
  result.steps = totals.steps;
  result.submitted_tokens = totals.submitted_tokens;
  result.recomputed_tokens = totals.recomputed_tokens;
  result.admissions = totals.admissions;
  result.preemptions = totals.preemptions;
  result.refused = totals.refused;
  result.capacity_ended = totals.capacity_ended;
  result.admission_waits = totals.admission_waits;
  result.pending_waits = totals.pending_waits;
  result.reserves_without_need = cache.counters().reserves_without_need;
  CacheCounters const& counters = cache.counters();
  result.published_checkpoints = counters.published_checkpoints;
  result.reclaimed_units = counters.reclaimed_units;
  result.invalidated_checkpoints = counters.lost_checkpoints;
  result.invalidated_attention = counters.lost_blocks;
  result.reserve_failures = counters.failed_reserves;
  if (spec.retention.mode != RetentionMode::none) {
    result.eligible_boundaries = counters.eligible_boundaries;
    result.retained_boundaries = counters.retained;
    result.retained_yielded = counters.retained_yielded;
  }
  if (spec.pinning.distinct > 0) {
    result.pins = counters.pins;
    result.pins_over_budget = counters.pins_over_budget;
    result.pins_yielded = counters.pins_yielded;
  }
  for (int pool = 0; pool < Cache::pools; ++pool) {
    result.pool_failures.push_back(totals.pool_failures[pool]);
    result.failures_some_free.push_back(totals.failures_some_free[pool]);
    result.failures_none_free.push_back(totals.failures_none_free[pool]);
    result.failures_headroom.push_back(totals.failures_headroom[pool]);
    result.granted_none_free.push_back(totals.granted_none_free[pool]);
  }
  result.failures_deferred = totals.failures_deferred;
  result.failures_preempted = totals.failures_preempted;
  result.failures_alone = totals.failures_alone;
  if constexpr (pricing_gate<Gate>)
    if (gate.priced) result.pricing = gate.priced->record();
  statistics.finish(result);
  if (spec.tail_tokens > 0) {
    TailStatistics& tails = result.tails.emplace(statistics.tails());
    tails.taken = cache.tails().created();
    tails.grown = counters.tails_grown;
    tails.filled = counters.tails_filled;
    tails.copies = counters.tail_copies;
    tails.copied_bytes = counters.tail_copied_bytes * cache.organization().layout().group_layers();
  }
  if (auto const* const slabs = slabs_of(cache.organization()); slabs != nullptr && storage) {
    result.cross_invalidations = counters.cross_invalidations;
    if (result.slabs) {
      result.slabs->taken = slabs->created();
      result.slabs->pops = counters.slab_pops;
    }
  }
  result.requests = scheduler.take_records();
  std::int64_t first = -1;
  std::int64_t last = 0;
  for (RequestRecord const& r : result.requests) {
    if (r.outcome != RequestOutcome::completed) continue;
    if (first < 0 || r.arrival_ns < first) first = r.arrival_ns;
    last = std::max(last, r.finished_ns);
    result.c_once += r.prompt_tokens - r.adopted_tokens;
  }
  result.span_ns = first < 0 ? 0 : last - first;
  return result;
}

template <class Cache, class Gate>
RunResult serve_simulated(const RunSpec& spec, const Workload& workload, const BlockIds& ids,
                          Cache& cache, Gate& gate, std::int64_t scale) {
  SimulatedExecutor executor(spec.law, scale, cache.organization().layout().group_layers());
  VirtualClock clock;
  TrustedContent content(workload, ids);
  return serve(spec, workload, cache, gate, executor, clock, content);
}

/// Executes the model of spec.cpu in the cache's units, against the machine's clock.
template <class Cache, class Gate>
RunResult serve_cpu(const RunSpec& spec, const Workload& workload, Cache& cache, Gate& gate) {
  CpuSettings const& cpu = *spec.cpu;
  ModelTensors tensors = tensors_of(*cpu.model);
  TokenContent content(workload, tensors.config.vocabulary);
  ForwardOptions options;
  options.carry = cpu.carry;
  options.linear_input = cpu.linear_input;
  options.max_tokens = spec.token_budget;
  options.threads = cpu.threads;
  options.compute = cpu.compute;
  options.linear = cpu.linear;
  NullWitness witness;
  ModelExecutor executor(cache, std::move(tensors), options, content, cpu.sampling,
                         StepTime::measured, witness);
  RealClock clock;
  RunResult result = serve(spec, workload, cache, gate, executor, clock, content);
  if (cpu.carry == Carry::bf16_at_grid) result.arena_bytes = executor.arena_bytes();
  if (cpu.generated != nullptr)
    for (std::uint32_t r = 0; r < workload.requests.size(); ++r) {
      auto const tokens = content.tokens(r).subspan(workload.requests[r].prompt_tokens);
      cpu.generated->emplace_back(tokens.begin(), tokens.end());
    }
  return result;
}

inline CacheOptions cache_options(const RunSpec& spec, const Workload& workload) {
  CacheOptions options = cache_options(spec);
  options.max_sequences = spec.cap;
  options.max_sequence_tokens = longest_request(workload);
  options.identity = spec.cpu != nullptr ? BlockIdentity::tokens : BlockIdentity::trusted_id;
  return options;
}

inline ServingGate serving_gate(const RunSpec& spec, const BudgetPlan& plan, std::int64_t scale) {
  ServingGate gate;
  if (spec.order == OrderPolicy::greedy_dual && spec.priced) {
    double const seconds = 1e-12 * static_cast<double>(scale) / 1000;
    gate.priced.emplace(static_cast<double>(spec.law.base_ps) * seconds,
                        static_cast<double>(spec.law.prefill_token_ps) * seconds);
    return gate;
  }
  for (int pool = 0; pool < pool_count(kind_of(spec.arm)); ++pool) {
    auto const part_of = [&, units = static_cast<double>(plan.units[pool])](double fraction) {
      return static_cast<Units>(std::floor(fraction * units));
    };
    gate.headroom[pool] = part_of(spec.named_headroom > 0 ? spec.named_headroom : spec.headroom);
    gate.adaptive[pool] = part_of(spec.adaptive_headroom ? adaptive_fraction : 0);
  }
  return gate;
}

/// Builds the organization with `make(units)` and serves under the order that the spec names.
template <class Make>
RunResult run_with(const RunSpec& spec, const Workload& workload, const BlockIds& ids,
                   std::int64_t scale, Make make) {
  using Organization = decltype(make(PoolUnits{}));
  BudgetPlan const plan =
      plan_budget(kind_of(spec.arm), layout_of(spec), spec.budget, spec.split).value();
  PoolUnits usable;
  for (int pool = 0; pool < Organization::pools; ++pool)
    usable[pool] = plan.units[pool] > spec.null_units ? plan.units[pool] - spec.null_units : 0;
  Organization organization = make(usable);
  TraceSession trace(spec, organization.block_tokens(), organization.checkpoint_tokens());
  ServingPolicy policy = spec;
  std::optional<FutureUses> future;
  if (policy.score.kind == StateScore::clairvoyant)
    policy.score.next_uses = &future.emplace(workload, ids, organization.checkpoint_tokens());
  ServingGate gate = serving_gate(spec, plan, scale);
  auto const served = [&](auto& cache) {
    return spec.cpu != nullptr ? serve_cpu(spec, workload, cache, gate)
                               : serve_simulated(spec, workload, ids, cache, gate, scale);
  };
  RunResult result = with_cache(std::move(organization), cache_options(spec, workload), policy,
                                served, trace.observer());
  trace.close();
  result.budget_bytes = plan.layer_bytes();
  result.total_bytes = plan.total_bytes();
  for (int pool = 0; pool < Organization::pools; ++pool) {
    result.pool_units.push_back(plan.units[pool]);
    result.pool_bytes.push_back(plan.pool_bytes(pool));
  }
  return result;
}

RunResult run_coarse_page(const RunSpec&, const Workload&, const BlockIds&);
RunResult run_recurrent_paged(const RunSpec&, const Workload&, const BlockIds&);
RunResult run_conv_slab_packed(const RunSpec&, const Workload&, const BlockIds&);
RunResult run_native_dual_pool(const RunSpec&, const Workload&, const BlockIds&);
RunResult run_reference(const RunSpec&, const Workload&, const BlockIds&);

}  // namespace hybridstate::runtime
