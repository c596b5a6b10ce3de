// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace hybridstate::runtime {
namespace {

constexpr double ns_per_ms = 1e6;
constexpr double ns_per_s = 1e9;

// Products that feed a sum go through std::fma: a compiler may or may not fuse them by itself, and
// reports have to be the same bits on every machine.

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double squared_deviations(std::span<const double> values, double mean) {
  double sum = 0;
  for (const double value : values) {
    const double d = value - mean;
    sum = std::fma(d, d, sum);
  }
  return sum;
}

Distribution distribution_of(std::span<const double> ascending) {
  Distribution result;
  result.count = ascending.size();
  if (ascending.empty()) return result;
  const double mean = mean_of(ascending);
  result.mean = mean;
  result.stddev =
      std::sqrt(squared_deviations(ascending, mean) / static_cast<double>(ascending.size()));
  result.p50 = percentile(ascending, 50);
  result.p90 = percentile(ascending, 90);
  result.p99 = percentile(ascending, 99);
  return result;
}

std::optional<double> ratio(double part, double whole) {
  if (!(whole > 0)) return std::nullopt;
  return part / whole;
}

}  // namespace

std::optional<double> percentile(std::span<const double> ascending, double percent) {
  if (ascending.empty()) return std::nullopt;
  const double last = static_cast<double>(ascending.size() - 1);
  const double position = std::clamp(last * percent / 100.0, 0.0, last);
  const double below = std::floor(position);
  const auto lower = static_cast<std::size_t>(below);
  const std::size_t upper = std::min(lower + 1, ascending.size() - 1);
  const double step = ascending[upper] - ascending[lower];
  return std::fma(position - below, step, ascending[lower]);
}

RequestLatency latency_of(const RequestRecord& request) {
  RequestLatency result;
  const bool started = request.first_token_ns >= 0;
  const bool finished = request.finished_ns >= 0;
  const auto ms = [](std::int64_t from, std::int64_t to, double parts) {
    return static_cast<double>(to - from) / parts / ns_per_ms;
  };
  if (started) result.ttft_ms = ms(request.arrival_ns, request.first_token_ns, 1);
  if (finished) result.e2e_ms = ms(request.arrival_ns, request.finished_ns, 1);
  if (started && finished && request.output_tokens > 1) {
    result.tpot_ms = ms(request.first_token_ns, request.finished_ns,
                        static_cast<double>(request.output_tokens - 1));
  }
  return result;
}

Latencies latencies(const RunResult& run) {
  Latencies result;
  for (const RequestRecord& request : run.requests) {
    if (request.outcome != RequestOutcome::completed) continue;
    const RequestLatency had = latency_of(request);
    if (had.ttft_ms) result.ttft_ms.push_back(*had.ttft_ms);
    if (had.tpot_ms) result.tpot_ms.push_back(*had.tpot_ms);
    if (had.e2e_ms) result.e2e_ms.push_back(*had.e2e_ms);
  }
  std::sort(result.ttft_ms.begin(), result.ttft_ms.end());
  std::sort(result.tpot_ms.begin(), result.tpot_ms.end());
  std::sort(result.e2e_ms.begin(), result.e2e_ms.end());
  return result;
}

