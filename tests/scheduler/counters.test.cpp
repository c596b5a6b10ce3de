// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// The paper's counters: M_X of a live set, slab dumps, failed allocations by what followed.
#include <doctest/doctest.h>

#include <cstdint>
#include <hybridstate/geometry/presets.hpp>
#include <numeric>
#include <vector>

#include "falcon_spec.hpp"
#include "report/summary.hpp"
#include "scheduler/run.hpp"
#include "support.hpp"
#include "workload/paper.hpp"

using namespace scheduler_test;

namespace {

constexpr Bytes page = 512 * 1024;
constexpr Bytes composite = 1'594'368;  // Falcon-H1-7B: SSM and convolution state of one layer

/// With times that can be added up by hand.
RunSpec simple_spec(Arm arm, Budget budget) {
  RunSpec spec = falcon_spec(arm);
  spec.budget = budget;
  spec.law = simple_law();
  return spec;
}

RunResult serve(const RunSpec& spec, const Workload& w) {
  return run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
}

RunResult serve_paper(Arm arm, double headroom = 0) {
  RunSpec spec = falcon_spec(arm);
  spec.budget = nominal_budget(layout_of(spec), 63);
  spec.headroom = headroom;
  PaperWorkloadOptions options;
  options.requests = 200;
  options.seed = 42000;
  return serve(spec, make_paper_workload(options));
}

/// Two steps: 1,025 tokens of prompt, then one decode.
Workload two_steps() { return workload({request(0, 1, 1025, 2)}); }

std::uint64_t total(const std::vector<std::uint64_t>& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
}
std::uint64_t weighted(const std::vector<std::uint64_t>& histogram) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i) sum += i * histogram[i];
  return sum;
}

}  // namespace

TEST_CASE("M_X of a live set by hand, the same under every organization on the 512-token grid") {
  // Step 1 leaves three blocks (1,025 tokens) and states at 512, 1,024 and 1,025; step 2 gives the
  // last of each back.
  Bytes const coarse =
      unit_bytes(OrganizationKind::coarse_page, layout_of(simple_spec(Arm::s0, {})), 0);
  std::vector<StoredBytes> const expected = {
      {6 * coarse, 15 * page, 13 * page, 65 * page / 32 + 3 * composite, 3 * page + 3 * composite},
      {4 * coarse, 10 * page, 9 * page, 2 * page + 2 * composite, 2 * page + 2 * composite}};
  for (Arm const arm : {Arm::s0, Arm::s1, Arm::s2, Arm::d0_m512}) {
    CAPTURE(arm_name(arm));
    RunResult const run = serve(simple_spec(arm, bytes_per_layer(40 * page)), two_steps());
    REQUIRE(run.timeline.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) CHECK(run.timeline[i].stored == expected[i]);
    CHECK(run.nominal_bytes == 40 * page);
    REQUIRE(run.stored.has_value());
    StoredStatistics const& s2 = (*run.stored)[2];
    CHECK(s2.bytes_mean == 11.0 * page);
    CHECK(s2.per_budget_mean == (40.0 / 9 + 40.0 / 13) / 2);
    CHECK(s2.per_budget_p10 == 40.0 / 13);
    CHECK(s2.per_budget_median == 40.0 / 13);
    CHECK(s2.per_budget_p90 == 40.0 / 9);
  }
}

TEST_CASE("M_X of D0's live set: its tokens in larger blocks, its states one for one") {
  // 65 units of 16 tokens and one state, since no boundary of 1,792 is crossed; then 64 units.
  RunResult const run = serve(simple_spec(Arm::d0, bytes_per_layer(40 * page)), two_steps());
  REQUIRE(run.timeline.size() == 2);
  Bytes const coarse =
      unit_bytes(OrganizationKind::coarse_page, layout_of(simple_spec(Arm::s0, {})), 0);
  CHECK(run.timeline[0].stored == StoredBytes{4 * coarse, 7 * page, 7 * page,
                                              65 * page / 32 + composite, 3 * page + composite});
  CHECK(run.timeline[1].stored == StoredBytes{2 * coarse, 2 * page, 2 * page, 2 * page, 2 * page});
}

TEST_CASE("each running request rounds its open block up for itself") {
  // Twice 1,025 tokens are 2 * 65 units of 16, and 2 * 3 blocks of 512.
  Workload const w = workload({request(0, 1, 1025, 2), request(0, 2, 1025, 2)});
  RunSpec spec = simple_spec(Arm::s2, bytes_per_layer(60 * page));
  spec.token_budget = 4096;
  CHECK(serve(spec, w).timeline[0].stored.value()[3] == 130 * page / 32 + 6 * composite);
  spec.arm = Arm::d0;
  CHECK(serve(spec, w).timeline[0].stored.value()[1] == 6 * page + 2 * 4 * page);
}

TEST_CASE("slab dumps by hand") {
  RunResult const run = serve(simple_spec(Arm::s2, bytes_per_layer(40 * page)), two_steps());
  REQUIRE(run.slabs.has_value());
  SlabStatistics const& s = *run.slabs;
  CHECK(s.live_histogram == std::vector<std::uint64_t>{0, 0, 1, 1});
  CHECK(s.pages_histogram == std::vector<std::uint64_t>{0, 2});
  REQUIRE(s.occupancy.size() > 3);
  CHECK(s.occupancy[2] == 1);
  CHECK(s.occupancy[3] == 1);
  CHECK(total(s.occupancy) == 2);
  CHECK(s.live_mean == 2.5);
  CHECK(s.live_p10 == 2);
  CHECK(s.live_p90 == 3);
  CHECK(s.pages_median == 1);
  CHECK(s.saved_bytes_mean == 1.5 * page);  // (3 - 1) and (2 - 1) pages
  CHECK(s.taken == 1);
  CHECK(s.pops == 0);
  CHECK(run.cross_invalidations == 0U);
  REQUIRE(run.timeline[0].slabs.has_value());
  CHECK(run.timeline[0].slabs->live == 3);
  CHECK(run.timeline[0].slabs->pages == 1);
  CHECK(run.timeline[0].slabs->saved == 2 * static_cast<std::int64_t>(page));
  // Queue lengths by time: one running for a step of 2,025 us, none after the one of 1,100 us.
  CHECK(run.running_mean == doctest::Approx(2025.0 / 3125));
  CHECK(run.waiting_mean == 0);
}

