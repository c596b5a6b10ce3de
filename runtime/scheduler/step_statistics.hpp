// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor/step_plan.hpp"
#include "report/result.hpp"
#include "scheduler/live_storage.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime {

/// Occupancy and queue lengths over the steps of a run. Samples thin themselves out: past the limit
/// every other one goes and the stride doubles.
class StepStatistics {
 public:
  /// `storage`: absent for reference rows, whose memory is nobody's.
  StepStatistics(bool keep_timeline, const Workload& workload,
                 std::optional<LiveStorage> storage = {})
      : keep_timeline_(keep_timeline), central_(central_window(workload)), storage_(storage) {}

  template <class Scheduler>
  void after_step(const Scheduler& scheduler, const StepPlan& plan) {
    if (plan.chunks.empty()) return;
    auto const& cache = scheduler.cache();
    Usage const usage = cache.usage();
    count(running_, scheduler.running());
    count(waiting_, scheduler.waiting());
    ++steps_;
    add_work(scheduler, plan);
    add_central(scheduler);
    tail_slabs_ += cache.tails().slabs();
    tail_parts_ += cache.tails().used_parts();
    allocated_ += static_cast<double>(usage.allocated);
    payload_ += static_cast<double>(usage.attention_payload + usage.state_payload);
    if constexpr (std::decay_t<decltype(cache)>::pools == 2) add_stranded(cache, usage);
    std::optional<StoredBytes> stored;
    std::optional<SlabSample> slabs;
    if (storage_) {
      stored = (*storage_)(scheduler, usage);
      for (std::size_t i = 0; i < stored->size(); ++i) stored_[i].push_back((*stored)[i]);
      if (auto const* const now = slabs_of(cache.organization()))
        slabs = add_slabs(*now, *storage_);
    }
    if (keep_timeline_ && steps_ % stride_ == 0) sample(scheduler, plan, usage, stored, slabs);
    if (steps_ % orphan_stride == 0) {
      CachedCheckpoints const checkpoints = cache.cached_checkpoints();
      cached_ += checkpoints.all;
      orphaned_ += checkpoints.orphaned;
    }
  }

  /// The means over steps; what the cache counts is the caller's.
  TailStatistics tails() const {
    TailStatistics t;
    auto const steps = static_cast<double>(std::max<std::uint64_t>(steps_, 1));
    t.slabs_mean = static_cast<double>(tail_slabs_) / steps;
    t.parts_mean = static_cast<double>(tail_parts_) / steps;
    return t;
  }

  void finish(RunResult& result) {
    if (steps_ == 0) return;
    result.running_median = quantile(running_, 50);
    result.waiting_median = quantile(waiting_, 50);
    result.running_p10 = quantile(running_, 10);
    result.running_p90 = quantile(running_, 90);
    result.waiting_p10 = quantile(waiting_, 10);
    result.waiting_p90 = quantile(waiting_, 90);
    result.running_p99 = quantile(running_, 99);
    result.waiting_p99 = quantile(waiting_, 99);
    if (auto const ns = static_cast<double>(prefill_only_.ns + decode_only_.ns + mixed_.ns);
        ns > 0) {
      result.running_mean = running_ns_ / ns;
      result.waiting_mean = waiting_ns_ / ns;
    }
    result.prefill_only = prefill_only_;
    result.decode_only = decode_only_;
    result.mixed = mixed_;
    result.initial_tokens = initial_;
    result.resume_tokens = resume_;
    result.normal_decode_tokens = decode_;
    result.central = central_;
    for (int half = 0; half < 2; ++half) {
      if (weight_[half] == 0) continue;
      result.central.running[half] = running_sum_[half] / weight_[half];
      result.central.waiting[half] = waiting_sum_[half] / weight_[half];
    }
    result.allocated_bytes_mean = allocated_ / static_cast<double>(steps_);
    result.payload_bytes_mean = payload_ / static_cast<double>(steps_);
    if (configured_ > 0) result.stranded_fraction = stranded_ / configured_;
    if (storage_) finish_stored(*storage_, result);
    if (slab_steps_) finish_slabs(*slab_steps_, result);
    if (cached_ > 0)
      result.orphaned_fraction = static_cast<double>(orphaned_) / static_cast<double>(cached_);
    result.timeline = std::move(timeline_);
  }

 private:
  static constexpr std::size_t most_samples = 4096;
  static constexpr std::uint64_t orphan_stride =
      64;  ///< steps from one look at all states to the next

