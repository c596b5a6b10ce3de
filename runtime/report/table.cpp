// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/table.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace hybridstate::runtime {
namespace {

constexpr std::string_view absent = "-";
constexpr double mebibyte = 1024.0 * 1024.0;
constexpr std::size_t max_listed_requests = 20;

/// Code points, which is close enough to columns for what these tables contain.
std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++width;
  }
  return width;
}

std::string padded(std::string_view text, std::size_t width, bool right) {
  const std::size_t have = display_width(text);
  const std::string fill(width > have ? width - have : 0, ' ');
  return right ? fill + std::string(text) : std::string(text) + fill;
}

std::string fixed(std::optional<double> value, int decimals) {
  return value && std::isfinite(*value) ? grouped(*value, decimals) : std::string(absent);
}

/// Three significant digits between 0.001 and 1,000, whole numbers above.
std::string significant(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::string(absent);
  const double size = std::fabs(*value);
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return grouped(*value, decimals);
}

std::string counter(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::string(absent);
  const bool whole = *value == std::floor(*value);
  return grouped(*value, whole || *value >= 100 ? 0 : 1);
}

std::optional<double> scaled(std::optional<double> value, double factor) {
  if (!value) return std::nullopt;
  return *value * factor;
}

std::string signed_percent(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::string(absent);
  const std::string text = fmt::format("{:+.1f}", *value);
  return text == "-0.0" ? "+0.0" : text;
}

using Values = std::vector<std::optional<double>>;

std::vector<std::string> cells_of(const Values& values, int decimals) {
  std::vector<std::string> cells;
  for (const auto& value : values) cells.push_back(fixed(value, decimals));
  return cells;
}

/// As many decimals for the whole column as its smallest value needs, three at most.
std::vector<std::string> significant_cells(const Values& values) {
  double smallest = 1e300;
  for (const auto& value : values) {
    if (value && *value != 0) smallest = std::min(smallest, std::fabs(*value));
  }
  return cells_of(values, smallest >= 1000 ? 0 : smallest >= 10 ? 1 : smallest >= 1 ? 2 : 3);
}

/// Whole numbers, or one decimal for the whole column when means of small counts need it.
std::vector<std::string> counter_cells(const Values& values) {
  bool fractions = false;
  double largest = 0;
  for (const auto& value : values) {
    if (!value) continue;
    if (*value != std::floor(*value)) fractions = true;
    largest = std::max(largest, std::fabs(*value));
  }
  return cells_of(values, fractions && largest < 1000 ? 1 : 0);
}

std::string times(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// ---- Layout -------------------------------------------------------------------------------------

struct Laid {
  const TableColumn* column = nullptr;
  std::size_t width = 0;
};

std::size_t natural_width(const TableColumn& column) {
  std::size_t width = display_width(column.name);
  for (const std::string& cell : column.cells) width = std::max(width, display_width(cell));
  return width;
}

constexpr std::size_t gap = 2;

std::size_t span_width(const std::vector<Laid>& columns) {
  std::size_t width = 0;
  for (const Laid& laid : columns) width += laid.width + (width == 0 ? 0 : gap);
  return width;
}

/// Columns that share a heading, widened so that the heading fits.
std::vector<Laid> lay_group(const std::vector<TableColumn>& columns, std::size_t first,
                            std::size_t last) {
  std::vector<Laid> result;
  for (std::size_t i = first; i < last; ++i) {
    result.push_back({&columns[i], natural_width(columns[i])});
  }
  const std::size_t needed = display_width(columns[first].group);
  while (span_width(result) < needed) {
    // Widen the narrowest column, so that a group stays even.
    auto narrowest =
        std::min_element(result.begin(), result.end(),
                         [](const Laid& a, const Laid& b) { return a.width < b.width; });
    ++narrowest->width;
  }
  return result;
}

void trim_end(std::string& line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
}

void append_line(std::string& out, std::string line) {
  trim_end(line);
  out += line;
  out += '\n';
}

void append_block(std::string& out, const std::vector<Laid>& block, const std::vector<Row>& rows) {
  std::string groups;
  std::string names;
  std::string rule;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const std::string spacer(i == 0 ? 0 : gap, ' ');
    names += spacer + padded(block[i].column->name, block[i].width, block[i].column->numeric);
    rule += std::string(i == 0 ? 0 : gap, '-') + std::string(block[i].width, '-');
  }
  for (std::size_t i = 0; i < block.size();) {
    std::size_t end = i + 1;
    std::size_t width = block[i].width;
    while (end < block.size() && !block[i].column->group.empty() &&
           block[end].column->group == block[i].column->group) {
      width += gap + block[end].width;
      ++end;
    }
    groups += std::string(i == 0 ? 0 : gap, ' ') + padded(block[i].column->group, width, true);
    i = end;
  }
  append_line(out, groups);
  append_line(out, names);
  append_line(out, rule);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (r > 0 && rows[r].reference && !rows[r - 1].reference) append_line(out, rule);
    std::string line;
    for (std::size_t i = 0; i < block.size(); ++i) {
      line += std::string(i == 0 ? 0 : gap, ' ') +
              padded(block[i].column->cells[r], block[i].width, block[i].column->numeric);
    }
    append_line(out, line);
  }
}

