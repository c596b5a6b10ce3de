// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Traces of whole runs: the replay finds what the cache adopted, and a trace changes nothing.

#include <fmt/format.h>

#include <cstdlib>
#include <hybridstate/geometry/presets.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/process.hpp"
#include "falcon_spec.hpp"
#include "math/deterministic.hpp"
#include "report/json.hpp"
#include "scheduler/run.hpp"
#include "support.hpp"
#include "trace/export.hpp"
#include "workload/paper.hpp"
#include "workload/support.hpp"

using namespace trace_test;

namespace {

constexpr Arm traced_arms[] = {Arm::s0, Arm::s1, Arm::s2, Arm::d0, Arm::d0_m512};

RunSpec spec_of(Arm arm, Units nominal) {
  RunSpec spec = falcon_spec(arm);
  spec.budget = nominal_budget(layout_of(spec), nominal);
  return spec;
}

Workload some_requests(std::uint32_t count) {
  PaperWorkloadOptions options;
  options.requests = count;
  return make_paper_workload(options);
}

std::string json_of(RunResult result) {
  Comparison comparison;
  comparison.runs.push_back(std::move(result));
  return json_text(comparison);
}

/// The smallest nominal budget whose pools can hold the longest request, alone.
void smallest_budget(RunSpec& spec, const Workload& workload) {
  Tokens longest = 0;
  for (Request const& r : workload.requests)
    longest = std::max(longest, r.prompt_tokens + r.output_tokens);
  for (Units number = 1;; ++number) {
    spec.budget = nominal_budget(layout_of(spec), number);
    if (!plan_budget(kind_of(spec.arm), layout_of(spec), spec.budget, spec.split)) continue;
    if (never_fits(spec, longest).empty()) return;
  }
}

struct Traced {
  std::string json;
  TraceHeader header;
  Analysis analysis;
  RunResult result;
};

Traced traced(RunSpec spec, const Workload& workload, const BlockIds& ids) {
  workload_test::TemporaryFolder const folder;
  TraceSettings settings;
  settings.path = folder.path() + "/t.trace";
  spec.trace = &settings;
  Traced out;
  out.result = run_workload(spec, workload, ids);
  out.json = json_of(out.result);
  CHECK(settings.problem == "");
  auto const bytes = load_trace(settings.path);
  StateHistoryAnalyzer analyzer(block_tokens_of(spec), out.result.checkpoint_tokens);
  TraceCheck const check = read_trace(bytes, "t", [&](const TraceRecord& r) { analyzer.add(r); });
  CHECK(check.problem == "");
  out.header = check.header;
  CHECK(check.header.block_tokens == out.result.block_tokens);
  CHECK(check.header.organization == out.result.organization);
  out.analysis = analyzer.finish();
  return out;
}

/// The trace of a run against the run: everything that both know.
void compare(const Traced& t) {
  Analysis const& a = t.analysis;
  CHECK(a.mismatches == 0);
  CHECK(a.unbound_admissions == 0);
  CHECK(a.unmatched_events == 0);
  CHECK(a.admissions == t.result.admissions);
  CHECK(a.resume.episodes == t.result.preemptions);
  CHECK(a.losses == t.result.invalidated_checkpoints + t.result.invalidated_attention);
  CHECK(a.losses_by_cause[static_cast<int>(LossCause::carrier)] ==
        t.result.cross_invalidations.value_or(0));
  std::uint64_t enters = 0;
  for (Episode const& e : a.episodes) {
    RequestRecord const& r = t.result.requests.at(e.request);
    if (e.preemptions > 0) continue;
    ++enters;
    CHECK(e.tokens == r.prompt_tokens);
    CHECK(e.admitted == (r.admitted_ns >= 0));
    if (!e.admitted) continue;
    CHECK(e.adopt == r.adopted_tokens);
    if (e.waived || e.cleared) continue;
    CHECK(e.now.attention == r.attention_tokens);
    CHECK(e.now.recurrent == r.recurrent_tokens);
  }
  CHECK(enters == t.result.requests.size());
}

}  // namespace