  static void count(std::vector<std::uint64_t>& histogram, std::uint32_t value) {
    if (histogram.size() <= value) histogram.resize(std::size_t{value} + 1);
    ++histogram[value];
  }
  /// The lowest value that at least `percent` of the steps do not exceed.
  std::uint32_t quantile(const std::vector<std::uint64_t>& histogram, std::uint64_t percent) const {
    std::uint64_t below = 0;
    std::uint32_t value = 0;
    while ((below += histogram[value]) * 100 < steps_ * percent) ++value;
    return value;
  }

  /// Appendix C.3: scheduled tokens by what they are for, and steps by what they contain.
  template <class Scheduler>
  void add_work(const Scheduler& scheduler, const StepPlan& plan) {
    bool prefills = false;
    bool decodes = false;
    std::uint64_t tokens = 0;
    for (Chunk const& c : plan.chunks) {
      tokens += c.count;
      if (c.decode)
        decode_ += c.count;
      else
        (scheduler.record(c.request).preemptions > 0 ? resume_ : initial_) += c.count;
      (c.decode ? decodes : prefills) = true;
    }
    PhaseWork& phase = prefills && decodes ? mixed_ : prefills ? prefill_only_ : decode_only_;
    ++phase.steps;
    phase.tokens += tokens;
    phase.ns += scheduler.step_ns();
    auto const ns = static_cast<double>(scheduler.step_ns());
    running_ns_ += ns * scheduler.running();
    waiting_ns_ += ns * scheduler.waiting();
  }

  /// The 20th to the 80th percentile of the arrivals (Appendix B.4), by nearest rank.
  static CentralWindow central_window(const Workload& workload) {
    CentralWindow window;
    std::size_t const n = workload.requests.size();
    if (n == 0) return window;
    window.begin_ns = workload.requests[n * 20 / 100].arrival_ns;
    window.end_ns = workload.requests[std::min(n - 1, n * 80 / 100)].arrival_ns;
    return window;
  }
  /// Queue lengths over time inside the window, its two halves apart.
  template <class Scheduler>
  void add_central(const Scheduler& scheduler) {
    std::int64_t const middle = central_.begin_ns + (central_.end_ns - central_.begin_ns) / 2;
    std::int64_t const edges[3] = {central_.begin_ns, middle, central_.end_ns};
    std::int64_t const end = scheduler.now();
    for (int half = 0; half < 2; ++half) {
      std::int64_t const inside =
          std::min(end, edges[half + 1]) - std::max(end - scheduler.step_ns(), edges[half]);
      if (inside <= 0) continue;
      auto const w = static_cast<double>(inside);
      weight_[half] += w;
      running_sum_[half] += w * scheduler.running();
      waiting_sum_[half] += w * scheduler.waiting();
    }
  }

  /// Appendix B.4: free bytes of one pool while the other is exhausted, over configured bytes.
  template <class Cache>
  void add_stranded(const Cache& cache, const Usage& usage) {
    for (int pool = 0; pool < 2; ++pool) {
      auto const bytes = static_cast<double>(cache.organization().unit_bytes(pool));
      PoolUsage const& mine = usage.pool[pool];
      PoolUsage const& other = usage.pool[1 - pool];
      configured_ += bytes * mine.capacity;
      if (other.keyless + other.cached == 0) stranded_ += bytes * (mine.keyless + mine.cached);
    }
  }

