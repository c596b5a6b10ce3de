// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/json.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

namespace hybridstate::runtime {
namespace {

// The tree is nlohmann's ordered one; the text is written here, because its printer does not
// promise the shortest form of a number.
using Json = nlohmann::ordered_json;

FieldValue value_or_none(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::monostate{};
  return *value;
}

void append_string(std::string& out, std::string_view text) {
  // dump() validates UTF-8; what is not UTF-8 (a file name in a description) becomes U+FFFD.
  out += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_json(std::string& out, const Json& value, std::size_t indent) {
  const std::string inner(indent + 2, ' ');
  if (value.is_object()) {
    if (value.empty()) {
      out += "{}";
      return;
    }
    out += "{\n";
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      if (!first) out += ",\n";
      first = false;
      out += inner;
      append_string(out, key);
      out += ": ";
      append_json(out, member, indent + 2);
    }
    out += '\n' + std::string(indent, ' ') + '}';
  } else if (value.is_array()) {
    const bool flat = std::all_of(value.begin(), value.end(),
                                  [](const Json& item) { return item.is_primitive(); });
    out += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += flat ? ", " : ",";
      if (!flat) out += '\n' + inner;
      append_json(out, value[i], indent + 2);
    }
    if (!flat && !value.empty()) out += '\n' + std::string(indent, ' ');
    out += ']';
  } else if (value.is_string()) {
    append_string(out, value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    out += number_text(value.get<double>());
  } else if (value.is_number_unsigned()) {
    out += fmt::format("{}", value.get<std::uint64_t>());
  } else {
    out += value.dump();
  }
}

Json json_of(const FieldValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

void append_latency(std::vector<Field>& fields, const std::string& name,
                    const Distribution& values) {
  fields.emplace_back("mean_" + name + "_ms", value_or_none(values.mean));
  fields.emplace_back("median_" + name + "_ms", value_or_none(values.p50));
  fields.emplace_back("std_" + name + "_ms", value_or_none(values.stddev));
  fields.emplace_back("p50_" + name + "_ms", value_or_none(values.p50));
  fields.emplace_back("p90_" + name + "_ms", value_or_none(values.p90));
  fields.emplace_back("p99_" + name + "_ms", value_or_none(values.p99));
}

std::vector<Field> row_fields(const Row& row) {
  std::vector<Field> fields;
  fields.emplace_back("organization", row.organization);
  fields.emplace_back("policy", row.policy);
  fields.emplace_back("label", row.label);
  fields.emplace_back("seeds", static_cast<std::uint64_t>(row.runs.size()));
  const auto mean = [&](std::string name, auto member) {
    fields.emplace_back(std::move(name), value_or_none(row.over_seeds(member).mean));
  };
  const Spread output = row.over_seeds(&Summary::output_rate);
  fields.emplace_back("output_throughput", value_or_none(output.mean));
  fields.emplace_back("output_throughput_sd", value_or_none(output.stddev));
  mean("request_throughput", &Summary::request_rate);
  fields.emplace_back("gain_percent", value_or_none(row.gain.mean));
  fields.emplace_back("gain_percent_sd", value_or_none(row.gain.stddev));
  fields.emplace_back("gain_percent_min", value_or_none(row.gain.min));
  fields.emplace_back("gain_percent_max", value_or_none(row.gain.max));
  const auto latency = [&](const std::string& name, Distribution Summary::* member) {
    fields.emplace_back("median_" + name + "_ms",
                        value_or_none(row.over_seeds(member, &Distribution::p50).mean));
    fields.emplace_back("p99_" + name + "_ms",
                        value_or_none(row.over_seeds(member, &Distribution::p99).mean));
  };
  latency("ttft", &Summary::ttft);
  latency("tpot", &Summary::tpot);
  latency("e2el", &Summary::e2e);
  mean("mean_adopted_tokens", &Summary::adopted_mean);
  mean("mean_attention_tokens", &Summary::attention_mean);
  mean("mean_recurrent_tokens", &Summary::recurrent_mean);
  mean("hit_rate_tokens", &Summary::hit_rate);
  mean("c_once", &Summary::c_once);
  mean("h_tokens", &Summary::recorded_tokens);
  mean("h_per_k", &Summary::tokens_per_record);
  mean("output_goodput", &Summary::goodput_rate);
  mean("output_goodput_comparator", &Summary::goodput_comparator_rate);
  mean("output_goodput_union", &Summary::goodput_union_rate);
  return fields;
}

std::string csv_value(const FieldValue& value) {
  struct Printer {
    std::string operator()(std::monostate) const { return {}; }
    std::string operator()(std::uint64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return number_text(number); }
    std::string operator()(const std::string& text) const { return csv_cell(text); }
    std::string operator()(const std::vector<std::uint64_t>& list) const {
      return fmt::format("{}", fmt::join(list, ";"));
    }
  };
  return std::visit(Printer{}, value);
}

std::string_view outcome_name(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::completed:
      return "completed";
    case RequestOutcome::refused:
      return "refused";
    case RequestOutcome::capacity:
      return "capacity";
  }
  return "";
}

/// "m_s0" … "m_d0_m512": M_X of one organization.
std::string stored_name(std::size_t organization) {
  std::string name = "m_";
  for (const char c : std::string_view(stored_organizations[organization]))
    name += c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return name;
}

/// A name that is safe in a file name: everything but letters, digits, "." and "_" becomes "-".
std::string file_part(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (keep) {
      result += c;
    } else if (result.empty() || result.back() != '-') {
      result += '-';
    }
  }
  return result;
}

}  // namespace

