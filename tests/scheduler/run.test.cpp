// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "scheduler/run.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <hybridstate/geometry/presets.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "falcon_spec.hpp"
#include "report/summary.hpp"
#include "support.hpp"
#include "workload/paper.hpp"

using namespace scheduler_test;

namespace {

RunSpec paper_spec(Arm arm, Units budget = 63) {
  RunSpec spec = falcon_spec(arm);
  spec.budget = nominal_budget(layout_of(spec), budget);
  spec.budget_text = "b" + std::to_string(budget);
  return spec;
}

RunResult serve_paper(const RunSpec& spec, std::uint32_t requests = 100,
                      std::uint64_t seed = 42000) {
  PaperWorkloadOptions options;
  options.requests = requests;
  options.seed = seed;
  Workload const w = make_paper_workload(options);
  return run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
}

/// The names of the fields in which two runs differ.
std::string differences(const RunResult& a, const RunResult& b) {
  std::string names;
  auto const field = [&](const char* name, bool equal) {
    if (!equal) names += std::string(names.empty() ? "" : ", ") + name;
  };
#define HYBRIDSTATE_SAME(name) field(#name, a.name == b.name)
  HYBRIDSTATE_SAME(organization);
  HYBRIDSTATE_SAME(policy);
  HYBRIDSTATE_SAME(executor);
  HYBRIDSTATE_SAME(device);
  HYBRIDSTATE_SAME(seed);
  HYBRIDSTATE_SAME(budget);
  HYBRIDSTATE_SAME(budget_bytes);
  HYBRIDSTATE_SAME(total_bytes);
  HYBRIDSTATE_SAME(pool_units);
  HYBRIDSTATE_SAME(pool_bytes);
  HYBRIDSTATE_SAME(block_tokens);
  HYBRIDSTATE_SAME(checkpoint_tokens);
  HYBRIDSTATE_SAME(cap);
  HYBRIDSTATE_SAME(span_ns);
  HYBRIDSTATE_SAME(steps);
  HYBRIDSTATE_SAME(c_once);
  HYBRIDSTATE_SAME(submitted_tokens);
  HYBRIDSTATE_SAME(recomputed_tokens);
  HYBRIDSTATE_SAME(admissions);
  HYBRIDSTATE_SAME(preemptions);
  HYBRIDSTATE_SAME(refused);
  HYBRIDSTATE_SAME(capacity_ended);
  HYBRIDSTATE_SAME(admission_waits);
  HYBRIDSTATE_SAME(pending_waits);
  HYBRIDSTATE_SAME(published_checkpoints);
  HYBRIDSTATE_SAME(reclaimed_units);
  HYBRIDSTATE_SAME(invalidated_checkpoints);
  HYBRIDSTATE_SAME(invalidated_attention);
  HYBRIDSTATE_SAME(cross_invalidations);
  HYBRIDSTATE_SAME(reserve_failures);
  HYBRIDSTATE_SAME(pool_failures);
  HYBRIDSTATE_SAME(failures_some_free);
  HYBRIDSTATE_SAME(failures_none_free);
  HYBRIDSTATE_SAME(failures_headroom);
  HYBRIDSTATE_SAME(slabs);
  HYBRIDSTATE_SAME(nominal_bytes);
  HYBRIDSTATE_SAME(stored);
  HYBRIDSTATE_SAME(granted_none_free);
  HYBRIDSTATE_SAME(failures_deferred);
  HYBRIDSTATE_SAME(failures_preempted);
  HYBRIDSTATE_SAME(failures_alone);
  HYBRIDSTATE_SAME(running_mean);
  HYBRIDSTATE_SAME(waiting_mean);
  HYBRIDSTATE_SAME(reserves_without_need);
  HYBRIDSTATE_SAME(initial_tokens);
  HYBRIDSTATE_SAME(resume_tokens);
  HYBRIDSTATE_SAME(normal_decode_tokens);
  HYBRIDSTATE_SAME(prefill_only);
  HYBRIDSTATE_SAME(decode_only);
  HYBRIDSTATE_SAME(mixed);
  HYBRIDSTATE_SAME(central);
  HYBRIDSTATE_SAME(eligible_boundaries);
  HYBRIDSTATE_SAME(retained_boundaries);
  HYBRIDSTATE_SAME(retained_yielded);
  HYBRIDSTATE_SAME(pins);
  HYBRIDSTATE_SAME(pins_over_budget);
  HYBRIDSTATE_SAME(pins_yielded);
  HYBRIDSTATE_SAME(allocated_bytes_mean);
  HYBRIDSTATE_SAME(payload_bytes_mean);
  HYBRIDSTATE_SAME(stranded_fraction);
  HYBRIDSTATE_SAME(running_median);
  HYBRIDSTATE_SAME(waiting_median);
#undef HYBRIDSTATE_SAME
  field("requests", a.requests.size() == b.requests.size());
  for (std::size_t i = 0; i < a.requests.size() && i < b.requests.size(); ++i) {
    RequestRecord const& x = a.requests[i];
    RequestRecord const& y = b.requests[i];
    field("requests[]",
          x.index == y.index && x.outcome == y.outcome && x.arrival_ns == y.arrival_ns &&
              x.admitted_ns == y.admitted_ns && x.first_token_ns == y.first_token_ns &&
              x.finished_ns == y.finished_ns && x.prompt_tokens == y.prompt_tokens &&
              x.output_tokens == y.output_tokens && x.adopted_tokens == y.adopted_tokens &&
              x.attention_tokens == y.attention_tokens &&
              x.recurrent_tokens == y.recurrent_tokens &&
              x.raw_match_tokens == y.raw_match_tokens && x.computed_tokens == y.computed_tokens &&
              x.preemptions == y.preemptions && x.reason == y.reason);
  }
  field("timeline", a.timeline.size() == b.timeline.size());
  for (std::size_t i = 0; i < a.timeline.size() && i < b.timeline.size(); ++i) {
    TimelineSample const& x = a.timeline[i];
    TimelineSample const& y = b.timeline[i];
    field("timeline[]",
          x.time_ns == y.time_ns && x.step == y.step && x.running == y.running &&
              x.waiting == y.waiting && x.attention_referenced == y.attention_referenced &&
              x.ssm_referenced == y.ssm_referenced && x.conv_referenced == y.conv_referenced &&
              x.cached == y.cached && x.keyless == y.keyless && x.fenced == y.fenced &&
              x.payload == y.payload && x.allocated == y.allocated && x.stored == y.stored);
  }
  return names;
}

constexpr Arm all_arms[] = {Arm::s0,      Arm::s1,       Arm::s2,        Arm::d0,
                            Arm::d0_m512, Arm::infinite, Arm::byte_exact};

}  // namespace

