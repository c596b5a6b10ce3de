// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <hybridstate/cache/concept.hpp>
#include <hybridstate/cache/types.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "executor/step_plan.hpp"
#include "report/result.hpp"
#include "scheduler/clock.hpp"
#include "scheduler/content.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime {

struct SchedulerOptions {
  std::uint32_t cap = 63;       ///< most running requests
  Tokens token_budget = 2048;   ///< tokens of one step
  std::uint32_t fence_lag = 0;  ///< steps after which the device is known to have finished one
  bool prefix_aware = false;    ///< of the first in line, who has the least to compute goes first
};

/// Iteration-level scheduling (serving model section 2): running requests in admission order, each
/// with up to the rest of the token budget; when one cannot get its memory, the last admitted is
/// preempted; then waiting requests, first come first served, a head that does not fit blocking the
/// line. Prefix-aware, the head is the one of the first 16 with the fewest tokens to compute,
/// unless the first was preempted or has waited for 20 s.
///
/// Written against the concepts alone: any joint cache, any executor, any clock. An observer has
/// after_step(scheduler, plan) and, if it wants to know, on_queued(scheduler, request, preemptions,
/// prompt) when a request joins the line, new or preempted, and on_step(scheduler, step).
template <joint_cache Cache, step_executor Executor, scheduler_clock Clock, request_content Content,
          admission_gate Gate, class Observer>
class Scheduler {
 public:
  Scheduler(const Workload& workload, Cache& cache, Executor& executor, Clock& clock,
            Content& content, Gate& gate, const SchedulerOptions& options, Observer& observer)
      : workload_(workload),
        cache_(cache),
        executor_(executor),
        clock_(clock),
        content_(content),
        gate_(gate),
        options_(options),
        observer_(observer),
        requests_(workload.requests.size()) {
    for (std::uint32_t i = 0; i < requests_.size(); ++i) {
      RequestRecord& r = requests_[i].record;
      r.index = i;
      r.arrival_ns = workload.requests[i].arrival_ns;
      r.prompt_tokens = workload.requests[i].prompt_tokens;
    }
  }

  /// Serves the whole workload.
  void run() {
    while (step()) {
    }
  }

  /// One step; false when every request is done.
  bool step() {
    receive();
    if (running_.empty() && waiting_.empty()) {
      if (next_arrival_ == requests_.size()) return false;
      clock_.wait_until(workload_.requests[next_arrival_].arrival_ns);
      receive();
    }
    plan_.clear(cache_.begin_step());
    if constexpr (requires { observer_.on_step(*this, plan_.step); })
      observer_.on_step(*this, plan_.step);
    finished_.clear();
    Tokens budget = options_.token_budget;
    bool const short_of_memory = schedule_running(budget);
    if (!short_of_memory) schedule_waiting(budget);
    execute();
    observer_.after_step(*this, plan_);
    return true;
  }

  // What observers and reports read.
  const Cache& cache() const noexcept { return cache_; }
  std::int64_t now() const { return clock_.now(); }
  /// How long the last step took.
  std::int64_t step_ns() const noexcept { return step_ns_; }
  std::uint32_t running() const noexcept { return static_cast<std::uint32_t>(running_.size()); }
  std::uint32_t waiting() const noexcept { return static_cast<std::uint32_t>(waiting_.size()); }
  /// Calls f(known tokens, tokens adopted at the first admission) for each running request.
  template <class F>
  void for_each_running(F&& f) const {
    for (std::uint32_t r : running_) f(requests_[r].known, requests_[r].record.adopted_tokens);
  }
  /// Calls f(sequence) for each running request.
  template <class F>
  void for_each_sequence(F&& f) const {
    for (std::uint32_t r : running_) f(requests_[r].sequence);
  }
  const RequestRecord& record(std::uint32_t request) const { return requests_[request].record; }
  std::vector<RequestRecord> take_records() {
    std::vector<RequestRecord> records;
    records.reserve(requests_.size());
    for (Live& live : requests_) records.push_back(std::move(live.record));
    return records;
  }

