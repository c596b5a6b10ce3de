// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// The preset `best` against `paper` on the paper's workload, simulated (docs/policies.md).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <hybridstate/geometry/presets.hpp>

#include "falcon_spec.hpp"
#include "report/summary.hpp"
#include "scheduler/run.hpp"
#include "workload/paper.hpp"

namespace {

using namespace hybridstate;
using namespace hybridstate::runtime;

constexpr int seeds = 12;

struct Cell {
  Arm arm = Arm::s2;
  Units budget = 63;
  double rate = 3;
  double share = 1;
};
struct Means {
  double tokens_per_s = 1;  ///< geometric
  double preemptions = 0;
  double orphans = 0;  ///< most of the runs
};

Means serve(const Cell& cell, bool best) {
  RunSpec spec = falcon_spec(cell.arm);
  spec.cap = 109;
  spec.keep_timeline = false;
  spec.budget = nominal_budget(layout_of(spec), cell.budget);
  if (best) {
    spec.order = OrderPolicy::greedy_dual;
    spec.placement = {PlacementKind::junction, 1};
    spec.reuse_beyond_joint = true;
  }
  Means m;
  for (int i = 0; i < seeds; ++i) {
    PaperWorkloadOptions options;
    apply(LengthPreset::extension, options);
    options.rate = cell.rate;
    options.share = cell.share;
    options.variance_reduction = true;
    options.seed = 42000 + static_cast<std::uint64_t>(i);
    Workload const workload = make_paper_workload(options);
    RunResult const run = run_workload(spec, workload, BlockIds(workload, block_tokens_of(spec)));
    Summary const summary = summarize(run);
    REQUIRE(summary.completed == workload.requests.size());
    m.tokens_per_s *= std::pow(summary.output_rate.value(), 1.0 / seeds);
    m.preemptions += static_cast<double>(run.preemptions) / seeds;
    m.orphans = std::max(m.orphans, run.orphaned_fraction.value_or(0));
    CHECK(run.pricing.has_value() == (best && cell.arm < Arm::infinite));
  }
  return m;
}

}  // namespace

TEST_CASE("best loses to paper in no cell, orphans nothing and hardly ever preempts") {
  for (Arm const arm : {Arm::s0, Arm::s1, Arm::s2})
    for (Units const budget : {63U, 83U, 108U})
      for (double const rate : {0.8, 3.0, 4.5, 6.0})
        for (double const share : {0.0, 0.5, 1.0}) {
          Cell const cell{arm, budget, rate, share};
          Means const best = serve(cell, true);
          CAPTURE(arm_name(arm));
          CAPTURE(budget);
          CAPTURE(rate);
          CAPTURE(share);
          CHECK(best.tokens_per_s >= serve(cell, false).tokens_per_s);
          CHECK(best.orphans == 0);
          CHECK(best.preemptions <= 0.5);
        }
}

TEST_CASE("what best reaches of infinite memory on S2, in percent") {
  struct Aim {
    double rate;
    double least[3];  ///< b63, b83, b108
  };
  for (Aim const& aim : {Aim{3, {98, 99, 99}}, Aim{4.5, {79, 92.5, 99}}, Aim{6, {68, 82, 91}}}) {
    double const infinite = serve({Arm::infinite, 108, aim.rate, 1}, false).tokens_per_s;
    int i = 0;
    for (Units const budget : {63U, 83U, 108U}) {
      double const reached =
          100 * serve({Arm::s2, budget, aim.rate, 1}, true).tokens_per_s / infinite;
      MESSAGE("b" << budget << ", " << aim.rate << " requests/s: " << reached << " %");
      CHECK(reached >= aim.least[i++]);
    }
  }
}
