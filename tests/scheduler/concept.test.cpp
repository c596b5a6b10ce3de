// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The scheduler over a cache that is not the library's: it may use nothing but the concept.

#include <doctest/doctest.h>

#include <cstdint>
#include <hybridstate/cache/concept.hpp>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support.hpp"

using namespace scheduler_test;

namespace {

/// Memory without end and without reuse, or sequences that end at a limit; it checks the protocol.
class PlainCache {
 public:
  Tokens longest_sequence = 0xffffffffU;  ///< a reserve past it fails
  Tokens largest_chunk = 0xffffffffU;     ///< a larger reserve fails
  std::uint32_t optimism = 0xffffffffU;   ///< sequences that can reserve at once; all are admitted
  Refusal refuse_second = Refusal::none;  ///< of requester 1
  std::vector<BlockCopy> copies_of_next_step;

  // steps
  Step begin_step() noexcept { return ++step_; }
  void complete(Step step) noexcept { completed = step; }
  void invalidate_since(Step step) noexcept { invalidated = step; }
  std::uint64_t version() const noexcept { return step_; }

  // requests
  Entry enter(const Prompt&, std::uint64_t, std::int64_t) noexcept {
    ++entered;
    return {};
  }
  Match lookup(const Prompt&) const noexcept { return {}; }
  Shortage fits_alone(Tokens) const noexcept { return {}; }
  Admission admit(const Prompt& prompt, const AdmitRequest& request, const FixedHeadroom&,
                  const Match*) noexcept {
    Admission a;
    if (request.requester == 1 && refuse_second != Refusal::none) {
      a.refusal = refuse_second;
      return a;
    }
    a.sequence = {static_cast<std::int32_t>(sequences_.size())};
    sequences_.push_back({});
    prompts.push_back(prompt.length);
    ++running_;
    return a;
  }
  Admission resume(SequenceHandle seq, const Prompt& prompt, const AdmitRequest&,
                   const FixedHeadroom&, const Match*) noexcept {
    Sequence& s = at(seq);
    if (!s.preempted) ++misuses;
    s = {};
    prompts.push_back(prompt.length);
    ++running_;
    Admission a;
    a.sequence = seq;
    return a;
  }
  void preempt(SequenceHandle seq) noexcept {
    if (at(seq).reserved != 0) ++misuses;
    at(seq).preempted = true;
    at(seq).position = 0;
    --running_;
  }
  void release(SequenceHandle seq) noexcept {
    if (at(seq).released) ++misuses;
    at(seq).released = true;
    if (!at(seq).preempted) --running_;
  }
  Admission fork(SequenceHandle, std::uint64_t) noexcept { return {}; }

  // writes
  Shortage reserve(SequenceHandle seq, Tokens tokens) noexcept {
    Sequence& s = at(seq);
    if (s.reserved != 0 || s.released || s.preempted || tokens == 0) ++misuses;
    if (s.position + tokens > longest_sequence || tokens > largest_chunk || running_ > optimism)
      return {Refusal::wait_units, 0, {}, {}};
    s.reserved = tokens;
    return {};
  }
  void commit(SequenceHandle seq, const Committed& done, std::int64_t) noexcept {
    Sequence& s = at(seq);
    if (done.count != s.reserved) ++misuses;
    s.position += s.reserved;
    s.reserved = 0;
  }
  void abort(SequenceHandle) noexcept { ++misuses; }
  void retire(SequenceHandle) noexcept {}
  std::span<const BlockCopy> copies() const noexcept { return copies_of_next_step; }

  // facts
  Tokens block_tokens() const noexcept { return 16; }
  Tokens checkpoint_tokens() const noexcept { return 32; }
  std::uint32_t running() const noexcept { return running_; }
  Tokens position(SequenceHandle seq) const noexcept { return sequences_[seq.at()].position; }
  Tokens kv_valid_until(SequenceHandle) const noexcept { return 0; }
  std::span<const AttentionHandle> blocks(SequenceHandle) const noexcept { return {}; }
  AttentionPlace place(AttentionHandle a) const noexcept { return {a, 0}; }
  std::span<const HeldState> states(SequenceHandle) const noexcept { return {}; }
  StateHandle source(SequenceHandle) const noexcept { return {}; }
  std::uint32_t first_target(SequenceHandle) const noexcept { return 0; }
  std::uint32_t references(AttentionHandle) const noexcept { return 0; }
  std::uint32_t references(StateHandle) const noexcept { return 0; }
  Step published_step(StateHandle) const noexcept { return 0; }
  Usage usage() const noexcept { return {}; }
  PoolUnits available() const noexcept { return {}; }
  const CacheCounters& counters() const noexcept { return counters_; }
  void invalidate(const Prompt&, Tokens) noexcept {}
  void clear() noexcept {}