  struct Totals {
    std::uint64_t steps = 0;
    std::uint64_t submitted_tokens = 0;
    std::uint64_t recomputed_tokens = 0;
    std::uint64_t admissions = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t admission_waits = 0;
    std::uint64_t pending_waits = 0;
    std::uint64_t refused = 0;
    std::uint64_t capacity_ended = 0;
    std::uint64_t pool_failures[max_pools] = {0, 0};
    // The same by what was free when an allocation failed.
    std::uint64_t failures_some_free[max_pools] = {0, 0};  ///< need > free > 0
    std::uint64_t failures_none_free[max_pools] = {0, 0};  ///< free = 0
    std::uint64_t failures_headroom[max_pools] = {0, 0};   ///< need <= free: the gate said wait
    // The same by what followed; see RunResult.
    std::uint64_t failures_deferred = 0, failures_preempted = 0, failures_alone = 0;
    /// Granted reserves that found free = 0; of pools that exist.
    std::uint64_t granted_none_free[max_pools] = {0, 0};
  };
  const Totals& totals() const noexcept { return totals_; }

 private:
  static constexpr std::size_t looked_at = 16;
  static constexpr std::int64_t most_patience_ns = 20'000'000'000;

  struct Live {
    RequestRecord record;
    SequenceHandle sequence;
    Tokens known = 0;      ///< prompt plus generated tokens
    Tokens computed = 0;   ///< most tokens ever computed, over all admissions
    Tokens scheduled = 0;  ///< tokens of the current step
    Tokens junction = 0;   ///< where its prompt left a known path that others follow
    bool entered = false;
    bool admitted_once = false;
  };

  /// Whether a running request got its memory: no = it is out, waits = it keeps its place.
  enum class Placed : std::uint8_t { no, yes, waits };

  void receive() {
    std::int64_t const now = clock_.now();
    while (next_arrival_ < requests_.size() &&
           workload_.requests[next_arrival_].arrival_ns <= now) {
      Live& live = requests_[next_arrival_];
      live.known = live.record.prompt_tokens;
      waiting_.push_back(static_cast<std::uint32_t>(next_arrival_++));
      tell_queued(waiting_.back());
    }
  }

  void tell_queued([[maybe_unused]] std::uint32_t r) {
    if constexpr (requires { observer_.on_queued(*this, r, std::uint32_t{}, Prompt{}); })
      observer_.on_queued(*this, r, requests_[r].record.preemptions,
                          content_.known(r, requests_[r].known));
  }

  Tokens max_tokens(std::uint32_t r) const {
    return workload_.requests[r].prompt_tokens + workload_.requests[r].output_tokens;
  }
  Tokens remaining(const Live& live) const { return live.known - cache_.position(live.sequence); }

