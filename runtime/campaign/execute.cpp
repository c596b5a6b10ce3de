// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/execute.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "options/serving_options.hpp"
#include "report/json.hpp"
#include "report/summary.hpp"
#include "trace/analyze.hpp"
#include "trace/reader.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

/// The cell as the options of `hybridstate run` would say it.
ServingOptions options_of(const Cell& cell, const CampaignInputs& inputs) {
  ServingOptions options;
  PaperWorkloadOptions& paper = options.content.paper;
  bool const mooncake = cell.workload != "paper";
  if (mooncake) {
    options.workload = "mooncake:" + inputs.mooncake_file;
    options.max_context = "32768:drop";
    options.content.trace.spread = true;
    options.content.trace.all_at_once = cell.rate == 0;
  }
  paper.seed = cell.seed;
  paper.requests = cell.requests;
  paper.rate = cell.rate > 0 ? cell.rate : 1;
  paper.share = cell.share;
  paper.variance_reduction = cell.variance_reduction;
  if (cell.popularity == Popularity::uniform) {
    paper.zipf_exponent = 0;
    paper.repeat_probability = 0;
  }
  options.lengths = lengths_name(cell.lengths);
  if (!mooncake) options.arrivals = arrivals_name(cell.arrivals);
  options.isolate = cell.isolate;
  options.seeds = 1;
  if (cell.executor != "sim") {
    options.executor = cell.executor;
    options.model = inputs.model_folder;
    options.threads = inputs.threads;
  } else {
    options.model = cell.model;
    options.device = cell.law;
  }
  if (cell.budget.ends_with("GiB"))
    options.memory = cell.budget;
  else
    options.budget = cell.budget == "none" ? "b63" : cell.budget;  // infinite memory reads none
  options.cap = cell.cap;
  options.headroom = cell.headroom;
  options.pin_distinct = cell.pin_distinct;
  return options;
}

/// The analysis of a whole trace, without its episodes.
Json state_history(const std::string& file) {
  std::vector<std::uint8_t> const bytes = load_trace(file);
  TraceCheck const found = read_trace(bytes, file);
  if (!found.complete())
    throw std::runtime_error(fmt::format("{} is not complete: {}", file, found.problem));
  StateHistoryAnalyzer analyzer(found.header.block_tokens, found.header.checkpoint_tokens);
  read_trace(bytes, file, [&](const TraceRecord& record) { analyzer.add(record); });
  Analysis analysis = analyzer.finish();
  analysis.episodes.clear();
  Json j = Json::parse(analysis_json(found.header, analysis));
  j.erase("episodes");
  return j;
}

}  // namespace

Json run_cell(const Cell& cell, const CampaignInputs& inputs, const std::string& trace_file) {
  ServingOptions options = options_of(cell, inputs);
  ServingSetup const setup = prepare(options, 1);
  if (cell.workload != "paper" && cell.rate > 0) {
    WorkloadTotals const trace = totals(make_workload(setup.workload, options.content));
    options.content.trace.rate_scale = cell.rate * static_cast<double>(trace.last_arrival_ns) /
                                       1e9 / static_cast<double>(trace.requests);
  }
  RunSpec spec = setup.spec;
  apply(parse_policy(cell.policy), spec);
  spec.arm = cell.arm;
  spec.retention = cell.retention.mode == RetentionMode::none ? spec.retention : cell.retention;
  if (cell.attention_ppm != 0) spec.split = {cell.attention_ppm};
  spec.keep_timeline = false;
  Workload const workload = make_workload(setup.workload, options.content);
  BlockIds const ids(workload, block_tokens_of(spec));
  TraceSettings trace;
  if (cell.trace) {
    trace.path = trace_file;
    trace.note = fmt::format("cell {}", cell_id(cell));
    spec.trace = &trace;
  }
  RunResult result = run_workload(spec, workload, ids);
  result.seed = cell.seed;
  if (!trace.problem.empty()) throw std::runtime_error(trace.problem);

  Json j;
  std::uint64_t const output = summarize(result).output_tokens;
  auto const seconds = static_cast<double>(result.span_ns) / 1e9;
  std::int64_t const ledger = (result.span_ns + 999'999'999) / 1'000'000'000;
  j["timebases"] = {{"span_ns", result.span_ns}, {"ledger_s", ledger}, {"output_tokens", output}};
  if (ledger > 0) {
    j["timebases"]["span_output_throughput"] = static_cast<double>(output) / seconds;
    j["timebases"]["ledger_output_throughput"] =
        static_cast<double>(output) / static_cast<double>(ledger);
  }
  j["result"] = object_of(run_fields(result));
  if (cell.trace) {
    j["state_history"] = state_history(trace_file);
    std::filesystem::remove(trace_file);
  }
  return j;
}

}  // namespace hybridstate::runtime
