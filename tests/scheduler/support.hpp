// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <hybridstate/cache/joint_cache.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <hybridstate/organization/coarse_page.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "executor/simulated.hpp"
#include "scheduler/content.hpp"
#include "scheduler/run.hpp"
#include "scheduler/scheduler.hpp"
#include "workload/block_ids.hpp"
#include "workload/request.hpp"

namespace scheduler_test {

using namespace hybridstate;
using namespace hybridstate::runtime;

/// Times that can be added up by hand: a step 1,000 us, a prefill token 1 us, a decoding request
/// 100 us, a KiB copied 1 us.
inline StepLaw simple_law() {
  return {"by hand", "fitted", 1'000'000'000, 1'000'000, 100'000'000, 0, 1'000'000};
}

/// Falcon-H1-7B's bytes on a grid of so many tokens, small enough for tables by hand.
inline StateLayout small_layout(Tokens grid = 8) {
  LayoutOptions options;
  options.block_tokens = options.checkpoint_tokens = grid;
  options.native_block_tokens = grid / 2;
  options.native_checkpoint_tokens = grid;
  return checked_layout(find_preset("falcon-h1-7b")->geometry, options).value();
}

/// A request whose prompt is the head of a stream; equal streams share their prefixes.
inline Request request(std::int64_t arrival_us, std::uint64_t stream, Tokens prompt,
                       Tokens output) {
  Request r;
  r.arrival_ns = arrival_us * 1000;
  r.prompt_tokens = prompt;
  r.output_tokens = output;
  r.content = {{stream, 0, prompt}};
  return r;
}

inline Workload workload(std::vector<Request> requests) {
  Workload w;
  w.name = "by hand";
  w.requests = std::move(requests);
  return w;
}

/// One step as the tables write it: requests running and waiting after it, its chunks in scheduling
/// order, the time at its end. A chunk is "request@begin+count", with "d" for a decode, and "*" for
/// prefill out of which an output token comes. A decode always gives one.
struct Row {
  Step step = 0;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::string chunks;
  std::int64_t end_us = 0;

  friend bool operator==(const Row&, const Row&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Row& r) {
    return out << "{" << r.step << ", " << r.running << ", " << r.waiting << ", \"" << r.chunks
               << "\", " << r.end_us << "}";
  }
};

using Rows = std::vector<Row>;

/// Writes the table of a run and checks what holds at every step.
class Recorder {
 public:
  template <class Scheduler>
  void after_step(const Scheduler& scheduler, const StepPlan& plan) {
    std::string text;
    std::uint64_t prefill = 0;
    std::uint64_t decoding = 0;
    for (Chunk const& c : plan.chunks) {
      if (!text.empty()) text += " ";
      text += std::to_string(c.request) + "@" + std::to_string(c.begin) + "+" +
              std::to_string(c.count) +
              (c.decode    ? "d"
               : c.samples ? "*"
                           : "");
      (c.decode ? decoding : prefill) += c.count;
      decode_tokens += c.decode ? c.count : 0;
      samples += c.samples ? 1 : 0;
      CHECK((!c.decode || c.samples));
    }
    CHECK(prefill == plan.prefill_tokens);
    CHECK(decoding == plan.decode_requests);
    rows.push_back(
        {plan.step, scheduler.running(), scheduler.waiting(), text, scheduler.now() / 1000});
    if constexpr (requires { scheduler.cache().check_invariants(); }) {
      if (std::string const broken = scheduler.cache().check_invariants(); !broken.empty())
        FAIL_CHECK("step " << plan.step << ": " << broken);
    }
  }

  Rows rows;
  std::uint64_t decode_tokens = 0;
  std::uint64_t samples = 0;
};

/// A workload, a cache and a scheduler over them.
template <class Cache, class Executor = SimulatedExecutor>
class Served {
 public:
  Served(Workload requests, Cache& cache, SchedulerOptions options = {}, FixedHeadroom gate = {})
      : Served(std::move(requests), cache, Executor(simple_law(), paged_scale), options, gate) {}
  Served(Workload requests, Cache& cache, Executor executor, SchedulerOptions options = {},
         FixedHeadroom gate = {})
      : workload_(std::move(requests)),
        ids_(workload_, cache.block_tokens()),
        executor_(std::move(executor)),
        content_(workload_, ids_),
        gate_(gate),
        scheduler(workload_, cache, executor_, clock_, content_, gate_, options, recorder) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  /// Serves everything and returns the table.
  const Rows& run() {
    scheduler.run();
    return recorder.rows;
  }

 private:
  Workload workload_;
  BlockIds ids_;
  Executor executor_;
  VirtualClock clock_;
  TrustedContent content_;
  FixedHeadroom gate_;

 public:
  Recorder recorder;
  Scheduler<Cache, Executor, VirtualClock, TrustedContent, FixedHeadroom, Recorder> scheduler;
};

inline CacheOptions cache_options(std::uint32_t sequences = 64) {
  CacheOptions options;
  options.max_sequences = sequences;
  options.identity = BlockIdentity::trusted_id;
  options.key_bytes = 0;
  return options;
}

/// S0 by default: an attention block and a state are one unit each.
template <class Organization = CoarsePage<>>
JointCache<Organization> small_cache(Units units, CacheOptions options = cache_options(),
                                     Tokens grid = 8) {
  return JointCache<Organization>(Organization(small_layout(grid), units), options);
}

/// Compares row by row, so that a failure names the step.
inline void check_rows(const Rows& rows, const Rows& expected) {
  for (std::size_t i = 0; i < std::min(rows.size(), expected.size()); ++i)
    CHECK(rows[i] == expected[i]);
  for (std::size_t i = expected.size(); i < rows.size(); ++i) FAIL_CHECK("more: " << rows[i]);
  for (std::size_t i = rows.size(); i < expected.size(); ++i)
    FAIL_CHECK("missing: " << expected[i]);
}

/// What holds of every run, whatever its policies.
inline void check_run(const RunResult& run, const Workload& requests) {
  REQUIRE(run.requests.size() == requests.requests.size());
  std::uint64_t completed = 0, refused = 0, ended = 0, preemptions = 0;
  std::uint64_t c_once = 0, computed = 0, output = 0, needed = 0, late = 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    RequestRecord const& r = run.requests[i];
    Request const& asked = requests.requests[i];
    CAPTURE(i);
    CHECK(r.index == i);
    CHECK(r.arrival_ns == asked.arrival_ns);
    CHECK(r.prompt_tokens == asked.prompt_tokens);
    preemptions += r.preemptions;
    computed += r.computed_tokens;
    output += r.output_tokens;
    if (r.outcome == RequestOutcome::refused) {
      ++refused;
      CHECK(r.admitted_ns == -1);
      CHECK(r.first_token_ns == -1);
      CHECK(r.output_tokens == 0);
      CHECK(r.computed_tokens == 0);
      CHECK(r.reason.find_first_of("0123456789") != std::string::npos);
      continue;
    }
    CHECK(r.arrival_ns <= r.admitted_ns);
    CHECK(r.admitted_ns <= r.finished_ns);
    CHECK(r.adopted_tokens < r.prompt_tokens);
    CHECK(r.adopted_tokens <= r.attention_tokens);
    CHECK(r.adopted_tokens <= r.recurrent_tokens);
    CHECK(r.attention_tokens <= r.raw_match_tokens);
    CHECK(r.adopted_tokens % run.checkpoint_tokens == 0);
    if (r.outcome == RequestOutcome::capacity) {
      ++ended;
      CHECK(!r.reason.empty());
      CHECK(r.output_tokens < asked.output_tokens);
      continue;
    }
    ++completed;
    CHECK(r.reason.empty());
    CHECK(r.output_tokens == asked.output_tokens);
    CHECK(r.admitted_ns < r.first_token_ns);
    CHECK(r.first_token_ns <= r.finished_ns);
    CHECK((r.output_tokens > 1) == (r.first_token_ns < r.finished_ns));
    // A preempted request may find at its return what another computed meanwhile.
    if (r.preemptions == 0) CHECK(r.computed_tokens == r.prompt_tokens - r.adopted_tokens);
    if (r.preemptions > 0) ++late;
    c_once += r.prompt_tokens - r.adopted_tokens;
    needed += r.prompt_tokens - r.adopted_tokens + r.output_tokens - 1;
    last = std::max(last, r.finished_ns);
  }
  CHECK(completed + refused + ended == requests.requests.size());
  CHECK(run.refused == refused);
  CHECK(run.capacity_ended == ended);
  CHECK(run.preemptions == preemptions);
  CHECK(run.admissions == completed + ended + preemptions);
  CHECK(run.c_once == c_once);
  CHECK(run.submitted_tokens >= computed);
  CHECK(run.recomputed_tokens <= run.submitted_tokens);
  if (late == 0 && ended == 0) {
    CHECK(run.submitted_tokens == needed);
    CHECK(run.submitted_tokens - computed == output - completed);  // decode inputs
    CHECK(run.recomputed_tokens == 0);
  }
  if (completed > 0) CHECK(run.span_ns <= last);
}

}  // namespace scheduler_test