TEST_CASE("equal inputs give equal results, again and in two threads at once") {
  for (Arm arm : all_arms) {
    RunSpec const spec = paper_spec(arm);
    CAPTURE(arm_name(arm));
    RunResult const once = serve_paper(spec);
    std::array<RunResult, 2> both;
    {
      std::thread other([&] { both[1] = serve_paper(spec); });
      both[0] = serve_paper(spec);
      other.join();
    }
    CHECK(differences(once, both[0]).empty());
    CHECK(differences(once, both[1]).empty());
    CHECK_FALSE(differences(once, serve_paper(spec, 100, 42001)).empty());
  }
}

TEST_CASE("every arm serves the paper's workload and keeps its books") {
  PaperWorkloadOptions options;
  options.requests = 100;
  Workload const w = make_paper_workload(options);
  for (Arm arm : all_arms) {
    CAPTURE(arm_name(arm));
    RunSpec const spec = paper_spec(arm);
    RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
    check_run(run, w);
    CHECK(run.organization == arm_name(arm));
    CHECK(run.policy == "paper");
    CHECK(run.executor == "simulated");
    CHECK(run.device == "a100-40gb");
    CHECK(run.cap == 63);
    CHECK(run.refused == 0);
    CHECK(run.steps >= run.timeline.size());
    CHECK_FALSE(run.timeline.empty());
    CHECK(run.allocated_bytes_mean > run.payload_bytes_mean);
    CHECK(run.stranded_fraction.has_value() == (arm == Arm::d0 || arm == Arm::d0_m512));
    CHECK(run.pool_failures.size() == (arm == Arm::d0 || arm == Arm::d0_m512 ? 2 : 1));
    for (TimelineSample const& s : run.timeline) {
      Bytes const referenced = s.attention_referenced + s.ssm_referenced + s.conv_referenced;
      CHECK(s.allocated == referenced + s.cached + s.fenced);
      CHECK(s.payload <= s.allocated);
      if (!run.pool_units.empty()) {
        // The null page of each pool is nobody's.
        Bytes null_pages = 0;
        for (std::size_t p = 0; p < run.pool_units.size(); ++p)
          null_pages += run.pool_bytes[p] / run.pool_units[p];
        CHECK(s.allocated + s.keyless + null_pages == run.budget_bytes);
      }
    }
  }
}