TEST_CASE("every organization, every order, both grids: the replay and the untouched result") {
  std::uint64_t shallower = 0, deeper = 0, resumed = 0, gaps = 0;
  for (Arm const arm : traced_arms)
    for (OrderPolicy const order :
         {OrderPolicy::paper, OrderPolicy::path_safe, OrderPolicy::greedy_dual})
      for (Units const nominal : {40U, 63U}) {
        PaperWorkloadOptions options;
        options.requests = 150;
        options.seed = 42000 + nominal;
        Workload const workload = make_paper_workload(options);
        RunSpec spec = spec_of(arm, nominal);
        spec.order = order;
        if (order == OrderPolicy::greedy_dual) {
          spec.placement = {PlacementKind::junction, 1};
          spec.reuse_beyond_joint = true;
        }
        BlockIds const ids(workload, block_tokens_of(spec));
        CAPTURE(arm_name(arm));
        CAPTURE(policy_name(spec));
        Traced const t = traced(spec, workload, ids);
        CHECK(t.json == json_of(run_workload(spec, workload, ids)));
        CHECK(t.header.checkpoint_tokens == (arm == Arm::d0 ? 1792 : 512));
        CHECK(t.header.block_tokens == (arm == Arm::d0 ? 16 : 512));
        compare(t);
        shallower += t.analysis.initial.in(DepthClass::shallower);
        deeper += t.analysis.initial.in(DepthClass::deeper);
        resumed += t.analysis.resume.episodes;
        gaps += t.analysis.initial.gap_now;
      }
  MESSAGE(shallower << " shallower, " << deeper << " deeper, " << resumed << " resumed, " << gaps
                    << " tokens of Gap_R");
  CHECK(shallower > 0);
  CHECK(deeper > 0);
  CHECK(resumed > 0);
}

TEST_CASE("random policies in pools of any size") {
  char const* const scale = std::getenv("HYBRIDSTATE_TEST_SCALE");
  int const runs =
      std::max(150, static_cast<int>((scale != nullptr ? std::atof(scale) : 1.0) * 600));
  std::uint64_t waived = 0, cleared = 0, bracketed = 0, resumed = 0, gaps = 0, never = 0;
  for (int i = 0; i < runs; ++i) {
    BitGenerator bits(900, static_cast<std::uint64_t>(i));
    RunSpec spec = spec_of(traced_arms[static_cast<std::size_t>(i) % std::size(traced_arms)],
                           static_cast<Units>(8 + bits.below(40)));
    spec.cap = static_cast<std::uint32_t>(1 + bits.below(12));
    spec.token_budget = bits.below(2) == 0 ? 512 : 2048;
    spec.headroom = bits.below(3) == 0 ? 0.2 : 0;
    spec.order = static_cast<OrderPolicy>(bits.below(3));
    spec.slab_position = static_cast<SlabPosition>(bits.below(3));
    spec.reuse_beyond_joint = bits.below(2) == 0;
    spec.fences = bits.below(2) == 0;
    spec.fence_lag = spec.fences ? static_cast<std::uint32_t>(bits.below(4)) : 0;
    if (bits.below(3) == 0) spec.retention.mode = RetentionMode::holders;
    if (bits.below(3) == 0) spec.pinning.distinct = 1;
    if (bits.below(4) == 0) spec.placement = {PlacementKind::every_kth, 2};
    if (bits.below(4) == 0) spec.placement = {PlacementKind::last_only, 1};
    if (bits.below(4) == 0) spec.placement = {PlacementKind::junction, 1};
    PaperWorkloadOptions options;
    options.requests = 30;
    options.seed = static_cast<std::uint64_t>(i);
    options.rate = bits.below(2) == 0 ? 3 : 30;
    Workload workload = make_paper_workload(options);
    if (bits.below(4) == 0)  // some find nothing of the others'
      for (std::size_t r = 0; r < workload.requests.size(); r += 3) workload.requests[r].salt = r;
    if (bits.below(2) == 0) smallest_budget(spec, workload);
    if (!plan_budget(kind_of(spec.arm), layout_of(spec), spec.budget, spec.split)) continue;
    BlockIds const ids(workload, block_tokens_of(spec));
    CAPTURE(i);
    CAPTURE(arm_name(spec.arm));
    CAPTURE(policy_name(spec));
    Traced const t = traced(spec, workload, ids);
    compare(t);
    if (i % 10 == 0) CHECK(t.json == json_of(run_workload(spec, workload, ids)));
    waived += t.analysis.initial.waived + t.analysis.resume.waived;
    for (Episode const& e : t.analysis.episodes) cleared += e.cleared ? 1U : 0U;
    bracketed += t.analysis.initial.bracketed;
    resumed += t.analysis.resume.episodes;
    gaps += t.analysis.initial.gap_now > 0 ? 1U : 0U;
    never += t.analysis.never_admitted;
  }
  MESSAGE(runs << " runs: " << waived << " waived, " << cleared << " cleared, " << bracketed
               << " bracketed, " << resumed << " resumed, " << gaps << " with Gap_R, " << never
               << " never admitted");
  CHECK(resumed > 0);
  CHECK(gaps > 0);
  if (runs < 600) return;  // rare
  CHECK(never > 0);
}