Json object_of(const std::vector<Field>& fields) {
  Json result = Json::object();
  for (const auto& [name, value] : fields) {
    if (!std::holds_alternative<std::monostate>(value)) result[name] = json_of(value);
  }
  return result;
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::vector<Field> run_fields(const RunResult& run) {
  const Summary summary = summarize(run);
  std::vector<Field> fields;
  const auto add = [&](std::string name, FieldValue value) {
    fields.emplace_back(std::move(name), std::move(value));
  };
  const auto count = [&](std::string name, std::uint64_t value) { add(std::move(name), value); };
  const auto number = [&](std::string name, std::optional<double> value) {
    add(std::move(name), value_or_none(value));
  };

  add("organization", run.organization);
  add("policy", run.policy);
  count("seed", run.seed);
  add("executor", run.executor);
  add("device", run.device);
  add("budget", run.budget);
  count("budget_bytes_per_layer", run.budget_bytes);
  count("total_bytes", run.total_bytes);
  add("pool_units", std::vector<std::uint64_t>(run.pool_units.begin(), run.pool_units.end()));
  add("pool_bytes_per_layer",
      std::vector<std::uint64_t>(run.pool_bytes.begin(), run.pool_bytes.end()));
  add("arena_bytes", run.arena_bytes ? FieldValue(*run.arena_bytes) : FieldValue(std::monostate()));
  count("block_tokens", run.block_tokens);
  count("checkpoint_tokens", run.checkpoint_tokens);
  const auto count_if = [&](std::string name, const std::optional<std::uint64_t>& value) {
    add(std::move(name), value ? FieldValue(*value) : FieldValue(std::monostate()));
  };
  count_if("nominal_bytes_per_layer", run.nominal_bytes);
  count("max_concurrency", run.cap);

  number("duration", summary.duration_s);
  count("num_prompts", summary.submitted);
  count("completed", summary.completed);
  count("refused", run.refused);
  count("capacity_ended", run.capacity_ended);
  count("total_input_tokens", summary.input_tokens);
  count("total_output_tokens", summary.output_tokens);
  number("request_throughput", summary.request_rate);
  number("output_throughput", summary.output_rate);
  number("total_token_throughput", summary.total_token_rate);
  append_latency(fields, "ttft", summary.ttft);
  append_latency(fields, "tpot", summary.tpot);
  append_latency(fields, "e2el", summary.e2e);
  const auto goodput = [&](const std::string& name, const std::optional<Goodput>& value,
                           std::optional<double> rate) {
    const Goodput held = value.value_or(Goodput{});
    number(name + "_ttft_threshold_ms", held.ttft_ms);
    number(name + "_tpot_threshold_ms", held.tpot_ms);
    number(name + "_e2el_threshold_ms", held.e2e_ms);
    count_if(name + "_requests", value ? std::optional(value->requests) : std::nullopt);
    count_if(name + "_output_tokens", value ? std::optional(value->output_tokens) : std::nullopt);
    number("request_" + name,
           value && summary.duration_s
               ? std::optional(static_cast<double>(value->requests) / *summary.duration_s)
               : std::nullopt);
    number("output_" + name, rate);
  };
  goodput("goodput", run.goodput, summary.goodput_rate);
  goodput("goodput_comparator", run.goodput_comparator, summary.goodput_comparator_rate);
  goodput("goodput_union", run.goodput_union, summary.goodput_union_rate);

  number("running_median", summary.running_median);
  number("waiting_median", summary.waiting_median);
  number("mean_adopted_tokens", summary.adopted_mean);
  number("mean_attention_tokens", summary.attention_mean);
  number("mean_recurrent_tokens", summary.recurrent_mean);
  number("hit_rate_tokens", summary.hit_rate);
  count("c_once", run.c_once);
  count("o_ctr", summary.output_tokens);
  count("h_tokens", summary.recorded_tokens);
  count("iterations", run.steps);
  number("h_per_k", summary.tokens_per_record);
  count("submitted_tokens", run.submitted_tokens);
  count("recomputed_tokens", run.recomputed_tokens);
  count("admissions", run.admissions);
  count("preemptions", run.preemptions);
  count("admission_waits", run.admission_waits);
  count("pending_waits", run.pending_waits);
  count("published_checkpoints", run.published_checkpoints);
  count("reclaimed_units", run.reclaimed_units);
  count("invalidated_checkpoints", run.invalidated_checkpoints);
  count("invalidated_attention", run.invalidated_attention);
  count_if("cross_invalidations", run.cross_invalidations);
  const SlabStatistics slabs = run.slabs.value_or(SlabStatistics{});
  const auto of_slabs = [&](const char* name, FieldValue value) {
    add(name, run.slabs ? std::move(value) : FieldValue(std::monostate()));
  };
  of_slabs("slab_pages_taken", slabs.taken);
  of_slabs("slab_pops", slabs.pops);
  of_slabs("slab_live_mean", slabs.live_mean);
  of_slabs("slab_live_p10", std::uint64_t{slabs.live_p10});
  of_slabs("slab_live_median", std::uint64_t{slabs.live_median});
  of_slabs("slab_live_p90", std::uint64_t{slabs.live_p90});
  of_slabs("slab_pages_mean", slabs.pages_mean);
  of_slabs("slab_pages_p10", std::uint64_t{slabs.pages_p10});
  of_slabs("slab_pages_median", std::uint64_t{slabs.pages_median});
  of_slabs("slab_pages_p90", std::uint64_t{slabs.pages_p90});
  of_slabs("slab_saved_bytes_mean", slabs.saved_bytes_mean);
  of_slabs("slab_live_histogram", slabs.live_histogram);
  of_slabs("slab_pages_histogram", slabs.pages_histogram);
  of_slabs("slab_occupancy", slabs.occupancy);
  const TailStatistics tails = run.tails.value_or(TailStatistics{});
  const auto of_tails = [&](const char* name, FieldValue value) {
    add(name, run.tails ? std::move(value) : FieldValue(std::monostate()));
  };
  of_tails("tail_slabs_taken", tails.taken);
  of_tails("tail_slabs_mean", tails.slabs_mean);
  of_tails("tail_quarters_mean", tails.parts_mean);
  of_tails("tails_grown", tails.grown);
  of_tails("tails_filled", tails.filled);
  of_tails("tail_copies", tails.copies);
  of_tails("tail_copied_bytes", tails.copied_bytes);
  count("reserve_failures", run.reserve_failures);
  add("pool_failures", run.pool_failures);
  add("failures_some_free", run.failures_some_free);
  add("failures_none_free", run.failures_none_free);
  add("failures_headroom", run.failures_headroom);
  add("granted_none_free", run.granted_none_free);
  count("failures_deferred", run.failures_deferred);
  count("failures_preempted", run.failures_preempted);
  count("failures_alone", run.failures_alone);
  count("reserves_without_need", run.reserves_without_need);
  count("initial_tokens", run.initial_tokens);
  count("resume_tokens", run.resume_tokens);
  count("normal_decode_tokens", run.normal_decode_tokens);
  const auto phase = [&](const std::string& name, const PhaseWork& work) {
    count(name + "_steps", work.steps);
    count(name + "_tokens", work.tokens);
    number(name + "_seconds", static_cast<double>(work.ns) / 1e9);
  };
  phase("prefill_only", run.prefill_only);
  phase("decode_only", run.decode_only);
  phase("mixed", run.mixed);
  const auto over_steps = [&](const char* name, double value) {
    number(name, run.steps > 0 ? std::optional<double>(value) : std::nullopt);
  };
  over_steps("running_p10", run.running_p10);
  over_steps("running_p90", run.running_p90);
  over_steps("waiting_p10", run.waiting_p10);
  over_steps("waiting_p90", run.waiting_p90);
  over_steps("running_p99", run.running_p99);
  over_steps("waiting_p99", run.waiting_p99);
  over_steps("running_mean", run.running_mean);
  over_steps("waiting_mean", run.waiting_mean);
  number("central_begin_s", static_cast<double>(run.central.begin_ns) / 1e9);
  number("central_end_s", static_cast<double>(run.central.end_ns) / 1e9);
  number("central_running_early", run.central.running[0]);
  number("central_running_late", run.central.running[1]);
  number("central_waiting_early", run.central.waiting[0]);
  number("central_waiting_late", run.central.waiting[1]);
  const std::optional<bool> drifts = run.central.drifts();
  add("central_drift", drifts ? FieldValue(std::string(*drifts ? "seen" : "not seen"))
                              : FieldValue(std::monostate()));
  count_if("eligible_boundaries", run.eligible_boundaries);
  count_if("retained_boundaries", run.retained_boundaries);
  count_if("retained_yielded", run.retained_yielded);
  count_if("pins", run.pins);
  count_if("pins_over_budget", run.pins_over_budget);
  count_if("pins_yielded", run.pins_yielded);
  count_if("price_weighed", run.pricing ? std::optional(run.pricing->weighed) : std::nullopt);
  count_if("price_blocked", run.pricing ? std::optional(run.pricing->blocked) : std::nullopt);
  count_if("price_unaffordable",
           run.pricing ? std::optional(run.pricing->unaffordable) : std::nullopt);
  const auto weighed = [&](const char* name, double PriceRecord::* sum) {
    number(name,
           run.pricing && run.pricing->weighed > 0
               ? std::optional((*run.pricing).*sum / static_cast<double>(run.pricing->weighed))
               : std::nullopt);
  };
  weighed("mean_price", &PriceRecord::price);
  weighed("mean_loss", &PriceRecord::loss);
  number("orphaned_fraction", run.orphaned_fraction);
  number("mean_allocated_bytes", summary.allocated_mean);
  number("mean_payload_bytes", summary.payload_mean);
  for (std::size_t i = 0; i < std::size(stored_organizations); ++i) {
    const std::string m = stored_name(i);
    const auto stored = run.stored ? std::optional((*run.stored)[i]) : std::nullopt;
    number(m + "_bytes_mean", stored ? std::optional(stored->bytes_mean) : std::nullopt);
    const auto ratio = [&](const char* point, std::optional<double> StoredStatistics::* member) {
      number("b_per_" + m + point, stored ? (*stored).*member : std::nullopt);
    };
    ratio("_mean", &StoredStatistics::per_budget_mean);
    ratio("_p10", &StoredStatistics::per_budget_p10);
    ratio("_median", &StoredStatistics::per_budget_median);
    ratio("_p90", &StoredStatistics::per_budget_p90);
  }
  number("stranded_fraction", summary.stranded_fraction);
  return fields;
}

std::string json_text(const Comparison& comparison) {
  Json root = Json::object();
  root["schema"] = 1U;
  root["workload"]["name"] = comparison.workload_name;
  root["workload"]["description"] = comparison.workload_description;
  root["workload"]["excluded_requests"] = comparison.excluded_requests;
  root["model"] = comparison.model;
  Json settings = Json::object();
  for (const std::string& line : comparison.heading) {
    const Setting setting = split_setting(line);
    if (settings.contains(setting.name)) {
      settings[setting.name] = settings[setting.name].get<std::string>() + "; " + setting.value;
    } else {
      settings[setting.name] = setting.value;
    }
  }
  root["settings"] = std::move(settings);
  root["runs"] = Json::array();
  for (const RunResult& run : comparison.runs) root["runs"].push_back(object_of(run_fields(run)));
  root["rows"] = Json::array();
  for (const Row& row : rows_of(comparison)) root["rows"].push_back(object_of(row_fields(row)));

  std::string out;
  append_json(out, root, 0);
  out += '\n';
  return out;
}

std::string csv_text(const Comparison& comparison) {
  std::string out;
  const auto append = [&](const std::vector<Field>& fields, bool names) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (i > 0) out += ',';
      out += names ? fields[i].first : csv_value(fields[i].second);
    }
    out += '\n';
  };
  append(run_fields(RunResult{}), true);
  for (const RunResult& run : comparison.runs) append(run_fields(run), false);
  return out;
}