void append_settings(std::string& out, const std::vector<Setting>& settings) {
  std::size_t width = 0;
  for (const Setting& setting : settings) width = std::max(width, display_width(setting.name));
  for (const Setting& setting : settings) {
    append_line(out, padded(setting.name, width, false) + "  " + setting.value);
  }
}

void append_pair(std::string& out, std::string_view name, std::string_view value) {
  append_line(out, fmt::format("  {}  {}", padded(name, 32, false), value));
}

void append_run(std::string& out, const RunResult& run) {
  const Summary summary = summarize(run);
  const auto count = [](std::uint64_t value) { return grouped(static_cast<double>(value)); };

  append_line(out, fmt::format("{}{}{}, seed {}{}", display_name(run.organization),
                               run.policy.empty() ? "" : ", policy ", run.policy, run.seed,
                               is_simulated(run.executor) ? " (times are simulated)" : ""));

  std::string pools;
  for (std::size_t i = 0; i < run.pool_units.size(); ++i) {
    if (i > 0) pools += " + ";
    pools += count(run.pool_units[i]) + " units";
    if (i < run.pool_bytes.size()) {
      pools += " (" + bytes_text(static_cast<double>(run.pool_bytes[i])) + ")";
    }
  }
  append_line(out, "Memory");
  if (run.budget_bytes > 0) {
    append_pair(out, "budget",
                fmt::format("{}{}{} per layer, {} over all layers", run.budget,
                            run.budget.empty() ? "" : " = ",
                            bytes_text(static_cast<double>(run.budget_bytes)),
                            bytes_text(static_cast<double>(run.total_bytes))));
  }
  if (!pools.empty()) append_pair(out, "pools, null page included", pools);
  if (run.arena_bytes) {
    append_pair(out, "FP32 working states",
                fmt::format("{} over all layers, outside the pools",
                            bytes_text(static_cast<double>(*run.arena_bytes))));
  }
  if (run.block_tokens > 0)
    append_pair(out, "attention block", count(run.block_tokens) + " tokens");
  if (run.checkpoint_tokens > 0) {
    append_pair(out, "checkpoint grid", count(run.checkpoint_tokens) + " tokens");
  }
  if (run.cap > 0) append_pair(out, "running requests at most", count(run.cap));

  append_line(out, "Work");
  append_pair(out, "requests",
              fmt::format("{} completed of {}; {} refused, {} ended for lack of memory",
                          count(summary.completed), count(summary.submitted), count(run.refused),
                          count(run.capacity_ended)));
  append_pair(out, "duration", summary.duration_s ? significant(summary.duration_s) + " s" : "-");
  append_pair(out, "output tok/s", fixed(summary.output_rate, 1));
  append_pair(out, "requests/s", significant(summary.request_rate));
  append_pair(out, "total tok/s", fixed(summary.total_token_rate, 1));
  append_pair(out, "prompt and output tokens",
              fmt::format("{} and {}", count(summary.input_tokens), count(summary.output_tokens)));

  append_line(out, "Latency over completed requests");
  append_line(out, fmt::format("  {}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}", padded("", 20, false),
                               "mean", "std", "p50", "p90", "p99", "requests"));
  const auto latency = [&](std::string_view name, const Distribution& values, double factor) {
    append_line(out, fmt::format("  {}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}",
                                 padded(name, 20, false), significant(scaled(values.mean, factor)),
                                 significant(scaled(values.stddev, factor)),
                                 significant(scaled(values.p50, factor)),
                                 significant(scaled(values.p90, factor)),
                                 significant(scaled(values.p99, factor)), count(values.count)));
  };
  latency("TTFT (s)", summary.ttft, 1e-3);
  latency("TPOT (ms)", summary.tpot, 1);
  latency("E2E (s)", summary.e2e, 1e-3);

  const auto goodput = [&](const char* name, const std::optional<Goodput>& value,
                           std::optional<double> rate) {
    if (!value) return;
    std::string limits;
    const auto limit = [&](const char* what, std::optional<double> threshold, double factor,
                           const char* unit) {
      if (threshold)
        limits += fmt::format("{}{} {} {}", limits.empty() ? "" : ", ", what,
                              significant(scaled(threshold, factor)), unit);
    };
    limit("TTFT", value->ttft_ms, 1e-3, "s");
    limit("TPOT", value->tpot_ms, 1, "ms");
    limit("E2E", value->e2e_ms, 1e-3, "s");
    append_pair(out, name,
                fmt::format("{} output tok/s of {} requests within {}", fixed(rate, 1),
                            count(value->requests), limits));
  };
  goodput("goodput", run.goodput, summary.goodput_rate);
  goodput("goodput, first row's thresholds", run.goodput_comparator,
          summary.goodput_comparator_rate);
  goodput("goodput, all rows' thresholds", run.goodput_union, summary.goodput_union_rate);

  append_line(out, "Reuse at first admissions");
  append_pair(out, "mean J, A, R (tokens)",
              fmt::format("{}, {}, {}", fixed(summary.adopted_mean, 0),
                          fixed(summary.attention_mean, 0), fixed(summary.recurrent_mean, 0)));
  append_pair(out, "token hit rate",
              summary.hit_rate ? fixed(scaled(summary.hit_rate, 100), 1) + " %" : "-");
  append_pair(out, "C_once (prompt tokens computed)", count(run.c_once));
  append_pair(out, "H = C_once + O_ctr",
              fmt::format("{} = {} + {}", count(summary.recorded_tokens), count(run.c_once),
                          count(summary.output_tokens)));

  append_line(out, "Scheduler");
  append_pair(out, "steps (K records), H/K",
              fmt::format("{}, {} tokens", count(run.steps), fixed(summary.tokens_per_record, 1)));
  const auto queue = [&](const char* name, double mean, std::uint32_t p10,
                         std::optional<double> median, std::uint32_t p90, std::uint32_t p99) {
    if (run.steps == 0) return;
    append_pair(out, name,
                fmt::format("{}, {}, {}, {}, {}", fixed(mean, 1), p10, counter(median), p90, p99));
  };
  queue("running: mean, p10, 50, 90, 99", run.running_mean, run.running_p10, summary.running_median,
        run.running_p90, run.running_p99);
  queue("waiting: mean, p10, 50, 90, 99", run.waiting_mean, run.waiting_p10, summary.waiting_median,
        run.waiting_p90, run.waiting_p99);
  append_pair(out, "admissions", count(run.admissions));
  append_pair(out, "preemptions", count(run.preemptions));
  append_pair(out, "admission tests that waited", count(run.admission_waits));
  append_pair(out, "steps behind a publication", count(run.pending_waits));
  append_pair(out, "tokens submitted, recomputed",
              fmt::format("{}, {}", count(run.submitted_tokens), count(run.recomputed_tokens)));
  append_pair(out, "tokens: initial, resumed, decode",
              fmt::format("{}, {}, {}", count(run.initial_tokens), count(run.resume_tokens),
                          count(run.normal_decode_tokens)));
  const auto phase = [&](const char* name, const PhaseWork& work) {
    append_pair(out, name,
                fmt::format("{}, {}, {:.1f} s", count(work.steps), count(work.tokens),
                            static_cast<double>(work.ns) / 1e9));
  };
  phase("prefill-only steps, tokens, time", run.prefill_only);
  phase("decode-only steps, tokens, time", run.decode_only);
  phase("mixed steps, tokens, time", run.mixed);
  const auto halves = [&](const char* name, const std::optional<double>(&value)[2]) {
    append_pair(out, name,
                fmt::format("{} early, {} late", fixed(value[0], 1), fixed(value[1], 1)));
  };
  halves("central window, running", run.central.running);
  halves("central window, waiting", run.central.waiting);
  if (const auto drifts = run.central.drifts())
    append_pair(out, "central window, drift", *drifts ? "seen" : "not seen");

  append_line(out, "Cache");
  append_pair(out, "published checkpoints", count(run.published_checkpoints));
  append_pair(out, "reclaimed units", count(run.reclaimed_units));
  append_pair(out, "invalidated attention blocks", count(run.invalidated_attention));
  append_pair(out, "invalidated checkpoints",
              count(run.invalidated_checkpoints) +
                  (run.cross_invalidations ? fmt::format(", of these {} with a reassigned slab",
                                                         count(*run.cross_invalidations))
                                           : ""));
  if (run.slabs) {
    const SlabStatistics& s = *run.slabs;
    append_pair(out, "slab pages taken, popped", count(s.taken) + ", " + count(s.pops));
    append_pair(
        out, "slots in use: mean, p10, 50, 90",
        fmt::format("{:.1f}, {}, {}, {}", s.live_mean, s.live_p10, s.live_median, s.live_p90));
    append_pair(
        out, "slab pages: mean, p10, 50, 90",
        fmt::format("{:.1f}, {}, {}, {}", s.pages_mean, s.pages_p10, s.pages_median, s.pages_p90));
    append_pair(out, "saved by slabs, mean",
                bytes_text(s.saved_bytes_mean) + " per layer against a page for each");
  }
  if (run.tails) {
    const TailStatistics& t = *run.tails;
    append_pair(out, "tail slabs, quarters in use: mean",
                fmt::format("{:.1f}, {:.1f}", t.slabs_mean, t.parts_mean));
    append_pair(out, "tails grown, filled, copied",
                fmt::format("{}, {}, {} ({})", count(t.grown), count(t.filled), count(t.copies),
                            bytes_text(static_cast<double>(t.copied_bytes))));
  }
  if (run.orphaned_fraction)
    append_pair(out, "orphaned cached checkpoints",
                fixed(scaled(run.orphaned_fraction, 100), 1) + " %");
  if (run.pricing)
    append_pair(out, "gate: weighed, blocked, short",
                fmt::format("{}, {}, {}", count(run.pricing->weighed), count(run.pricing->blocked),
                            count(run.pricing->unaffordable)));
  std::string failures = count(run.reserve_failures);
  if (run.pool_failures.size() > 1) {
    failures += "; short pool: ";
    for (std::size_t i = 0; i < run.pool_failures.size(); ++i) {
      failures += fmt::format("{}{}", i > 0 ? ", " : "", count(run.pool_failures[i]));
    }
  }
  append_pair(out, "failed reserves", failures);
  for (std::size_t i = 0; i < run.pool_failures.size() && i < run.granted_none_free.size(); ++i) {
    append_pair(out,
                run.pool_failures.size() > 1 ? fmt::format("failures by need and free, pool {}", i)
                                             : "failures by need and free",
                fmt::format("{} need > free > 0, {} free = 0, {} headroom; {} granted at free = 0",
                            count(run.failures_some_free[i]), count(run.failures_none_free[i]),
                            count(run.failures_headroom[i]), count(run.granted_none_free[i])));
  }
  append_pair(out, "failures by what followed",
              fmt::format("{} deferred, {} preempted, {} alone", count(run.failures_deferred),
                          count(run.failures_preempted), count(run.failures_alone)));

  append_line(out, "Occupancy per layer, mean over steps");
  append_pair(out, "allocated", summary.allocated_mean ? bytes_text(*summary.allocated_mean) : "-");
  std::string payload = summary.payload_mean ? bytes_text(*summary.payload_mean) : "-";
  if (summary.payload_mean && summary.allocated_mean && *summary.allocated_mean > 0) {
    payload += fmt::format(" ({:.1f} % of allocated)",
                           100.0 * *summary.payload_mean / *summary.allocated_mean);
  }
  append_pair(out, "payload", payload);
  if (run.stored) {
    std::vector<std::string> names;
    std::vector<std::string> bytes;
    std::vector<std::string> ratios;
    for (std::size_t i = 0; i < run.stored->size(); ++i) {
      const StoredStatistics& s = (*run.stored)[i];
      names.emplace_back(stored_organizations[i]);
      bytes.push_back(bytes_text(s.bytes_mean));
      ratios.push_back(significant(s.per_budget_mean));
    }
    append_pair(out, "the live set stored as", fmt::format("{}", fmt::join(names, ", ")));
    append_pair(out, "M_X", fmt::format("{}", fmt::join(bytes, ", ")));
    append_pair(out, "B / M_X", fmt::format("{}", fmt::join(ratios, ", ")));
  }
  append_pair(
      out, "stranded",
      summary.stranded_fraction ? fixed(scaled(summary.stranded_fraction, 100), 1) + " %" : "-");
  if (!run.timeline.empty()) {
    const auto mean = [&](Bytes TimelineSample::* member) {
      double sum = 0;
      for (const TimelineSample& sample : run.timeline) sum += static_cast<double>(sample.*member);
      return bytes_text(sum / static_cast<double>(run.timeline.size()));
    };
    append_pair(
        out, "in use: attention, SSM, conv",
        fmt::format("{}, {}, {}", mean(&TimelineSample::attention_referenced),
                    mean(&TimelineSample::ssm_referenced), mean(&TimelineSample::conv_referenced)));
    append_pair(out, "cached, keyless, fenced",
                fmt::format("{}, {}, {}", mean(&TimelineSample::cached),
                            mean(&TimelineSample::keyless), mean(&TimelineSample::fenced)));
    std::uint32_t running = 0;
    std::uint32_t waiting = 0;
    for (const TimelineSample& sample : run.timeline) {
      running = std::max(running, sample.running);
      waiting = std::max(waiting, sample.waiting);
    }
    append_pair(out, "running, waiting peak",
                fmt::format("{}, {}", count(running), count(waiting)));
  }

  std::size_t listed = 0;
  std::size_t left_out = 0;
  for (const RequestRecord& request : run.requests) {
    if (request.outcome == RequestOutcome::completed) continue;
    if (listed == max_listed_requests) {
      ++left_out;
      continue;
    }
    if (listed++ == 0) append_line(out, "Requests that did not complete");
    append_line(out,
                fmt::format("  request {} ({} prompt + {} output tokens) {}: {}", request.index,
                            count(request.prompt_tokens), count(request.output_tokens),
                            request.outcome == RequestOutcome::refused ? "refused" : "ended",
                            request.reason.empty() ? "no reason given" : request.reason));
  }
  if (left_out > 0) append_line(out, fmt::format("  and {} more", count(left_out)));
}