TEST_CASE("a tiny ring drops records and still changes nothing") {
  PaperWorkloadOptions options;
  options.requests = 60;
  Workload const workload = make_paper_workload(options);
  RunSpec spec = spec_of(Arm::d0, 63);
  BlockIds const ids(workload, block_tokens_of(spec));
  std::string const off = json_of(run_workload(spec, workload, ids));
  workload_test::TemporaryFolder const folder;
  TraceSettings settings;
  settings.path = folder.path() + "/t.trace";
  settings.ring_bytes = 64;  // no entry with a chain fits
  spec.trace = &settings;
  CHECK(json_of(run_workload(spec, workload, ids)) == off);
  CHECK(settings.problem.find("records were dropped") != std::string::npos);
  TraceCheck const check = read_trace(load_trace(settings.path), "t");
  CHECK_FALSE(check.complete());
  TraceEnd const end = check.end.value_or(TraceEnd{});
  CHECK(end.dropped == check.gaps);
  CHECK(end.dropped > 60);
}

TEST_CASE("an infinite memory has no history") {
  Workload const workload = some_requests(2);
  RunSpec spec = spec_of(Arm::infinite, 63);
  BlockIds const ids(workload, block_tokens_of(spec));
  TraceSettings settings;
  settings.path = "/nonexistent";
  spec.trace = &settings;
  CHECK_THROWS_AS(static_cast<void>(run_workload(spec, workload, ids)), ReportError);
}

TEST_CASE("the exports hold every record and well-formed slices") {
  Workload const workload = some_requests(40);
  RunSpec spec = spec_of(Arm::s2, 40);
  BlockIds const ids(workload, block_tokens_of(spec));
  workload_test::TemporaryFolder const folder;
  TraceSettings settings;
  settings.path = folder.path() + "/t.trace";
  spec.trace = &settings;
  RunResult const result = run_workload(spec, workload, ids);
  auto const bytes = load_trace(settings.path);
  TraceCheck const check = read_trace(bytes, "t");
  JsonlExport lines(check.header, check.end);
  PerfettoExport perfetto(check.header);
  read_trace(bytes, "t", [&](const TraceRecord& r) {
    lines.add(r);
    perfetto.add(r);
  });
  std::string const text = lines.finish();
  std::uint64_t count = 0;
  std::size_t at = 0;
  std::uint64_t admits = 0;
  while (at < text.size()) {
    std::size_t const end = text.find('\n', at);
    nlohmann::json const line = nlohmann::json::parse(text.substr(at, end - at));
    if (line.at("kind") == "admit") ++admits;
    if (count > 0 && line.contains("seq")) CHECK(line.at("seq") == count - 1);
    ++count;
    at = end + 1;
  }
  CHECK(count == check.records + 2);
  CHECK(admits == result.admissions);
  nlohmann::json const trace = nlohmann::json::parse(perfetto.finish());
  std::uint64_t running = 0, waiting = 0, steps = 0;
  for (auto const& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    CHECK(e.at("dur").get<double>() >= 0);
    if (e.at("name") == "running") {
      ++running;
      RequestRecord const& r = result.requests.at(e.at("tid").get<std::size_t>());
      double const end = e.at("ts").get<double>() + e.at("dur").get<double>();
      if (r.preemptions == 0)
        CHECK(std::abs(end - static_cast<double>(r.finished_ns) / 1000) < 0.01);
    }
    if (e.at("name") == "waiting") ++waiting;
    if (e.at("name") == "step") ++steps;
  }
  CHECK(running == result.admissions);
  CHECK(waiting == result.admissions);
  CHECK(steps >= result.steps);
}

TEST_CASE("a run on the CPU, whose prefixes are named by their tokens") {
  using cli_test::call;
  workload_test::TemporaryFolder const folder;
  std::string const file = "'" + folder.path() + "/t.trace'";
  REQUIRE(call("make-model --preset tiny --seed 7 --out '" + folder.path() + "/m'").code == 0);
  // All there at once, so that the machine's clock decides nothing: one wait for a publication of
  // the same step, one preemption, and losses.
  std::string const requests = folder.write("t.csv",
                                            "arrival,input_length,output_length,prefix_id,"
                                            "prefix_length\n0,700,3,a,600\n0,1000,60,b,600\n"
                                            "0,520,30,,\n0,1010,40,a,600\n0,900,2,a,600\n");
  auto const run =
      call("run --executor cpu --model '" + folder.path() + "/m' --workload 'csv:" + requests +
           "' --org S2 --budget b5 --cap 3 --trace " + file);
  CAPTURE(run.err);
  REQUIRE(run.code == 0);
  auto const analyze = call("trace analyze --json " + file);
  CHECK(analyze.code == 0);
  nlohmann::json const j = nlohmann::json::parse(analyze.out);
  CHECK(j.at("replay").at("equal") == 6);
  CHECK(j.at("resume").at("episodes") == 1);
  CHECK(j.at("initial").at("token_sums").at("j_adopt") > 0);
  CHECK(j.at("losses").at("all") > 0);
}