std::string requests_csv_text(const RunResult& run) {
  std::string out =
      "request,outcome,arrival_ns,admitted_ns,first_token_ns,finished_ns,ttft_ms,tpot_ms,e2el_ms,"
      "prompt_tokens,output_tokens,adopted_tokens,attention_tokens,recurrent_tokens,"
      "raw_match_tokens,computed_tokens,preemptions,reason\n";
  const auto to = std::back_inserter(out);
  const auto time = [&](std::int64_t value) {
    if (value >= 0) fmt::format_to(to, "{}", value);
    out += ',';
  };
  const auto milliseconds = [&](bool exists, std::int64_t nanoseconds, double parts) {
    if (exists) out += number_text(static_cast<double>(nanoseconds) / parts / 1e6);
    out += ',';
  };
  for (const RequestRecord& r : run.requests) {
    const bool started = r.first_token_ns >= 0;
    const bool finished = r.outcome == RequestOutcome::completed && r.finished_ns >= 0;
    fmt::format_to(to, "{},{},{},", r.index, outcome_name(r.outcome), r.arrival_ns);
    time(r.admitted_ns);
    time(r.first_token_ns);
    time(r.finished_ns);
    milliseconds(started, r.first_token_ns - r.arrival_ns, 1);
    const bool several = started && finished && r.output_tokens > 1;
    milliseconds(several, r.finished_ns - r.first_token_ns,
                 several ? static_cast<double>(r.output_tokens - 1) : 1.0);
    milliseconds(finished, r.finished_ns - r.arrival_ns, 1);
    fmt::format_to(to, "{},{},{},{},{},{},{},{},{}\n", r.prompt_tokens, r.output_tokens,
                   r.adopted_tokens, r.attention_tokens, r.recurrent_tokens, r.raw_match_tokens,
                   r.computed_tokens, r.preemptions, csv_cell(r.reason));
  }
  return out;
}

