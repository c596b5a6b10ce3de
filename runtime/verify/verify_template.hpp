// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// One verified run, instantiated once per organization in its own file.

#include <algorithm>
#include <hybridstate/cache/joint_cache.hpp>
#include <map>
#include <utility>
#include <vector>

#include "executor/model_executor.hpp"
#include "scheduler/clock.hpp"
#include "scheduler/content.hpp"
#include "scheduler/scheduler.hpp"
#include "verify/reference.hpp"
#include "verify/replay.hpp"
#include "verify/store_guard.hpp"
#include "verify/verify.hpp"

namespace hybridstate::runtime::verify {

/// Changes nothing. Tests put something else here, to show that it is noticed.
struct Honest {
  template <class Cache>
  void chunk(const Cache&, const Chunk&, ForwardChunk&) noexcept {}
};

/// What schedules the run, beside the scheduler itself.
struct Drive {
  Schedule* record = nullptr;        ///< gets what was computed
  const Schedule* replay = nullptr;  ///< computed instead of scheduling
};

/// Looks at what the executor is about to write and at the logits that it got.
template <class Cache, class Tamper>
class Watcher {
 public:
  Watcher(const Workload& workload, const Cache& cache, const std::vector<Reference>& references,
          Counts& counts, Tamper& tamper)
      : workload_(workload),
        cache_(cache),
        references_(references),
        counts_(counts),
        tamper_(tamper) {}

  StoreGuard<Cache>& stores() noexcept { return stores_; }

  void chunk(const Chunk& c, ForwardChunk& f) {
    stores_.allow(cache_, c);
    tamper_.chunk(cache_, c, f);
    // Committed before it is computed: what this step publishes carries this step's number.
    Step const now = cache_.current_step();
    Tokens const from = std::max(f.begin, f.kv_valid_until);
    Tokens const end = c.begin + c.count;
    Tokens const size = cache_.block_tokens();
    if (from < std::min(cache_.kv_valid_until(c.sequence), end)) ++counts_.forbidden_writes;
    auto const blocks = cache_.blocks(c.sequence);
    for (Tokens b = from / size; b * size < end; ++b)
      if (cache_.published(blocks[b]) && cache_.published_step(blocks[b]) < now)
        ++counts_.forbidden_writes;
    for (HeldState const& h : cache_.states(c.sequence).subspan(cache_.first_target(c.sequence)))
      if (cache_.published(h.state) && cache_.published_step(h.state) < now)
        ++counts_.forbidden_writes;
  }
  void logits(std::uint32_t request, Tokens position, std::span<const float> logits) {
    Reference const& reference = references_[request];
    Tokens const n = position - workload_.requests[request].prompt_tokens;
    ++counts_.logits;
    if (n >= reference.logits.size() || reference.logits[n] != bits_of(logits))
      ++counts_.different_logits;
  }

 private:
  const Workload& workload_;
  const Cache& cache_;
  const std::vector<Reference>& references_;
  Counts& counts_;
  Tamper& tamper_;
  StoreGuard<Cache> stores_;
};

/// After every step: what it published, and what it continued from, against the reference.
template <class Cache, class Executor>
class Inspector {
 public:
  Inspector(const Scenario& scenario, const Cache& cache, const Executor& executor,
            const TokenContent& content, const std::vector<Reference>& references,
            StoreGuard<Cache>& stores, Schedule* record, Counts& counts)
      : scenario_(scenario),
        cache_(cache),
        executor_(executor),
        content_(content),
        references_(references),
        stores_(stores),
        record_(record),
        counts_(counts),
        next_(scenario.workload.requests.size()),
        preemptions_(next_.size()) {
    stores_.begin(executor.memory());
  }