TEST_CASE("the commands") {
  using cli_test::call;
  workload_test::TemporaryFolder const folder;
  std::string const file = "'" + folder.path() + "/t.trace'";
  std::string const run = "run --org D0 --requests 40 --budget b40 ";
  auto const on = call(run + "--trace " + file + " --json '" + folder.path() + "/on.json'");
  CHECK(on.code == 0);
  auto const off = call(run + "--json '" + folder.path() + "/off.json'");
  CHECK(off.out == on.out);
  CHECK(cli_test::file_text(folder.path() + "/on.json") ==
        cli_test::file_text(folder.path() + "/off.json"));
  auto const check = call("trace check " + file);
  CHECK(check.code == 0);
  CHECK(check.out.find("without a gap") != std::string::npos);
  auto const analyze = call("trace analyze " + file);
  CHECK(analyze.code == 0);
  CHECK(analyze.out.find("equals the recorded one in") != std::string::npos);
  auto const json = call("trace analyze --json " + file);
  CHECK(nlohmann::json::parse(json.out).at("replay").at("different") == 0);
  auto const exported = call("trace export " + file + " --jsonl '" + folder.path() +
                             "/t.jsonl' --perfetto '" + folder.path() + "/t.json'");
  CHECK(exported.code == 0);
  CHECK(!cli_test::file_text(folder.path() + "/t.jsonl").empty());
  CHECK(nlohmann::json::parse(cli_test::file_text(folder.path() + "/t.json"))
            .contains("traceEvents"));

  SUBCASE("half a file") {
    std::string const whole = cli_test::file_text(folder.path() + "/t.trace");
    std::string const half =
        "'" + folder.write("half.trace", whole.substr(0, whole.size() / 2)) + "'";
    auto const bad = call("trace check " + half);
    CHECK(bad.code == 1);
    CHECK(bad.err.find("its tail is missing") != std::string::npos);
    CHECK(call("trace analyze " + half).code == 1);
    auto const partial = call("trace analyze --partial " + half);
    CHECK(partial.code == 0);
    CHECK(partial.err.find("is not complete") != std::string::npos);
  }
  SUBCASE("bad input is one sentence and exit code 2") {
    for (std::string const& line : std::vector<std::string>{
             "trace check /nonexistent/t", "trace check '" + folder.path() + "/on.json'",
             "trace export " + file, "trace", "run --requests 3 --trace /nonexistent/t",
             run + "--seeds 2 --trace " + file, run + "--trace-buffer 0 --trace " + file,
             "run --org infinite --requests 3 --trace " + file}) {
      auto const bad = call(line);
      CAPTURE(line);
      CAPTURE(bad.err);
      CHECK(bad.code == 2);
      CHECK(bad.err.find("hybridstate: ") == 0);
      CHECK(std::count(bad.err.begin(), bad.err.end(), '\n') == 1);
    }
  }
  SUBCASE("a full device is found before the run") {
    auto const full = call("run --requests 3 --trace /dev/full");
    CHECK(full.code == 2);
    CHECK(full.err.find("No space left on device") != std::string::npos);
    CHECK(full.out.empty());
  }
  SUBCASE("a run that is killed leaves a file whose missing tail is detected") {
    // The kernel ends the program at the first byte past the limit, in the middle of a frame.
    std::string const path = folder.path() + "/killed.trace";
    std::string const line = std::string("ulimit -c 0; ulimit -f 40; '") + HYBRIDSTATE_BINARY +
                             "' run --org D0 --budget b40 --trace '" + path + "' > /dev/null 2>&1";
    int const status = std::system(("bash -c \"" + line + "\"").c_str());
    CHECK(status != 0);
    auto const bad = call("trace check '" + path + "'");
    CAPTURE(bad.err);
    CHECK(bad.code == 1);
    CHECK(bad.err.find("its tail is missing") != std::string::npos);
    CHECK(call("trace analyze --partial '" + path + "'").code == 0);
  }
}