void print(const std::string& text, std::FILE* out) {
  std::fwrite(text.data(), 1, text.size(), out);
}

}  // namespace

std::string grouped(double value, int decimals) {
  if (!std::isfinite(value)) return std::string(absent);
  const std::string text = fmt::format("{:.{}f}", std::fabs(value), decimals);
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string result;
  if (value < 0 && text.find_first_not_of("0.") != std::string::npos) result += '-';
  for (std::size_t i = 0; i < point; ++i) {
    if (i > 0 && (point - i) % 3 == 0) result += ',';
    result += text[i];
  }
  return result + text.substr(point);
}

std::string bytes_text(double bytes) {
  static constexpr std::array<std::string_view, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (std::fabs(bytes) >= 1024.0 && unit + 1 < units.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  const bool whole = bytes == std::floor(bytes);
  return fmt::format("{} {}", whole ? grouped(bytes) : significant(bytes), units[unit]);
}

std::vector<Setting> heading_of(const Comparison& comparison) {
  std::vector<Setting> result;
  std::string workload = comparison.workload_name;
  if (!comparison.workload_description.empty()) {
    workload += workload.empty() ? "" : ": ";
    workload += comparison.workload_description;
  }
  if (!workload.empty()) result.push_back({"workload", workload});
  if (!comparison.model.empty()) result.push_back({"model", comparison.model});
  if (const std::string device = device_text(comparison); !device.empty()) {
    result.push_back({"device", device});
  }
  result.push_back({"seeds", seeds_text(comparison)});
  for (const std::string& line : comparison.heading) result.push_back(split_setting(line));
  // A policy that all rows share is not part of their names.
  std::string policy;
  bool shared = true;
  for (const RunResult& run : comparison.runs) {
    if (is_reference(run.organization)) continue;
    if (policy.empty()) policy = run.policy;
    shared = shared && run.policy == policy;
  }
  const bool told = std::any_of(result.begin(), result.end(),
                                [](const Setting& setting) { return setting.name == "policy"; });
  if (shared && !policy.empty() && !told) result.push_back({"policy", policy});
  if (comparison.excluded_requests > 0) {
    result.push_back({"excluded", fmt::format("{} that some row refused, dropped from all rows",
                                              times(comparison.excluded_requests, "request"))});
  }
  return result;
}

std::vector<TableColumn> comparison_columns(const std::vector<Row>& rows) {
  std::vector<TableColumn> columns;
  const auto add = [&](std::string group, std::string name, std::string help,
                       std::vector<std::string> cells) {
    columns.push_back({std::move(group), std::move(name), std::move(help), true, std::move(cells)});
  };
  const auto each = [&](auto&& value) {
    std::vector<std::optional<double>> values;
    values.reserve(rows.size());
    for (const Row& row : rows) values.push_back(value(row));
    return values;
  };
  const auto over_seeds = [&](auto member, double factor) {
    return each([&](const Row& row) { return scaled(row.over_seeds(member).mean, factor); });
  };

  std::vector<std::string> labels;
  labels.reserve(rows.size());
  for (const Row& row : rows) labels.push_back(row.label);
  add("", "organization", "where the bytes live", std::move(labels));
  columns.back().numeric = false;

  add("output", "tok/s", "output tokens of completed requests per second",
      significant_cells(over_seeds(&Summary::output_rate, 1)));
  const std::string gain = "gain over the first row, %";
  std::vector<std::string> means;
  std::vector<std::string> ranges;
  for (const Row& row : rows) {
    means.push_back(signed_percent(row.gain.mean));
    ranges.push_back(row.gain.min
                         ? signed_percent(row.gain.min) + ".." + signed_percent(row.gain.max)
                         : std::string(absent));
  }
  add(gain, "mean", "output rate against the first row, paired by seed", std::move(means));
  add(gain, "sd", "sample standard deviation over seeds",
      cells_of(each([](const Row& row) { return row.gain.stddev; }), 1));
  add(gain, "min..max", "smallest and largest over seeds", std::move(ranges));
  add("requests", "per s", "completed requests per second",
      significant_cells(over_seeds(&Summary::request_rate, 1)));
  const auto latency = [&](const std::string& group, const std::string& what,
                           Distribution Summary::* member, double factor) {
    const auto values = [&](std::optional<double> Distribution::* point) {
      return significant_cells(
          each([&](const Row& row) { return scaled(row.over_seeds(member, point).mean, factor); }));
    };
    add(group, "p50", what + ", median", values(&Distribution::p50));
    add(group, "p99", what + ", 99th percentile", values(&Distribution::p99));
  };
  latency("TTFT s", "time to first token", &Summary::ttft, 1e-3);
  latency("TPOT ms", "time per output token after the first", &Summary::tpot, 1);
  latency("E2E s", "end-to-end latency", &Summary::e2e, 1e-3);
  const auto goodput = [&](const char* name, const char* help,
                           std::optional<double> Summary::* member) {
    const Values values = over_seeds(member, 1);
    if (std::any_of(values.begin(), values.end(), [](const auto& v) { return v.has_value(); }))
      add("goodput tok/s", name, help, significant_cells(values));
  };
  goodput("given", "output tokens per second of requests within the thresholds",
          &Summary::goodput_rate);
  goodput("first row's", "the same within thresholds observed on the first row's requests",
          &Summary::goodput_comparator_rate);
  goodput("all rows'", "the same within thresholds observed on the requests of all rows",
          &Summary::goodput_union_rate);
  add("median", "running", "running requests, median over steps",
      counter_cells(over_seeds(&Summary::running_median, 1)));
  add("median", "waiting", "waiting requests, median over steps",
      counter_cells(over_seeds(&Summary::waiting_median, 1)));

  add("mean tokens", "J", "deepest joint boundary at first admission",
      cells_of(over_seeds(&Summary::adopted_mean, 1), 0));
  add("mean tokens", "A", "deepest checkpoint boundary inside the attention prefix",
      cells_of(over_seeds(&Summary::attention_mean, 1), 0));
  add("mean tokens", "R", "deepest complete checkpoint on the chain",
      cells_of(over_seeds(&Summary::recurrent_mean, 1), 0));
  add("hit", "%", "adopted tokens per prompt token at first admissions",
      cells_of(over_seeds(&Summary::hit_rate, 100), 1));

  const auto count = [&](std::string group, std::string name, std::string help,
                         std::uint64_t Summary::* member) {
    add(std::move(group), std::move(name), std::move(help), counter_cells(over_seeds(member, 1)));
  };
  count("", "C_once", "prompt tokens computed at first admissions", &Summary::c_once);
  count("", "K", "records: one for each scheduler step", &Summary::steps);
  count("", "admitted", "admissions, first and repeated", &Summary::admissions);
  count("", "preempted", "preemptions", &Summary::preemptions);
  count("", "refused", "requests that can never fit", &Summary::refused);
  count("reclaimed", "units", "units of cached objects that were taken over",
        &Summary::reclaimed_units);
  add("cross-", "invalid.", "checkpoints lost because their slab was reassigned (S2 only)",
      counter_cells(over_seeds(&Summary::cross_invalidations, 1)));
  add("MiB per layer", "allocated", "bytes of referenced and cached units, mean over steps",
      significant_cells(over_seeds(&Summary::allocated_mean, 1 / mebibyte)));
  add("MiB per layer", "payload", "useful bytes in these units, mean over steps",
      significant_cells(over_seeds(&Summary::payload_mean, 1 / mebibyte)));
  const std::vector<std::optional<double>> arena = over_seeds(&Summary::arena_bytes, 1 / mebibyte);
  if (std::any_of(arena.begin(), arena.end(), [](const auto& v) { return v.has_value(); }))
    add("arena", "MiB", "FP32 working states outside the pools, over all layers",
        significant_cells(arena));
  add("stranded", "%", "free bytes of one pool while the other is exhausted (split pools only)",
      cells_of(over_seeds(&Summary::stranded_fraction, 100), 1));
  return columns;
}

std::string comparison_table(const Comparison& comparison, std::size_t width) {
  const std::vector<Row> rows = rows_of(comparison);
  std::string out;
  append_settings(out, heading_of(comparison));
  out += '\n';
  if (rows.empty()) {
    out += "No runs.\n";
    return out;
  }

  const std::vector<TableColumn> columns = comparison_columns(rows);
  std::vector<std::vector<Laid>> groups;
  for (std::size_t i = 1; i < columns.size();) {
    std::size_t end = i + 1;
    while (end < columns.size() && !columns[i].group.empty() &&
           columns[end].group == columns[i].group) {
      ++end;
    }
    groups.push_back(lay_group(columns, i, end));
    i = end;
  }
  const Laid name{columns.data(), natural_width(columns.front())};
  std::vector<std::vector<Laid>> blocks;
  for (const std::vector<Laid>& group : groups) {
    if (blocks.empty() ||
        (blocks.back().size() > 1 && span_width(blocks.back()) + gap + span_width(group) > width)) {
      blocks.push_back({name});
    }
    blocks.back().insert(blocks.back().end(), group.begin(), group.end());
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i > 0) out += '\n';
    append_block(out, blocks[i], rows);
  }

  out += '\n';
  const bool simulated =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.simulated; });
  if (simulated) {
    out +=
        "Times are simulated: the memory management is real, the step times come from a model.\n";
  }
  out += "Values are means over seeds; a p99 is the mean of the runs' p99.\n";
  return out;
}

std::string run_details(const Comparison& comparison) {
  std::string out;
  append_settings(out, heading_of(comparison));
  for (const RunResult& run : comparison.runs) {
    out += '\n';
    append_run(out, run);
  }
  if (comparison.runs.empty()) out += "\nNo runs.\n";
  return out;
}

void print_comparison(const Comparison& comparison, std::FILE* out, std::size_t width) {
  print(comparison_table(comparison, width), out);
}

void print_run_details(const Comparison& comparison, std::FILE* out) {
  print(run_details(comparison), out);
}

}  // namespace hybridstate::runtime