  template <class Scheduler>
  void after_step(const Scheduler& scheduler, const StepPlan& plan) {
    if (!stores_.unchanged_elsewhere(executor_.memory())) ++counts_.forbidden_writes;
    for (Chunk const& c : plan.chunks) {
      Tokens const end = c.begin + c.count;
      bool const admitted = next_[c.request] == 0;
      bool const adopted = admitted && c.begin > 0;
      if (adopted) counts_.adopted_tokens += c.begin;
      if (record_ != nullptr) {
        ScheduledChunk const line{plan.step, c.request, c.begin, c.count, {}};
        record_->chunks.push_back(line);
        if (admitted) record_->chunks.back().adopted = c.begin;
      }
      next_[c.request] = end;
      look(c.request, adopted ? 0 : c.begin, end);
    }
    for (std::uint32_t r = 0; r < next_.size(); ++r) {
      std::uint32_t const preemptions = scheduler.record(r).preemptions;
      if (preemptions == preemptions_[r]) continue;
      counts_.preemptions += preemptions - preemptions_[r];
      preemptions_[r] = preemptions;
      next_[r] = 0;
    }
  }

  /// Everything that is still published, once more.
  void finish() {
    for (auto const& [handle, seen] : blocks_)
      if (still(AttentionHandle{handle}, seen)) check_block(AttentionHandle{handle}, seen);
    for (auto const& [handle, seen] : states_)
      if (still(StateHandle{handle}, seen)) check_state(StateHandle{handle}, seen);
  }

 private:
  /// Where a published object came from.
  struct Seen {
    std::uint32_t request = 0;
    Tokens end = 0;
    Step step = 0;
    NodeIndex node;
  };

  template <class Handle>
  bool still(Handle h, const Seen& seen) const {
    return cache_.published(h) && cache_.published_step(h) == seen.step &&
           cache_.node(h) == seen.node;
  }

  /// Compares every object on the request's path that ends in (from, to].
  void look(std::uint32_t request, Tokens from, Tokens to) {
    auto const& index = cache_.index();
    std::span<const TokenId> const tokens = content_.tokens(request);
    NodeIndex n = index.find_root(scenario_.workload.requests[request].salt, {});
    Tokens const size = cache_.block_tokens();
    for (Tokens end = size; n && end <= to; end += size) {
      TokenId const* const block = tokens.data() + (end - size);
      n = index.find_child(n, {block_key({block, size}), block});
      if (!n || end <= from) continue;
      PrefixNode const& node = index[n];
      for (std::int32_t h : {node.oldest_unit, node.newest_unit})
        if (h >= 0) {
          Seen const seen{request, end, cache_.published_step(AttentionHandle{h}), n};
          check_block(AttentionHandle{h}, seen);
          blocks_[h] = seen;
          if (node.oldest_unit == node.newest_unit) break;
        }
      for (std::int32_t h : {node.oldest_state, node.newest_state})
        if (h >= 0) {
          Seen const seen{request, end, cache_.published_step(StateHandle{h}), n};
          check_state(StateHandle{h}, seen);
          states_[h] = seen;
          if (node.oldest_state == node.newest_state) break;
        }
    }
  }

  void check_block(AttentionHandle a, const Seen& seen) {
    ++counts_.blocks;
    auto const& expected = references_[seen.request].blocks;
    std::size_t const i = seen.end / cache_.block_tokens() - 1;
    auto const& memory = executor_.memory();
    if (i >= expected.size() ||
        bits_of_block(executor_.forward().config(), memory.kv(), memory.block(a),
                      cache_.block_tokens()) != expected[i])
      ++counts_.different_blocks;
  }
  void check_state(StateHandle s, const Seen& seen) {
    ++counts_.checkpoints;
    auto const& expected = references_[seen.request].checkpoints;
    std::size_t const i = seen.end / cache_.checkpoint_tokens();
    table_.clear();
    executor_.memory().append(s, table_);
    if (i >= expected.size() || bits_of_state(executor_.forward().config(),
                                              executor_.memory().row(table_.data())) != expected[i])
      ++counts_.different_checkpoints;
  }

