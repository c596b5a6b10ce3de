// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/goodput.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <vector>

#include "report/summary.hpp"

namespace hybridstate::runtime {
namespace {

bool within(std::optional<double> latency, std::optional<double> threshold) {
  return !latency || !threshold || *latency <= *threshold;
}

Goodput goodput_of(const RunResult& run, Goodput thresholds) {
  for (const RequestRecord& request : run.requests) {
    if (request.outcome != RequestOutcome::completed) continue;
    const RequestLatency had = latency_of(request);
    if (!within(had.ttft_ms, thresholds.ttft_ms) || !within(had.tpot_ms, thresholds.tpot_ms) ||
        !within(had.e2e_ms, thresholds.e2e_ms)) {
      continue;
    }
    ++thresholds.requests;
    thresholds.output_tokens += request.output_tokens;
  }
  return thresholds;
}

/// Thresholds that the given share of the runs' requests keeps, each latency for itself; absent
/// when no request completed.
std::optional<Goodput> observed(const std::vector<const RunResult*>& runs, double percent) {
  std::vector<double> tpot;
  std::vector<double> e2e;
  for (const RunResult* run : runs) {
    const Latencies values = latencies(*run);
    tpot.insert(tpot.end(), values.tpot_ms.begin(), values.tpot_ms.end());
    e2e.insert(e2e.end(), values.e2e_ms.begin(), values.e2e_ms.end());
  }
  if (e2e.empty()) return std::nullopt;
  std::sort(tpot.begin(), tpot.end());
  std::sort(e2e.begin(), e2e.end());
  Goodput thresholds;
  thresholds.tpot_ms = percentile(tpot, percent);
  thresholds.e2e_ms = percentile(e2e, percent);
  return thresholds;
}

}  // namespace

std::string goodput_text(const GoodputRule& rule) {
  if (rule.observed_percent)
    return fmt::format(
        "E2E and TPOT within the p{} of the same seed's requests, of the first row and of all rows",
        *rule.observed_percent);
  std::string text;
  const auto add = [&](const char* name, std::optional<double> threshold) {
    if (threshold)
      text += fmt::format("{}{} within {} ms", text.empty() ? "" : ", ", name, *threshold);
  };
  add("TTFT", rule.ttft_ms);
  add("TPOT", rule.tpot_ms);
  add("E2E", rule.e2e_ms);
  return text;
}

void add_goodput(Comparison& comparison, const GoodputRule& rule) {
  if (!rule.observed_percent) {
    const Goodput given{rule.ttft_ms, rule.tpot_ms, rule.e2e_ms, 0, 0};
    for (RunResult& run : comparison.runs) run.goodput = goodput_of(run, given);
    return;
  }
  std::map<std::uint64_t, std::vector<RunResult*>> by_seed;
  for (RunResult& run : comparison.runs) by_seed[run.seed].push_back(&run);
  for (const auto& [seed, runs] : by_seed) {
    std::vector<const RunResult*> rows;
    std::copy_if(runs.begin(), runs.end(), std::back_inserter(rows),
                 [](const RunResult* run) { return !is_reference(run->organization); });
    const auto comparator = observed({runs.front()}, *rule.observed_percent);
    const auto all = rows.size() > 1 ? observed(rows, *rule.observed_percent) : std::nullopt;
    for (RunResult* run : runs) {
      if (comparator) run->goodput_comparator = goodput_of(*run, *comparator);
      if (all) run->goodput_union = goodput_of(*run, *all);
    }
  }
}

}  // namespace hybridstate::runtime