  /// One dump of the slab pages: O(slots of a slab).
  template <class Slabs>
  SlabSample add_slabs(const Slabs& now, const LiveStorage& storage) {
    SlabStatistics& s = slab_steps_ ? *slab_steps_ : slab_steps_.emplace();
    SlabSample const dump{now.used_slots(), now.slabs(),
                          compare_conv(storage.layout(), now.used_slots(), now.slabs()).saved};
    count(s.live_histogram, dump.live);
    count(s.pages_histogram, dump.pages);
    s.occupancy.resize(now.slots() + 1);
    for (std::uint32_t used = 1; used <= now.slots(); ++used)
      s.occupancy[used] += now.slabs_with(used);
    s.live_mean += dump.live;
    s.pages_mean += dump.pages;
    s.saved_bytes_mean += static_cast<double>(dump.saved);
    return dump;
  }
  void finish_slabs(const SlabStatistics& sums, RunResult& result) {
    SlabStatistics& s = result.slabs.emplace(sums);
    s.live_p10 = quantile(s.live_histogram, 10);
    s.live_median = quantile(s.live_histogram, 50);
    s.live_p90 = quantile(s.live_histogram, 90);
    s.pages_p10 = quantile(s.pages_histogram, 10);
    s.pages_median = quantile(s.pages_histogram, 50);
    s.pages_p90 = quantile(s.pages_histogram, 90);
    for (double* sum : {&s.live_mean, &s.pages_mean, &s.saved_bytes_mean})
      *sum /= static_cast<double>(steps_);
  }
  void finish_stored(const LiveStorage& storage, RunResult& result) {
    auto const budget = static_cast<double>(storage.budget());
    result.nominal_bytes = storage.budget();
    auto& statistics = result.stored.emplace();
    for (std::size_t i = 0; i < stored_.size(); ++i) {
      std::vector<Bytes>& bytes = stored_[i];
      StoredStatistics& s = statistics[i];
      std::sort(bytes.rbegin(), bytes.rend());  // B / M_X ascends
      double ratios = 0;
      for (Bytes const m : bytes) {
        s.bytes_mean += static_cast<double>(m);
        if (m > 0) ratios += budget / static_cast<double>(m);
      }
      s.bytes_mean /= static_cast<double>(steps_);
      auto const filled =
          static_cast<std::size_t>(std::find(bytes.begin(), bytes.end(), Bytes{0}) - bytes.begin());
      if (filled == 0) continue;
      auto const at = [&](std::size_t percent) {
        return budget /
               static_cast<double>(bytes[ceil_div<std::size_t>(filled * percent, 100) - 1]);
      };
      s.per_budget_mean = ratios / static_cast<double>(filled);
      s.per_budget_p10 = at(10);
      s.per_budget_median = at(50);
      s.per_budget_p90 = at(90);
    }
  }

  template <class Scheduler>
  void sample(const Scheduler& scheduler, const StepPlan& plan, const Usage& usage,
              const std::optional<StoredBytes>& stored, const std::optional<SlabSample>& slabs) {
    TimelineSample s;
    s.time_ns = scheduler.now();
    s.step = plan.step;
    s.running = scheduler.running();
    s.waiting = scheduler.waiting();
    auto const& organization = scheduler.cache().organization();
    for (int pool = 0; pool < std::decay_t<decltype(organization)>::pools; ++pool) {
      Bytes const bytes = organization.unit_bytes(pool);
      PoolUsage const& p = usage.pool[pool];
      s.attention_referenced += bytes * p.attention_referenced;
      s.ssm_referenced += bytes * p.ssm_referenced;
      s.conv_referenced += bytes * p.conv_referenced;
      s.cached += bytes * p.cached;
      s.keyless += bytes * p.keyless;
      s.fenced += bytes * p.fenced;
    }
    s.payload = usage.attention_payload + usage.state_payload;
    s.allocated = usage.allocated;
    s.stored = stored;
    s.slabs = slabs;
    timeline_.push_back(s);
    if (timeline_.size() < most_samples) return;
    for (std::size_t i = 0; 2 * i < timeline_.size(); ++i) timeline_[i] = timeline_[2 * i];
    timeline_.resize(timeline_.size() / 2);
    stride_ *= 2;
  }

  bool keep_timeline_;
  std::uint64_t steps_ = 0;
  std::uint64_t stride_ = 1;
  std::vector<std::uint64_t> running_;
  std::vector<std::uint64_t> waiting_;
  PhaseWork prefill_only_, decode_only_, mixed_;
  std::uint64_t initial_ = 0, resume_ = 0, decode_ = 0;
  CentralWindow central_;
  std::optional<LiveStorage> storage_;
  std::array<std::vector<Bytes>, std::size(stored_organizations)> stored_;  ///< per step
  std::optional<SlabStatistics> slab_steps_;  ///< sums, until finish_slabs()
  double running_ns_ = 0;
  double waiting_ns_ = 0;
  double weight_[2] = {0, 0};
  double running_sum_[2] = {0, 0};
  double waiting_sum_[2] = {0, 0};
  std::uint64_t tail_slabs_ = 0, tail_parts_ = 0;  ///< over the steps
  double allocated_ = 0;
  double payload_ = 0;
  double stranded_ = 0;
  double configured_ = 0;
  std::uint64_t cached_ = 0, orphaned_ = 0;  ///< checkpoints, over the looks
  std::vector<TimelineSample> timeline_;
};

}  // namespace hybridstate::runtime