  std::uint32_t unreleased() const {
    std::uint32_t n = 0;
    for (Sequence const& s : sequences_) n += s.released ? 0 : 1;
    return n;
  }

  int misuses = 0;
  std::uint32_t entered = 0;
  Step completed = 0;
  Step invalidated = 0;
  std::vector<Tokens> prompts;  ///< lengths as admitted and resumed

 private:
  struct Sequence {
    Tokens position = 0;
    Tokens reserved = 0;
    bool preempted = false;
    bool released = false;
  };
  Sequence& at(SequenceHandle seq) noexcept { return sequences_[seq.at()]; }

  Step step_ = 0;
  std::uint32_t running_ = 0;
  std::vector<Sequence> sequences_;
  CacheCounters counters_;
};

static_assert(joint_cache<PlainCache>);

/// Fails at its nth step.
struct FailingExecutor {
  int steps_left = 0;
  std::int64_t run(const StepPlan&) {
    if (steps_left-- == 0) throw std::runtime_error("the device is gone");
    return 1'000'000;
  }
};

}  // namespace

TEST_CASE("any joint cache will do") {
  PlainCache cache;
  Served served(workload({request(0, 1, 40, 3), request(0, 1, 40, 2), request(9'000, 2, 5, 1)}),
                cache, {.cap = 8, .token_budget = 64});
  check_rows(served.run(), {{1, 2, 0, "0@0+40* 1@0+24", 1064},
                            {2, 2, 0, "0@40+1d 1@24+16*", 2180},
                            {3, 0, 0, "0@41+1d 1@40+1d", 3380},
                            {4, 0, 0, "2@0+5*", 10'005}});
  CHECK(cache.misuses == 0);
  CHECK(cache.entered == 3);
  CHECK(cache.unreleased() == 0);
  CHECK(cache.running() == 0);
  CHECK(cache.completed == 4);
}

TEST_CASE("a sequence that outgrows the pools alone ends with the reason capacity") {
  PlainCache cache;
  cache.longest_sequence = 20;
  Served served(workload({request(0, 1, 16, 10), request(0, 2, 16, 2)}), cache, {.cap = 1});
  check_rows(served.run(), {{1, 1, 1, "0@0+16*", 1016},
                            {2, 1, 1, "0@16+1d", 2116},
                            {3, 1, 1, "0@17+1d", 3216},
                            {4, 1, 1, "0@18+1d", 4316},
                            {5, 1, 1, "0@19+1d", 5416},
                            {6, 1, 0, "1@0+16*", 6432},
                            {7, 0, 0, "1@16+1d", 7532}});
  RequestRecord const& r = served.scheduler.record(0);
  CHECK(r.outcome == RequestOutcome::capacity);
  CHECK(r.reason == "the sequence outgrew the pools at 20 tokens with nothing else running");
  CHECK(r.output_tokens == 5);
  CHECK(r.finished_ns == 5'416'000);
  CHECK(served.scheduler.totals().capacity_ended == 1);
  CHECK(served.scheduler.record(1).outcome == RequestOutcome::completed);
  CHECK(cache.misuses == 0);
  CHECK(cache.unreleased() == 0);
}

TEST_CASE("a row of sequences that cannot even start ends one by one") {
  PlainCache cache;
  cache.longest_sequence = 8;
  std::vector<Request> all;
  for (std::uint64_t i = 0; i < 6; ++i) all.push_back(request(0, i, 16, 2));
  all.push_back(request(0, 9, 8, 1));
  Served served(workload(all), cache, {.cap = 4});
  check_rows(served.run(), {{1, 0, 0, "6@0+8*", 1008}});
  CHECK(served.scheduler.totals().capacity_ended == 6);
  CHECK(served.scheduler.record(0).first_token_ns == -1);
  CHECK(cache.misuses == 0);
  CHECK(cache.unreleased() == 0);
}

TEST_CASE("the cut of a lone reserve ends at the cache's own boundary") {
  PlainCache cache;
  cache.largest_chunk = 32;
  Served served(workload({request(0, 1, 80, 1)}), cache);
  check_rows(served.run(),
             {{1, 1, 0, "0@0+32", 1032}, {2, 1, 0, "0@32+32", 2064}, {3, 0, 0, "0@64+16*", 3080}});
  CHECK(cache.misuses == 0);
}

TEST_CASE(
    "preemption asks nothing else of a cache: the victim starts over with what it generated") {
  PlainCache cache;
  Served served(workload({request(0, 1, 8, 3), request(0, 2, 8, 3)}), cache);
  CHECK(served.scheduler.step());
  cache.optimism = 1;  // from now on there is room for one
  CHECK(served.scheduler.step());
  CHECK(served.scheduler.running() == 1);
  CHECK(served.scheduler.waiting() == 1);
  cache.optimism = 8;
  check_rows(served.run(), {{1, 2, 0, "0@0+8* 1@0+8*", 1016},
                            {2, 1, 1, "0@8+1d", 2116},
                            {3, 1, 0, "0@9+1d 1@0+9*", 3225},
                            {4, 0, 0, "1@9+1d", 4325}});
  CHECK(cache.prompts == std::vector<Tokens>{8, 8, 9});
  CHECK(served.scheduler.totals().recomputed_tokens == 8);
  CHECK(served.scheduler.record(1).preemptions == 1);
  CHECK(served.scheduler.record(1).computed_tokens == 8 + 9);
  CHECK(cache.misuses == 0);
  CHECK(cache.unreleased() == 0);
}

TEST_CASE("an admission that promised too much goes back to the front of the line") {
  PlainCache cache;
  cache.optimism = 1;
  Served served(workload({request(0, 1, 8, 2), request(0, 2, 8, 1), request(0, 3, 8, 1)}), cache);
  check_rows(served.run(), {{1, 1, 2, "0@0+8*", 1008},
                            {2, 0, 2, "0@8+1d", 2108},
                            {3, 0, 1, "1@0+8*", 3116},
                            {4, 0, 0, "2@0+8*", 4124}});
  CHECK(served.scheduler.totals().capacity_ended == 0);
  CHECK(cache.misuses == 0);
}

TEST_CASE("refusals for good say why") {
  for (auto [refusal, reason] :
       {std::pair{Refusal::too_long, "its 9 tokens are more than the cache's longest sequence"},
        {Refusal::key_bytes, "has more extra key bytes than the cache holds"}}) {
    PlainCache cache;
    cache.refuse_second = refusal;
    Served served(workload({request(0, 1, 8, 1), request(0, 2, 8, 1), request(0, 3, 8, 1)}), cache);
    check_rows(served.run(), {{1, 0, 0, "0@0+8* 2@0+8*", 1016}});
    CHECK(served.scheduler.record(1).outcome == RequestOutcome::refused);
    CHECK(served.scheduler.record(1).reason == reason);
  }
}

TEST_CASE("a cache that never gives way is reported, not waited for") {
  PlainCache cache;
  cache.refuse_second = Refusal::wait_units;
  Served served(workload({request(0, 1, 8, 1), request(0, 2, 8, 1)}), cache);
  CHECK_THROWS_WITH_AS(served.run(), "the scheduler stands still at request 1", std::logic_error);
}

TEST_CASE("copies of a step take the time of their bytes") {
  PlainCache cache;
  cache.copies_of_next_step = {{{}, {}, 5, 5 * 1024}, {{}, {}, 7, 7 * 1024}};
  Served served(workload({request(0, 1, 8, 1)}), cache);
  check_rows(served.run(), {{1, 0, 0, "0@0+8*", 1020}});
}

TEST_CASE("a step that fails on the device takes back what it published") {
  PlainCache cache;
  Served<PlainCache, FailingExecutor> served(workload({request(0, 1, 8, 5)}), cache,
                                             FailingExecutor{2});
  CHECK(served.scheduler.step());
  CHECK(served.scheduler.step());
  CHECK_THROWS_WITH_AS(served.scheduler.step(), "the device is gone", std::runtime_error);
  CHECK(cache.invalidated == 3);
  CHECK(served.scheduler.record(0).output_tokens == 2);
}

TEST_CASE("a real clock serves the same steps") {
  PlainCache cache;
  Workload const w = workload({request(0, 1, 8, 2), request(3'000, 2, 8, 1)});
  BlockIds const ids(w, 16);
  SimulatedExecutor executor(simple_law(), paged_scale);
  RealClock clock;
  TrustedContent content(w, ids);
  FixedHeadroom gate;
  Recorder recorder;
  Scheduler scheduler(w, cache, executor, clock, content, gate, SchedulerOptions{}, recorder);
  scheduler.run();
  CHECK(clock.now() >= 3'000'000);
  CHECK(scheduler.record(1).admitted_ns >= 3'000'000);
  CHECK(scheduler.record(0).finished_ns <= scheduler.record(1).admitted_ns);
  CHECK(recorder.rows.size() == 3);
}