TEST_CASE("slab counters exist where slabs exist, M_X where memory is an organization's") {
  for (Arm const arm : {Arm::s0, Arm::s1, Arm::d0, Arm::d0_m512, Arm::infinite, Arm::byte_exact}) {
    CAPTURE(arm_name(arm));
    RunResult const run = serve(simple_spec(arm, bytes_per_layer(40 * page)), two_steps());
    CHECK_FALSE(run.slabs.has_value());
    CHECK_FALSE(run.cross_invalidations.has_value());
    CHECK_FALSE(run.timeline[0].slabs.has_value());
    bool const reference = arm == Arm::infinite || arm == Arm::byte_exact;
    CHECK(run.stored.has_value() != reference);
    CHECK(run.timeline[0].stored.has_value() != reference);
    CHECK(run.nominal_bytes.has_value() != reference);
  }
}

TEST_CASE("under load the counters add up, in every organization") {
  constexpr Arm arms[] = {Arm::s0, Arm::s1, Arm::s2, Arm::d0, Arm::d0_m512};
  std::uint64_t pops = 0;
  for (std::size_t own = 0; own < std::size(arms); ++own) {
    CAPTURE(arm_name(arms[own]));
    RunResult const run = serve_paper(arms[own]);
    // The live set under its own organization takes what it has.
    REQUIRE(run.stored.has_value());
    CHECK((*run.stored)[own].bytes_mean == run.allocated_bytes_mean);
    for (TimelineSample const& sample : run.timeline) {
      REQUIRE(sample.stored.has_value());
      REQUIRE((*sample.stored)[own] == sample.allocated);
      CHECK((*sample.stored)[2] <= (*sample.stored)[1]);  // S2 packs what S1 stores
    }
    for (StoredStatistics const& s : *run.stored) {
      CHECK(s.per_budget_p10.value() <= s.per_budget_median.value());
      CHECK(s.per_budget_median.value() <= s.per_budget_p90.value());
      CHECK(s.per_budget_mean.value() * s.bytes_mean >=  // the mean of ratios, by convexity
            static_cast<double>(run.nominal_bytes.value()) * (1 - 1e-12));
    }

    CHECK(total(run.pool_failures) ==
          run.failures_deferred + run.failures_preempted + run.failures_alone);
    CHECK(run.failures_preempted == run.preemptions);
    CHECK(run.failures_deferred == run.admission_waits);
    CHECK(run.failures_deferred > 0);
    CHECK(run.granted_none_free.size() == run.pool_failures.size());

    CHECK(run.running_median <= run.running_p90);
    CHECK(run.running_p90 <= run.running_p99);
    CHECK(run.waiting_p90 <= run.waiting_p99);
    CHECK(run.central.drifts() == true);  // the line grows through the window

    Summary const summary = summarize(run);
    CHECK(summary.recorded_tokens == run.c_once + summary.output_tokens);
    CHECK(summary.tokens_per_record.value() * static_cast<double>(run.steps) ==
          doctest::Approx(static_cast<double>(summary.recorded_tokens)));

    if (!run.slabs) continue;
    SlabStatistics const& s = *run.slabs;
    CHECK(total(s.live_histogram) == run.steps);
    CHECK(total(s.pages_histogram) == run.steps);
    CHECK(total(s.occupancy) == weighted(s.pages_histogram));
    CHECK(weighted(s.occupancy) == weighted(s.live_histogram));
    CHECK(s.occupancy[0] == 0);  // an empty slab is none
    CHECK(s.saved_bytes_mean == doctest::Approx((s.live_mean - s.pages_mean) * page));
    CHECK(s.pops <= s.taken);
    CHECK(s.pops <= run.cross_invalidations.value());
    pops += s.pops;
  }
  CHECK(pops > 0);
}

TEST_CASE("grants without anything free are reserves that needed nothing") {
  RunResult const run = serve_paper(Arm::d0);
  CHECK(run.granted_none_free[0] > 0);
  CHECK(run.granted_none_free[0] <= run.reserves_without_need);
}

TEST_CASE("the drift screen by hand") {
  auto const window = [](double running0, double running1, double waiting0, double waiting1) {
    CentralWindow w;
    w.running[0] = running0;
    w.running[1] = running1;
    w.waiting[0] = waiting0;
    w.waiting[1] = waiting1;
    return w;
  };
  CHECK(window(10, 10.9, 3, 3).drifts() == false);  // within a tenth of the larger
  CHECK(window(10, 11.2, 3, 3).drifts() == true);
  CHECK(window(10, 10, 12, 10).drifts() == true);   // either of them, either way
  CHECK(window(10, 10, 0, 0.5).drifts() == false);  // half a request is none
  CHECK(window(10, 10, 0, 0.6).drifts() == true);
  CentralWindow half = window(1, 1, 1, 1);
  half.waiting[1].reset();
  CHECK_FALSE(half.drifts().has_value());
}
