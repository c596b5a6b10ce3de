// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// A whole run of the paper's workload (300 requests, b63, rate 3, cap 63) in virtual time, per
// organization: workload and block ids are made beforehand, one iteration is run_workload().
//
//   cmake --preset release && cmake --build build/release --target bench_run_bench
//   build/release/bench/run_bench
//
// best_ms is the processor time of the fastest run (target < 25 ms). token_ns is its time per
// generated token: what the scheduler, the cache and the simulated executor cost together for each
// decode token, prefill included. Every run must end with the same number of steps.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <string>

#include "executor/simulated.hpp"
#include "scheduler/run.hpp"
#include "workload/paper.hpp"

namespace {

using namespace hybridstate;
using namespace hybridstate::runtime;

void paper_run(benchmark::State& state, Arm arm, OrderPolicy order) {
  RunSpec spec;
  const ModelPreset& model = *find_preset("falcon-h1-7b");
  spec.arm = arm;
  spec.model = model.geometry;
  spec.split = {model.attention_ppm};
  spec.law = find_step_law("a100-40gb");
  spec.budget = nominal_budget(layout_of(spec), 63);
  spec.order = order;
  Workload const workload = make_paper_workload({});
  BlockIds const ids(workload, block_tokens_of(spec));

  std::uint64_t steps = 0;
  std::uint64_t tokens = 0;
  double best = 1e9;
  for (auto _ : state) {
    std::clock_t const start = std::clock();
    RunResult const run = run_workload(spec, workload, ids);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    if (steps == 0) {
      steps = run.steps;
      for (RequestRecord const& r : run.requests) tokens += r.output_tokens;
    }
    if (run.steps != steps || tokens == 0) {
      std::fprintf(stderr, "two runs of one workload differ\n");
      std::exit(1);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tokens));
  state.counters["best_ms"] = best * 1e3;
  state.counters["token_ns"] = best * 1e9 / static_cast<double>(tokens);
  state.counters["step_ns"] = best * 1e9 / static_cast<double>(steps);
}

void register_all() {
  auto const add = [](const std::string& name, Arm arm, OrderPolicy order) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { paper_run(state, arm, order); })
        ->Unit(benchmark::kMillisecond)
        ->MinTime(1);
  };
  for (Arm arm : organization_arms)
    add(std::string("paper_run/") + arm_name(arm), arm, OrderPolicy::paper);
  add("paper_run/S2/path-safe", Arm::s2, OrderPolicy::path_safe);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