std::string timeline_csv_text(const RunResult& run) {
  std::string out =
      "time_ns,step,running,waiting,attention_referenced,ssm_referenced,conv_referenced,cached,"
      "keyless,fenced,payload,allocated,slab_live,slab_pages,slab_saved_bytes";
  for (std::size_t i = 0; i < std::size(stored_organizations); ++i) out += ',' + stored_name(i);
  for (std::size_t i = 0; i < std::size(stored_organizations); ++i)
    out += ",b_per_" + stored_name(i);
  out += '\n';
  const auto to = std::back_inserter(out);
  for (const TimelineSample& s : run.timeline) {
    fmt::format_to(to, "{},{},{},{},{},{},{},{},{},{},{},{}", s.time_ns, s.step, s.running,
                   s.waiting, s.attention_referenced, s.ssm_referenced, s.conv_referenced, s.cached,
                   s.keyless, s.fenced, s.payload, s.allocated);
    if (s.slabs) {
      fmt::format_to(to, ",{},{},{}", s.slabs->live, s.slabs->pages, s.slabs->saved);
    } else {
      out += ",,,";
    }
    for (std::size_t i = 0; i < std::size(stored_organizations); ++i) {
      out += ',';
      if (s.stored) fmt::format_to(to, "{}", (*s.stored)[i]);
    }
    for (std::size_t i = 0; i < std::size(stored_organizations); ++i) {
      out += ',';
      if (!s.stored || (*s.stored)[i] == 0 || !run.nominal_bytes) continue;
      out += number_text(static_cast<double>(*run.nominal_bytes) /
                         static_cast<double>((*s.stored)[i]));
    }
    out += '\n';
  }
  return out;
}

