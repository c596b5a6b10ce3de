// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/result.hpp"

namespace hybridstate::runtime {

/// The percentile of ascending values by linear interpolation between the two nearest ranks, as
/// numpy does by default: position (n - 1) * percent / 100. Absent for no values; the result is
/// the same bits on every machine.
std::optional<double> percentile(std::span<const double> ascending, double percent);

/// Location and spread of one latency over the requests of a run, in milliseconds. Everything is
/// absent when no request qualifies. `stddev` is the population one (as vLLM's bench reports it);
/// percentiles interpolate linearly (see percentile()).
struct Distribution {
  std::uint64_t count = 0;
  std::optional<double> mean;
  std::optional<double> stddev;
  std::optional<double> p50;
  std::optional<double> p90;
  std::optional<double> p99;
};

/// What one run comes to. A value that does not exist (a rate over no time, the mean of nothing)
/// is absent, never 0.
///
/// Latencies are taken over completed requests, from arrival: TTFT up to the first token, E2E up
/// to the last one, TPOT = (E2E - TTFT) / (output tokens - 1) with one value per request, where
/// requests with a single output token have none. Rates divide by the span of the run. J, A, R
/// and the token hit rate are taken over first admissions, of requests that completed or not.
struct Summary {
  std::string organization;
  std::string policy;
  std::string executor;
  std::uint64_t seed = 0;

  std::uint64_t submitted = 0;  ///< requests in the run
  std::uint64_t completed = 0;
  std::uint64_t refused = 0;
  std::uint64_t capacity_ended = 0;
  std::optional<double> duration_s;        ///< absent for an empty span
  std::uint64_t input_tokens = 0;          ///< prompt tokens of completed requests
  std::uint64_t output_tokens = 0;         ///< output tokens of completed requests
  std::optional<double> request_rate;      ///< completed requests per second
  std::optional<double> output_rate;       ///< output tokens of completed requests per second
  std::optional<double> total_token_rate;  ///< input and output tokens of the same per second

  Distribution ttft;
  Distribution tpot;
  Distribution e2e;

  std::optional<double> running_median;  ///< over steps; absent for a run without steps
  std::optional<double> waiting_median;

  std::optional<double> adopted_mean;    ///< J, tokens
  std::optional<double> attention_mean;  ///< A, tokens
  std::optional<double> recurrent_mean;  ///< R, tokens
  std::optional<double> hit_rate;        ///< adopted / prompt tokens of first admissions, 0..1
  std::optional<double> allocated_mean;  ///< bytes per layer, step-weighted
  std::optional<double> payload_mean;
  std::optional<double> stranded_fraction;
  std::optional<double> arena_bytes;  ///< FP32 working states beside the pools, all layers

  std::uint64_t c_once = 0;
  std::uint64_t steps = 0;       ///< K: one record a step
  std::uint64_t admissions = 0;  ///< first and repeated
  std::uint64_t preemptions = 0;
  std::uint64_t reclaimed_units = 0;
  std::optional<double> cross_invalidations;  ///< only where slabs exist
  std::uint64_t recorded_tokens = 0;          ///< H = C_once + O_ctr
  std::optional<double> tokens_per_record;    ///< H / K
  /// Output tokens per second of the requests within the thresholds (see Goodput).
  std::optional<double> goodput_rate, goodput_comparator_rate, goodput_union_rate;
};

Summary summarize(const RunResult& run);

/// A request's latencies in milliseconds; one that it does not have is absent.
struct RequestLatency {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
};
RequestLatency latency_of(const RequestRecord& request);

/// TTFT, TPOT and E2E of a run's completed requests in milliseconds, each ascending.
struct Latencies {
  std::vector<double> ttft_ms;
  std::vector<double> tpot_ms;
  std::vector<double> e2e_ms;
};
Latencies latencies(const RunResult& run);

/// One value over the seeds of a row: seeds that lack it are left out.
struct Spread {
  std::size_t count = 0;
  std::optional<double> mean;    ///< arithmetic
  std::optional<double> stddev;  ///< of a sample (n - 1); absent under two seeds
  std::optional<double> min;
  std::optional<double> max;
};
Spread spread_of(std::span<const double> values);

/// The runs of one organization under one policy and budget.
struct Row {
  std::string organization;
  std::string policy;
  std::string label;       ///< what tells the row apart in plots; unique in a comparison
  bool reference = false;  ///< infinite memory or the byte-exact bound
  bool simulated = false;
  std::vector<std::size_t> runs;   ///< positions in Comparison::runs, in its order
  std::vector<Summary> summaries;  ///< one per run, same order
  Spread gain;                     ///< output rate against the first row in percent, paired by seed

  /// Spread of one member over the seeds, e.g. row.over_seeds(&Summary::output_rate).
  Spread over_seeds(std::optional<double> Summary::* member) const;
  Spread over_seeds(std::uint64_t Summary::* member) const;
  Spread over_seeds(Distribution Summary::* member,
                    std::optional<double> Distribution::* what) const;
};

/// Groups runs into rows, in order of first appearance with the reference rows last. The gain of a
/// row is the spread over seeds of 100 * (rate / rate of the first row with that seed - 1); it is
/// absent for the first row and for rows without a common seed.
std::vector<Row> rows_of(const Comparison& comparison);

/// True when the organization stands for a bound and not for a memory organization.
bool is_reference(const std::string& organization);

/// How a reference row reads in tables and plots; other names are returned as they are.
std::string display_name(const std::string& organization);

/// True when the executor is the simulated one, so that times are a model's and not measured.
bool is_simulated(const std::string& executor);

/// "a100-40gb, simulated" or the like, over all runs.
std::string device_text(const Comparison& comparison);

/// "12 seeds, 42000 to 42011" or the like, over all runs.
std::string seeds_text(const Comparison& comparison);

/// A heading line "name value" or "name: value" as its two halves.
struct Setting {
  std::string name;
  std::string value;
};
Setting split_setting(const std::string& line);

}  // namespace hybridstate::runtime