TEST_CASE("units of a run are those of Table B-2") {
  CHECK(serve_paper(paper_spec(Arm::s0), 2).pool_units == std::vector<Units>{63});
  CHECK(serve_paper(paper_spec(Arm::s1), 2).pool_units == std::vector<Units>{193});
  CHECK(serve_paper(paper_spec(Arm::s2, 108), 2).pool_units == std::vector<Units>{331});
  CHECK(serve_paper(paper_spec(Arm::d0), 2).pool_units == std::vector<Units>{3256, 29});
}

TEST_CASE("infinite memory reclaims nothing and bounds the others") {
  RunResult const infinite = serve_paper(paper_spec(Arm::infinite), 300);
  CHECK(infinite.reclaimed_units == 0);
  CHECK(infinite.invalidated_checkpoints == 0);
  CHECK(infinite.invalidated_attention == 0);
  CHECK(infinite.preemptions == 0);
  CHECK(infinite.budget == "infinite");
  RunResult const bound = serve_paper(paper_spec(Arm::byte_exact), 300);
  CHECK(bound.reclaimed_units == 0);
  double const s2 = summarize(serve_paper(paper_spec(Arm::s2), 300)).output_rate.value();
  CHECK(summarize(bound).output_rate.value() > s2);
  CHECK(summarize(infinite).output_rate.value() >= summarize(bound).output_rate.value());
}