void write_json(const std::filesystem::path& path, const Comparison& comparison) {
  write_text_atomically(path, json_text(comparison));
}

void write_csv(const std::filesystem::path& path, const Comparison& comparison) {
  write_text_atomically(path, csv_text(comparison));
}

std::vector<std::string> run_file_stems(const Comparison& comparison) {
  std::vector<std::string> stems;
  for (const RunResult& run : comparison.runs) {
    std::string stem = file_part(run.organization);
    if (!run.policy.empty()) stem += "-" + file_part(run.policy);
    stem += fmt::format("-seed{}", run.seed);
    std::string unique = stem;
    for (int number = 2; std::find(stems.begin(), stems.end(), unique) != stems.end(); ++number) {
      unique = fmt::format("{}-{}", stem, number);
    }
    stems.push_back(std::move(unique));
  }
  return stems;
}

void write_run_files(const std::filesystem::path& folder, const Comparison& comparison) {
  make_folder(folder);
  const std::vector<std::string> stems = run_file_stems(comparison);
  for (std::size_t i = 0; i < stems.size(); ++i) {
    write_text_atomically(folder / (stems[i] + ".requests.csv"),
                          requests_csv_text(comparison.runs[i]));
    write_text_atomically(folder / (stems[i] + ".timeline.csv"),
                          timeline_csv_text(comparison.runs[i]));
  }
}

}  // namespace hybridstate::runtime