  /// True when a running request was preempted or waits for memory: such a step admits nobody.
  bool schedule_running(Tokens& budget) {
    bool short_of_memory = false;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      std::uint32_t const r = running_[i];
      Tokens n = std::min(remaining(requests_[r]), budget);
      Placed placed = Placed::no;
      while (placed == Placed::no) {
        Shortage const why = reserve(r, n);
        if (why) {
          placed = Placed::yes;
          break;
        }
        if (why.refusal == Refusal::wait_fence) {
          count_failure(why, totals_.failures_deferred);
          placed = wait_for_fence(r);  // what it lacks is given back already
          short_of_memory = true;
        } else if (running_.size() == 1) {
          count_failure(why, totals_.failures_alone);
          placed = reserve_alone(r, n);
          if (placed == Placed::waits) short_of_memory = true;
          if (placed == Placed::no) break;
        } else {
          count_failure(why, totals_.failures_preempted);
          bool const itself = running_.back() == r;
          preempt_last();
          short_of_memory = true;
          if (itself) break;
        }
      }
      if (placed != Placed::yes) continue;
      submit(r, n);
      budget -= n;
    }
    drop_ended();
    return short_of_memory;
  }

  /// The only running sequence did not get its chunk: up to its first boundary, or not at all.
  Placed reserve_alone(std::uint32_t r, Tokens& n) {
    Live& live = requests_[r];
    Tokens const grid = cache_.checkpoint_tokens();
    Tokens const at = cache_.position(live.sequence);
    Tokens const cut = std::min(n, grid - at % grid);
    if (cut < n) {
      Shortage const why = reserve(r, cut);
      n = cut;
      if (why) return Placed::yes;
      bool const fence = why.refusal == Refusal::wait_fence;
      count_failure(why, fence ? totals_.failures_deferred : totals_.failures_alone);
      if (fence) return wait_for_fence(r);
    }
    live.record.outcome = RequestOutcome::capacity;
    live.record.reason = "the sequence outgrew the pools at " + std::to_string(at) +
                         " tokens with nothing else running";
    ++totals_.capacity_ended;
    ended_.push_back(r);
    return Placed::no;
  }

  /// What the request holds needlessly passes its fence meanwhile.
  Placed wait_for_fence(std::uint32_t r) {
    cache_.retire(requests_[r].sequence);
    return Placed::waits;
  }

  void schedule_waiting(Tokens& budget) {
    while (!waiting_.empty() && budget > 0 && running_.size() < options_.cap) {
      std::uint32_t const r = head_of_line();
      Live& live = requests_[r];
      Prompt const prompt = content_.known(r, live.known);
      if (!live.entered) {
        Entry const entry = cache_.enter(prompt, r, clock_.now());
        if (entry.split) live.junction = entry.known;
        live.entered = true;
      }
      Match const match = cache_.lookup(prompt);
      AdmitRequest const request{r, max_tokens(r), live.junction};
      if constexpr (requires { gate_.set_time(clock_.now()); }) gate_.set_time(clock_.now());
      bool const resumes = static_cast<bool>(live.sequence);
      Admission const a = resumes ? cache_.resume(live.sequence, prompt, request, gate_, &match)
                                  : cache_.admit(prompt, request, gate_, &match);
      if (!a) {
        if (a.refusal == Refusal::never_fits || a.refusal == Refusal::too_long ||
            a.refusal == Refusal::key_bytes) {
          refuse(r, a);
          continue;
        }
        a.refusal == Refusal::wait_pending ? ++totals_.pending_waits : ++totals_.admission_waits;
        count_failure(a, totals_.failures_deferred);
        break;
      }
      leave_line(r);
      admit(r, a);
      Tokens n = std::min(remaining(live), budget);
      if (Shortage const why = reserve(r, n); !why) {
        if (why.refusal == Refusal::wait_fence) {
          count_failure(why, totals_.failures_deferred);
          wait_for_fence(r);
          break;
        }
        if (running_.size() > 1) {  // a cache whose admission test promises too much
          count_failure(why, totals_.failures_preempted);
          preempt_last();
          break;
        }
        // A waived admission: it runs alone.
        count_failure(why, totals_.failures_alone);
        Placed const placed = reserve_alone(r, n);
        if (placed == Placed::waits) break;
        if (placed == Placed::no) {
          drop_ended();
          continue;
        }
      }
      submit(r, n);
      budget -= n;
    }
  }

  std::uint32_t head_of_line() {
    std::uint32_t const first = waiting_.front();
    if (!options_.prefix_aware || requests_[first].sequence ||
        clock_.now() - requests_[first].record.arrival_ns > most_patience_ns)
      return first;
    std::uint32_t best = first;
    Tokens least = 0xffffffffU;
    for (std::size_t i = 0; i < std::min(waiting_.size(), looked_at); ++i) {
      Tokens const known = requests_[waiting_[i]].known;
      Tokens const left = known - cache_.lookup(content_.known(waiting_[i], known)).joint;
      if (left >= least) continue;
      least = left;
      best = waiting_[i];
    }
    return best;
  }
  void leave_line(std::uint32_t r) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), r));
  }

  void admit(std::uint32_t r, const Admission& a) {
    Live& live = requests_[r];
    live.sequence = a.sequence;
    running_.push_back(r);
    ++totals_.admissions;
    if (live.admitted_once) return;
    live.admitted_once = true;
    live.record.admitted_ns = clock_.now();
    live.record.adopted_tokens = a.match.joint;
    live.record.attention_tokens = a.match.attention;
    live.record.recurrent_tokens = a.match.recurrent;
    live.record.raw_match_tokens = a.match.raw;
  }

  void refuse(std::uint32_t r, const Admission& a) {
    RequestRecord& record = requests_[r].record;
    record.outcome = RequestOutcome::refused;
    if (a.pool >= 0)
      record.reason = "needs " + std::to_string(a.need[a.pool]) + " units of pool " +
                      std::to_string(a.pool) + ", which has " + std::to_string(a.available[a.pool]);
    else if (a.refusal == Refusal::key_bytes)
      record.reason = "has more extra key bytes than the cache holds";
    else
      record.reason = "its " + std::to_string(max_tokens(r)) +
                      " tokens are more than the cache's longest sequence";
    ++totals_.refused;
    leave_line(r);
  }

  /// The chunk's place is reserved: publishes it in scheduling order and adds it to the plan.
  void submit(std::uint32_t r, Tokens n) {
    Live& live = requests_[r];
    Tokens const begin = cache_.position(live.sequence);
    Tokens const end = begin + n;
    bool const generated = live.known > live.record.prompt_tokens;
    bool const decode = n == 1 && generated && begin == live.computed && end == live.known;
    cache_.commit(live.sequence, content_.computed(r, begin, end), clock_.now());
    plan_.chunks.push_back({live.sequence, r, begin, n, decode, end == live.known});
    if (decode) {
      ++plan_.decode_requests;
      plan_.decode_context_tokens += end;
    } else {
      plan_.prefill_tokens += n;
      live.record.computed_tokens += n;
    }
    totals_.submitted_tokens += n;
    if (live.computed > begin) totals_.recomputed_tokens += std::min(live.computed, end) - begin;
    live.computed = std::max(live.computed, end);
  }

  void preempt_last() {
    std::uint32_t const r = running_.back();
    running_.pop_back();
    cache_.preempt(requests_[r].sequence);
    waiting_.push_front(r);
    ++requests_[r].record.preemptions;
    ++totals_.preemptions;
    tell_queued(r);
  }

  void drop_ended() {
    for (std::uint32_t r : ended_) {
      running_.erase(std::find(running_.begin(), running_.end(), r));
      finish(r);
    }
    ended_.clear();
  }

  void execute() {
    if (plan_.chunks.empty()) {
      // Nothing could run: the head waits for a publication of this very step or for a fence, and
      // both are over with the step.
      cache_.complete(plan_.step);
      std::uint64_t const over = totals_.refused + totals_.capacity_ended;
      bool const idle = running_.empty() && waiting_.empty();
      empty_steps_ = idle || over != over_ ? 0 : empty_steps_ + 1;
      over_ = over;
      if (empty_steps_ > 2)
        throw std::logic_error(
            "the scheduler stands still at request " +
            std::to_string(running_.empty() ? waiting_.front() : running_.front()));
      return;
    }
    empty_steps_ = 0;
    for (BlockCopy const& c : cache_.copies()) plan_.copied_bytes += c.bytes;
    std::int64_t took = 0;
    try {
      took = executor_.run(plan_);
    } catch (...) {
      cache_.invalidate_since(plan_.step);
      throw;
    }
    clock_.advance(took);
    step_ns_ = took;
    if constexpr (requires { gate_.observe_step(took); }) gate_.observe_step(took);
    ++totals_.steps;
    std::int64_t const now = clock_.now();
    for (Chunk const& c : plan_.chunks) {
      if (!c.samples) continue;
      Live& live = requests_[c.request];
      ++live.known;
      ++live.record.output_tokens;
      if (live.record.output_tokens == 1) live.record.first_token_ns = now;
      if (live.record.output_tokens >= workload_.requests[c.request].output_tokens)
        finished_.push_back(c.request);
    }
    for (std::uint32_t r : finished_) {
      running_.erase(std::find(running_.begin(), running_.end(), r));
      requests_[r].record.finished_ns = now;
      finish(r);
    }
    if (plan_.step > options_.fence_lag) cache_.complete(plan_.step - options_.fence_lag);
  }

  void finish(std::uint32_t r) {
    Live& live = requests_[r];
    if (live.record.finished_ns < 0) live.record.finished_ns = clock_.now();
    cache_.release(live.sequence);
    live.sequence = {};
  }

  Shortage reserve(std::uint32_t r, Tokens n) {
    PoolUnits const free = cache_.available();
    Shortage const why = cache_.reserve(requests_[r].sequence, n);
    for (int pool = 0; why && pool < max_pools; ++pool)
      totals_.granted_none_free[pool] += free[pool] == 0 ? 1 : 0;
    return why;
  }

  /// Table E-10: a failed allocation by need and free, and by what follows.
  void count_failure(const Shortage& why, std::uint64_t& outcome) {
    if (why.pool < 0) return;
    ++outcome;
    ++totals_.pool_failures[why.pool];
    Units const free = why.available[why.pool];
    auto& by_free = free == 0                    ? totals_.failures_none_free
                    : why.need[why.pool] <= free ? totals_.failures_headroom
                                                 : totals_.failures_some_free;
    ++by_free[why.pool];
  }

  const Workload& workload_;
  Cache& cache_;
  Executor& executor_;
  Clock& clock_;
  Content& content_;
  Gate& gate_;
  SchedulerOptions options_;
  Observer& observer_;
  std::vector<Live> requests_;
  std::size_t next_arrival_ = 0;
  std::deque<std::uint32_t> waiting_;
  std::vector<std::uint32_t> running_;
  std::vector<std::uint32_t> finished_;
  std::vector<std::uint32_t> ended_;
  StepPlan plan_;
  Totals totals_;
  std::int64_t step_ns_ = 0;
  std::uint32_t empty_steps_ = 0;  ///< in a row, with somebody there and nobody leaving
  std::uint64_t over_ = 0;         ///< requests refused or ended at the last empty step
};

}  // namespace hybridstate::runtime