TEST_CASE("the timeline thins itself out") {
  Workload const w = workload({request(0, 1, 8, 10'000)});
  RunSpec const spec = paper_spec(Arm::s2, 63);
  RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
  CHECK(run.steps == 10'000);
  CHECK(run.timeline.size() < 4096);
  CHECK(run.timeline.size() >= 2048);
  for (std::size_t i = 1; i < run.timeline.size(); ++i)
    CHECK(run.timeline[i].step > run.timeline[i - 1].step);
  RunSpec without = spec;
  without.keep_timeline = false;
  CHECK(run_workload(without, w, BlockIds(w, block_tokens_of(spec))).timeline.empty());
}

TEST_CASE("medians are over steps, the lower one of two") {
  // Running after each step: 1, 1, 0; waiting: 1, 0, 0.
  Workload const w = workload({request(0, 1, 8, 2), request(0, 2, 8, 1)});
  RunSpec spec = paper_spec(Arm::s0);
  spec.cap = 1;
  RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
  CHECK(run.steps == 3);
  CHECK(run.running_median == 0);
  CHECK(run.waiting_median == 1);
}

TEST_CASE("an empty workload is a run without steps") {
  Workload const w = workload({});
  RunSpec const spec = paper_spec(Arm::s2);
  RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
  CHECK(run.steps == 0);
  CHECK(run.span_ns == 0);
  CHECK(run.requests.empty());
}

TEST_CASE("the span is from the first arrival to the last completion") {
  Workload const w = workload({request(1'000, 1, 8, 1), request(50'000, 2, 8, 2)});
  RunSpec spec = paper_spec(Arm::s1);
  spec.law = simple_law();
  RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
  CHECK(run.requests[0].finished_ns == 2'008'000);
  CHECK(run.requests[1].finished_ns == 52'108'000);
  CHECK(run.span_ns == 51'108'000);
}

TEST_CASE("S0 and D0 take 98 % of the step time of the paged layouts") {
  Workload const w = workload({request(0, 1, 1000, 1)});
  for (Arm arm : all_arms) {
    RunSpec spec = paper_spec(arm);
    spec.law = simple_law();
    RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
    bool const contiguous = arm == Arm::s0 || arm == Arm::d0 || arm == Arm::d0_m512;
    CHECK(run.span_ns == (contiguous ? 1'960'000 : 2'000'000));
  }
}

TEST_CASE("what never fits is said beforehand, in numbers, and refused in the run") {
  RunSpec spec = paper_spec(Arm::s0, 10);  // 10 pages, one of them the null page
  CHECK(never_fits(spec, 7 * 512).empty());
  CHECK(never_fits(spec, 7 * 512 + 1) == "3585 tokens need 10 units of S0's pool 0, which has 9");
  spec.null_units = 0;
  CHECK(never_fits(spec, 7 * 512 + 1).empty());
  CHECK(never_fits(paper_spec(Arm::infinite), 1'000'000).empty());
  spec.null_units = 1;
  Workload const w = workload({request(0, 1, 3584, 1), request(0, 2, 3583, 1)});
  RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
  CHECK(run.refused == 1);
  CHECK(run.requests[0].reason == "needs 10 units of pool 0, which has 9");
  CHECK(run.requests[1].outcome == RequestOutcome::completed);
}

TEST_CASE("a budget that leaves a pool empty is an error in one sentence") {
  RunSpec spec = paper_spec(Arm::d0);
  spec.budget = bytes_per_layer(1000);
  Workload const w = workload({request(0, 1, 8, 1)});
  CHECK_THROWS_AS(run_workload(spec, w, BlockIds(w, block_tokens_of(spec))), ConfigurationError);
  spec = paper_spec(Arm::s0, 1);  // the null page takes it all
  CHECK_THROWS_AS(run_workload(spec, w, BlockIds(w, block_tokens_of(spec))), ConfigurationError);
}

TEST_CASE("arms have names, and unknown ones are refused") {
  for (Arm arm : {Arm::s0, Arm::s1, Arm::s2, Arm::d0, Arm::d0_m512})
    CHECK(parse_arm(arm_name(arm)) == arm);
  CHECK(parse_arm("infinite") == Arm::infinite);
  CHECK(parse_arm("byte-exact") == Arm::byte_exact);
  CHECK_THROWS_WITH_AS(parse_arm("S3"),
                       "organization \"S3\" is unknown; use S0, S1, S2, D0, D0-M512, infinite or "
                       "byte-exact",
                       std::invalid_argument);
}

TEST_CASE("a policy's name says everything that is not the paper's") {
  RunSpec spec = paper_spec(Arm::s2);
  CHECK(policy_name(spec) == "paper");
  spec.order = OrderPolicy::path_safe;
  spec.reuse_beyond_joint = true;
  spec.placement = {PlacementKind::every_kth, 4};
  spec.slab_position = SlabPosition::back;
  spec.fences = true;
  spec.fence_lag = 2;
  CHECK(policy_name(spec) ==
        "path-safe + reuse beyond J + every 4 boundaries + slabs to back + fences (lag 2)");
  spec = paper_spec(Arm::s2);
  spec.order = OrderPolicy::greedy_dual;
  CHECK(policy_name(spec) == "greedy-dual");
  spec.placement = {PlacementKind::junction, 1};
  spec.prefix_aware = true;
  CHECK(policy_name(spec) == "greedy-dual + prefix-aware admission + junctions");
  spec.reuse_beyond_joint = true;
  CHECK(policy_name(spec) == "best + prefix-aware admission");
  spec.tail_tokens = tail_quarter_tokens;
  CHECK(policy_name(spec) == "best + prefix-aware admission + tails");
  spec.tail_tokens = 0;
  spec.score = {StateScore::marconi, 0.5};
  spec.priced = false;
  CHECK(policy_name(spec) ==
        "best + Marconi-like score (alpha = 0.5) + admission without a price + prefix-aware "
        "admission");
  spec.score = {StateScore::clairvoyant};
  spec.priced = true;
  CHECK(policy_name(spec) == "best + next uses known + prefix-aware admission");
  spec = paper_spec(Arm::s2);
  spec.order = OrderPolicy::path_safe;
  spec.branch_points.protect = true;
  CHECK(policy_name(spec) == "branch-point");
  spec.adaptive_headroom = true;
  CHECK(policy_name(spec) == "branch-point + adaptive headroom");
}

TEST_CASE("tails are counted, and their copies take time") {
  RunSpec spec = paper_spec(Arm::s2);
  // Two requests whose tails lie side by side and grow past 512 tokens.
  Workload const w = workload({request(0, 1, 500, 40), request(0, 2, 200, 400)});
  BlockIds const ids(w, block_tokens_of(spec));
  RunResult const without = run_workload(spec, w, ids);
  CHECK(!without.tails);
  spec.tail_tokens = tail_quarter_tokens;
  RunResult const with = run_workload(spec, w, ids);
  REQUIRE(with.tails);
  CHECK(with.tails->taken >= 1);
  CHECK(with.tails->slabs_mean > 0);
  CHECK(with.tails->slabs_mean <= with.tails->parts_mean);
  CHECK(with.tails->grown + with.tails->copies > 0);
  CHECK(with.steps == without.steps);
  // 1,549 ps for 1,024 bytes read and written, dropped to whole nanoseconds once a step.
  auto const copied = static_cast<std::int64_t>(with.tails->copied_bytes * 1'549 / 1024 / 1000);
  CHECK(with.span_ns - without.span_ns <= copied);
  CHECK(with.span_ns - without.span_ns >= copied - static_cast<std::int64_t>(with.tails->copies));
}

TEST_CASE("the paper's demand: 48 boundaries of eight contexts when shared, none when isolated") {
  for (bool const isolate : {false, true}) {
    CAPTURE(isolate);
    PaperWorkloadOptions options;
    options.seed = 42000;
    if (isolate) options.salts = Salting::isolated;
    Workload const w = make_paper_workload(options);
    for (Arm const arm : {Arm::s0, Arm::s1, Arm::s2, Arm::d0_m512}) {
      RunSpec spec = paper_spec(arm, 83);
      spec.retention.mode = RetentionMode::holders;
      RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
      REQUIRE(run.eligible_boundaries.has_value());
      CHECK(run.eligible_boundaries == (isolate ? 0U : 48U));
      CHECK((run.retained_boundaries.value() > 0) == !isolate);
      CHECK_FALSE(run.pins.has_value());  // a counter that does not apply is absent
      CHECK(summarize(run).completed == w.requests.size());
    }
  }
}

TEST_CASE("retention and pinning at every setting leave no request behind") {
  PaperWorkloadOptions options;
  options.requests = 60;
  options.rate = 30;
  Workload const w = make_paper_workload(options);
  std::uint64_t pins = 0;
  for (Arm const arm : organization_arms)
    for (RetentionMode const mode : {RetentionMode::producer, RetentionMode::holders})
      for (RetentionYield const yield : {RetentionYield::never, RetentionYield::before_preemption})
        for (std::uint32_t const k : {1U, 3U}) {
          RunSpec spec = paper_spec(arm, 12);
          spec.retention = {mode, k, yield};
          spec.pinning = {k, 0.5};
          RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
          CHECK(summarize(run).completed + run.refused + run.capacity_ended == w.requests.size());
          CHECK(run.capacity_ended == 0);
          pins += run.pins.value();
        }
  CHECK(pins > 0);
}

TEST_CASE("every scheduled token and every step is counted once, by purpose and by composition") {
  for (Arm const arm : organization_arms) {
    CAPTURE(arm_name(arm));
    RunSpec spec = paper_spec(arm);
    spec.headroom = arm == Arm::s2 ? 0.27 : 0;
    RunResult const run = serve_paper(spec, 300);
    CHECK(run.initial_tokens + run.resume_tokens + run.normal_decode_tokens ==
          run.submitted_tokens);
    CHECK(run.prefill_only.steps + run.decode_only.steps + run.mixed.steps == run.steps);
    CHECK(run.prefill_only.tokens + run.decode_only.tokens + run.mixed.tokens ==
          run.submitted_tokens);
    // Who is preempted inside its prompt computes the rest as a resumed one.
    CHECK(run.initial_tokens <= run.c_once);
    if (run.preemptions == 0) CHECK(run.initial_tokens == run.c_once);
    CHECK((run.resume_tokens > 0) == (run.preemptions > 0));
    std::uint64_t outputs = 0;
    for (RequestRecord const& r : run.requests) outputs += r.output_tokens;
    CHECK(run.normal_decode_tokens + run.preemptions >= outputs - run.requests.size());
    std::int64_t const busy = run.prefill_only.ns + run.decode_only.ns + run.mixed.ns;
    CHECK(busy > 0);
    CHECK(busy <= run.span_ns);
    for (std::size_t pool = 0; pool < run.pool_failures.size(); ++pool) {
      CHECK(run.failures_some_free[pool] + run.failures_none_free[pool] +
                run.failures_headroom[pool] ==
            run.pool_failures[pool]);
      if (spec.headroom == 0) CHECK(run.failures_headroom[pool] == 0);
    }
    if (spec.headroom > 0) CHECK(run.failures_headroom[0] > 0);
    CHECK(run.reserves_without_need > 0);
    CHECK(run.running_p10 <= run.running_median);
    CHECK(run.running_median <= run.running_p90);
    CHECK(run.waiting_p10 <= run.waiting_median);
    CHECK(run.waiting_median <= run.waiting_p90);
    // 3 requests/s are more than these pools serve: the line grows through the window.
    REQUIRE(run.central.waiting[1].has_value());
    CHECK(run.central.waiting[1].value() > run.central.waiting[0].value());
    CHECK(run.central.begin_ns == run.requests[60].arrival_ns);
    CHECK(run.central.end_ns == run.requests[240].arrival_ns);
  }
}