Summary summarize(const RunResult& run) {
  Summary result;
  result.organization = run.organization;
  result.policy = run.policy;
  result.executor = run.executor;
  result.seed = run.seed;
  result.submitted = run.requests.size();
  result.refused = run.refused;
  result.capacity_ended = run.capacity_ended;

  std::uint64_t admitted = 0;
  std::uint64_t prompt = 0;
  std::uint64_t adopted = 0;
  std::uint64_t attention = 0;
  std::uint64_t recurrent = 0;
  for (const RequestRecord& request : run.requests) {
    if (request.outcome == RequestOutcome::completed) {
      ++result.completed;
      result.input_tokens += request.prompt_tokens;
      result.output_tokens += request.output_tokens;
    }
    if (request.admitted_ns >= 0) {
      ++admitted;
      prompt += request.prompt_tokens;
      adopted += request.adopted_tokens;
      attention += request.attention_tokens;
      recurrent += request.recurrent_tokens;
    }
  }

  if (run.span_ns > 0) {
    const double seconds = static_cast<double>(run.span_ns) / ns_per_s;
    result.duration_s = seconds;
    result.request_rate = static_cast<double>(result.completed) / seconds;
    result.output_rate = static_cast<double>(result.output_tokens) / seconds;
    result.total_token_rate =
        static_cast<double>(result.input_tokens + result.output_tokens) / seconds;
    const auto rate = [&](const std::optional<Goodput>& goodput) {
      return goodput ? std::optional(static_cast<double>(goodput->output_tokens) / seconds)
                     : std::nullopt;
    };
    result.goodput_rate = rate(run.goodput);
    result.goodput_comparator_rate = rate(run.goodput_comparator);
    result.goodput_union_rate = rate(run.goodput_union);
  }

  const Latencies values = latencies(run);
  result.ttft = distribution_of(values.ttft_ms);
  result.tpot = distribution_of(values.tpot_ms);
  result.e2e = distribution_of(values.e2e_ms);

  if (run.steps > 0) {
    result.running_median = run.running_median;
    result.waiting_median = run.waiting_median;
    if (std::isfinite(run.allocated_bytes_mean)) result.allocated_mean = run.allocated_bytes_mean;
    if (std::isfinite(run.payload_bytes_mean)) result.payload_mean = run.payload_bytes_mean;
  }
  const auto n = static_cast<double>(admitted);
  result.adopted_mean = ratio(static_cast<double>(adopted), n);
  result.attention_mean = ratio(static_cast<double>(attention), n);
  result.recurrent_mean = ratio(static_cast<double>(recurrent), n);
  result.hit_rate = ratio(static_cast<double>(adopted), static_cast<double>(prompt));
  if (run.stranded_fraction && std::isfinite(*run.stranded_fraction)) {
    result.stranded_fraction = run.stranded_fraction;
  }
  if (run.arena_bytes) result.arena_bytes = static_cast<double>(*run.arena_bytes);

  result.c_once = run.c_once;
  result.steps = run.steps;
  result.admissions = run.admissions;
  result.preemptions = run.preemptions;
  result.reclaimed_units = run.reclaimed_units;
  if (run.cross_invalidations) {
    result.cross_invalidations = static_cast<double>(*run.cross_invalidations);
  }
  result.recorded_tokens = run.c_once + result.output_tokens;
  result.tokens_per_record =
      ratio(static_cast<double>(result.recorded_tokens), static_cast<double>(run.steps));
  return result;
}