  const Scenario& scenario_;
  const Cache& cache_;
  const Executor& executor_;
  const TokenContent& content_;
  const std::vector<Reference>& references_;
  StoreGuard<Cache>& stores_;
  Schedule* record_;
  Counts& counts_;
  std::vector<Tokens> next_;  ///< where each request goes on unless it was preempted
  std::vector<std::uint32_t> preemptions_;
  std::map<std::int32_t, Seen> blocks_, states_;
  std::vector<std::int32_t> table_;
};

/// The emitted tokens of all requests; `done` is the scheduler or what took its place.
template <class Done>
void compare_tokens(const Scenario& s, const TokenContent& content,
                    const std::vector<Reference>& references, const Done& done, Counts& counts) {
  for (std::uint32_t r = 0; r < s.workload.requests.size(); ++r) {
    // A request that outgrew the pool has emitted less; what it emitted must agree.
    auto const emitted = content.tokens(r).subspan(s.workload.requests[r].prompt_tokens);
    auto const& expected = references[r].generated;
    counts.tokens += emitted.size();
    for (std::size_t i = 0; i < emitted.size(); ++i)
      if (i >= expected.size() || emitted[i] != expected[i]) ++counts.different_tokens;
    if (done.record(r).outcome == RequestOutcome::completed && emitted.size() != expected.size())
      ++counts.different_tokens;
  }
}

template <class Cache, class Tamper>
Counts verify_with(const Scenario& s, const VerifyModel& model, Cache& cache,
                   const std::vector<Reference>& references, const Drive& drive, Tamper& tamper) {
  Counts counts;
  ++counts.runs;
  counts.requests = s.workload.requests.size();
  TokenContent content(s.workload, model.config().vocabulary);
  ForwardOptions options;
  options.carry = s.carry;
  options.linear_input = model.linear_input;
  options.broken = s.broken;
  options.max_tokens = s.token_budget;
  options.threads = model.threads;
  options.compute = model.compute;
  options.host_visible = true;
  Watcher<Cache, Tamper> watcher(s.workload, cache, references, counts, tamper);
  ModelExecutor executor(cache, tensors_of(*model.model), options, content, s.sampling,
                         StepTime::unit, watcher);
  Inspector inspector(s, cache, executor, content, references, watcher.stores(), drive.record,
                      counts);
  if (drive.replay != nullptr) {
    Replayer replayer(*drive.replay, cache, executor, content, inspector);
    replayer.run();
    inspector.finish();
    compare_tokens(s, content, references, replayer, counts);
    return counts;
  }
  VirtualClock clock;
  FixedHeadroom gate;
  for (int pool = 0; pool < max_pools; ++pool) gate.headroom[pool] = s.headroom;
  SchedulerOptions const scheduling{s.cap, s.token_budget, s.fence_lag};
  Scheduler scheduler(s.workload, cache, executor, clock, content, gate, scheduling, inspector);
  scheduler.run();
  inspector.finish();
  compare_tokens(s, content, references, scheduler, counts);
  return counts;
}

/// Builds the organization with `make(units)` and serves the scenario under its reclaim order.
template <class Make, class Tamper = Honest>
Counts verify_in(const Scenario& s, const VerifyModel& model,
                 const std::vector<Reference>& references, const Drive& drive, Make make,
                 Tamper tamper = {}) {
  CacheOptions options = cache_options(s);
  options.max_sequences = s.cap + static_cast<std::uint32_t>(s.workload.requests.size());
  return with_cache(make(s.units), options, s, [&](auto& cache) {
    return verify_with(s, model, cache, references, drive, tamper);
  });
}

Counts verify_coarse_page(const Scenario&, const VerifyModel&, const std::vector<Reference>&,
                          const Drive&);
Counts verify_recurrent_paged(const Scenario&, const VerifyModel&, const std::vector<Reference>&,
                              const Drive&);
Counts verify_conv_slab_packed(const Scenario&, const VerifyModel&, const std::vector<Reference>&,
                               const Drive&);
Counts verify_native_dual_pool(const Scenario&, const VerifyModel&, const std::vector<Reference>&,
                               const Drive&);

}  // namespace hybridstate::runtime::verify
