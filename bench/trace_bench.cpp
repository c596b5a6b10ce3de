// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// What a state-history trace costs the scheduler: whole runs of the paper's workload (300 requests,
// rate 3, cap 63) in virtual time, with and without, in pairs of alternating order.
//
//   cmake --preset release && cmake --build build/release --target bench_trace_bench
//   build/release/bench/trace_bench [PAIRS] [FOLDER]
//
// Thread time is the scheduler's alone; wall time also has the writer's, as far as it had no core
// of its own, and opening and closing the file. Ratios are medians over pairs. In virtual time a
// step costs microseconds, so these ratios are the largest that a trace can have; "of a step" sets
// the added time against the step times that the run simulated.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <string>
#include <vector>

#include "executor/simulated.hpp"
#include "scheduler/run.hpp"
#include "trace/reader.hpp"
#include "workload/paper.hpp"

namespace {

using namespace hybridstate;
using namespace hybridstate::runtime;

struct Cost {
  double thread = 0;  ///< seconds of the calling thread
  double wall = 0;
};

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Cost timed(const RunSpec& spec, const Workload& workload, const BlockIds& ids, RunResult& result) {
  auto const wall = std::chrono::steady_clock::now();
  double const thread = thread_seconds();
  result = run_workload(spec, workload, ids);
  return {thread_seconds() - thread,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count()};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(Arm arm, int pairs, const std::string& folder) {
  ModelPreset const& model = *find_preset("falcon-h1-7b");
  RunSpec spec;
  spec.arm = arm;
  spec.model = model.geometry;
  spec.split = {model.attention_ppm};
  spec.law = find_step_law("a100-40gb");
  spec.budget = nominal_budget(layout_of(spec), 63);
  Workload const workload = make_paper_workload({});
  BlockIds const ids(workload, block_tokens_of(spec));
  TraceSettings settings;
  settings.path = std::filesystem::path(folder) / "trace_bench.trace";
  RunSpec traced = spec;
  traced.trace = &settings;

  RunResult off, on;
  timed(spec, workload, ids, off);
  timed(traced, workload, ids, on);
  std::vector<double> thread, wall, added;
  for (int i = 0; i < pairs; ++i) {
    Cost without, with;
    if (i % 2 == 0) without = timed(spec, workload, ids, off);
    with = timed(traced, workload, ids, on);
    if (i % 2 != 0) without = timed(spec, workload, ids, off);
    thread.push_back(with.thread / without.thread);
    wall.push_back(with.wall / without.wall);
    added.push_back(with.thread - without.thread);
    if (!settings.problem.empty() || on.steps != off.steps || on.span_ns != off.span_ns) {
      std::fprintf(stderr, "the traced run differs, or its trace is not complete: %s\n",
                   settings.problem.c_str());
      std::exit(1);
    }
  }
  TraceCheck const check = read_trace(load_trace(settings.path), "trace");
  auto const records = static_cast<double>(check.records);
  double const extra = median(added);
  std::printf("%-8s %8.0f %8.0f %8.2f %10.3f %8.3f %10.1f %11.5f %%\n", arm_name(arm), records,
              static_cast<double>(check.bytes) / 1024, static_cast<double>(check.bytes) / records,
              median(thread), median(wall), 1e9 * extra / records,
              100 * extra / (1e-9 * static_cast<double>(on.span_ns)));
  std::filesystem::remove(settings.path);
}

}  // namespace

int main(int argc, char** argv) {
  int const pairs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
  std::string const folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path().string();
  std::printf("%d pairs\n%-8s %8s %8s %8s %10s %8s %10s %13s\n", pairs, "", "records", "KiB",
              "B/record", "thread x", "wall x", "ns/record", "of a step");
  for (Arm const arm : {Arm::s0, Arm::s1, Arm::s2, Arm::d0, Arm::d0_m512})
    measure(arm, pairs, folder);
}
