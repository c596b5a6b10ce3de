// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The public conversation trace, where it is present.

#include "workload/mooncake.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <hybridstate/geometry/presets.hpp>
#include <string>

#include "falcon_spec.hpp"
#include "report/summary.hpp"
#include "support.hpp"

using namespace scheduler_test;

#ifndef HYBRIDSTATE_MOONCAKE_TRACE
#define HYBRIDSTATE_MOONCAKE_TRACE ""
#endif

TEST_CASE("a slice of the Mooncake conversation trace under four organizations") {
  std::string const path = HYBRIDSTATE_MOONCAKE_TRACE;
  if (path.empty() || !std::filesystem::exists(path)) {
    MESSAGE("skipped: the Mooncake conversation trace is not here");
    return;
  }
  TraceOptions options;
  options.rate_scale = 0.25;
  options.max_context = parse_max_context("32768:drop");
  options.limit = 600;
  Workload const w = read_mooncake(path, options);
  REQUIRE(w.requests.size() == 600);

  RunSpec spec = falcon_spec();
  spec.cap = 256;
  for (Bytes const gib : {Bytes{20}, Bytes{6}})
    for (OrderPolicy order : {OrderPolicy::paper, OrderPolicy::path_safe, OrderPolicy::greedy_dual})
      for (Arm arm : organization_arms) {
        spec.arm = arm;
        spec.order = order;
        spec.budget = bytes_over_all_layers(gib << 30);
        CAPTURE(gib);
        CAPTURE(arm_name(arm));
        CAPTURE(policy_name(spec));
        RunResult const run = run_workload(spec, w, BlockIds(w, block_tokens_of(spec)));
        check_run(run, w);
        CHECK(run.capacity_ended == 0);
        for (RequestRecord const& r : run.requests) {
          Tokens const tokens = r.prompt_tokens + w.requests[r.index].output_tokens;
          CHECK(tokens <= 32768);
          CHECK((r.outcome == RequestOutcome::refused) == !never_fits(spec, tokens).empty());
        }
        if (gib == 20) CHECK(run.refused == 0);
        CHECK(summarize(run).output_rate.value() > 0);
      }
}