Spread spread_of(std::span<const double> values) {
  Spread result;
  result.count = values.size();
  if (values.empty()) return result;
  const double mean = mean_of(values);
  result.mean = mean;
  if (values.size() > 1) {
    result.stddev =
        std::sqrt(squared_deviations(values, mean) / static_cast<double>(values.size() - 1));
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  result.min = *low;
  result.max = *high;
  return result;
}

Spread Row::over_seeds(std::optional<double> Summary::* member) const {
  std::vector<double> values;
  for (const Summary& summary : summaries) {
    if (const auto& value = summary.*member) values.push_back(*value);
  }
  return spread_of(values);
}

Spread Row::over_seeds(std::uint64_t Summary::* member) const {
  std::vector<double> values;
  values.reserve(summaries.size());
  for (const Summary& summary : summaries) values.push_back(static_cast<double>(summary.*member));
  return spread_of(values);
}

Spread Row::over_seeds(Distribution Summary::* member,
                       std::optional<double> Distribution::* what) const {
  std::vector<double> values;
  for (const Summary& summary : summaries) {
    if (const auto& value = summary.*member.*what) values.push_back(*value);
  }
  return spread_of(values);
}

std::vector<Row> rows_of(const Comparison& comparison) {
  std::vector<Row> rows;
  std::vector<std::string> budgets;
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    const RunResult& run = comparison.runs[i];
    std::size_t at = 0;
    while (at < rows.size() && !(rows[at].organization == run.organization &&
                                 rows[at].policy == run.policy && budgets[at] == run.budget)) {
      ++at;
    }
    if (at == rows.size()) {
      Row row;
      row.organization = run.organization;
      row.policy = run.policy;
      row.reference = is_reference(run.organization);
      row.simulated = is_simulated(run.executor);
      rows.push_back(std::move(row));
      budgets.push_back(run.budget);
    }
    rows[at].runs.push_back(i);
    rows[at].summaries.push_back(summarize(run));
  }

  // A label is the organization; the policy and the budget join it only where they differ.
  const auto differs = [&](auto&& get) {
    bool found = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].reference && get(i) != get(0)) found = true;
    }
    return found;
  };
  const bool with_policy = differs([&](std::size_t i) { return rows[i].policy; });
  const bool with_budget = differs([&](std::size_t i) { return budgets[i]; });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].label = display_name(rows[i].organization);
    if (rows[i].reference && !with_budget) continue;
    if (with_policy && !rows[i].reference && !rows[i].policy.empty()) {
      rows[i].label += " " + rows[i].policy;
    }
    if (with_budget && !budgets[i].empty()) rows[i].label += " " + budgets[i];
  }

  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.reference != b.reference ? b.reference : a.runs.front() < b.runs.front();
  });

  if (!rows.empty()) {
    std::map<std::uint64_t, double> base;
    for (const Summary& summary : rows.front().summaries) {
      if (summary.output_rate && *summary.output_rate > 0) {
        base.emplace(summary.seed, *summary.output_rate);
      }
    }
    for (std::size_t i = 1; i < rows.size(); ++i) {
      std::vector<double> gains;
      for (const Summary& summary : rows[i].summaries) {
        const auto found = base.find(summary.seed);
        if (found == base.end() || !summary.output_rate) continue;
        gains.push_back(100.0 * (*summary.output_rate / found->second - 1.0));
      }
      rows[i].gain = spread_of(gains);
    }
  }
  return rows;
}

bool is_reference(const std::string& organization) {
  return organization == "infinite" || organization == "infinite memory" ||
         organization == "byte-exact bound";
}

std::string display_name(const std::string& organization) {
  return organization == "infinite" ? "infinite memory" : organization;
}

bool is_simulated(const std::string& executor) { return executor == "simulated"; }

std::string device_text(const Comparison& comparison) {
  std::vector<std::string> seen;
  for (const RunResult& run : comparison.runs) {
    std::string text = run.device.empty()     ? run.executor
                       : run.executor.empty() ? run.device
                                              : fmt::format("{} ({})", run.device, run.executor);
    if (!text.empty() && std::find(seen.begin(), seen.end(), text) == seen.end()) {
      seen.push_back(std::move(text));
    }
  }
  std::string result;
  for (const std::string& text : seen) {
    if (!result.empty()) result += ", ";
    result += text;
  }
  return result;
}

std::string seeds_text(const Comparison& comparison) {
  std::vector<std::uint64_t> seeds;
  seeds.reserve(comparison.runs.size());
  for (const RunResult& run : comparison.runs) seeds.push_back(run.seed);
  std::sort(seeds.begin(), seeds.end());
  seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
  if (seeds.empty()) return "none";
  if (seeds.size() == 1) return fmt::format("1 ({})", seeds.front());
  return fmt::format("{} ({} to {})", seeds.size(), seeds.front(), seeds.back());
}

Setting split_setting(const std::string& line) {
  Setting result;
  std::size_t name_end = line.find(": ");
  std::size_t value_begin = name_end + 2;
  if (name_end == std::string::npos) {
    name_end = line.find(' ');
    value_begin = name_end + 1;
  }
  if (name_end == std::string::npos) {
    result.name = line;
    return result;
  }
  result.name = line.substr(0, name_end);
  result.value = line.substr(std::min(line.find_first_not_of(' ', value_begin), line.size()));
  return result;
}

}  // namespace hybridstate::runtime
