// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <hybridstate/policy/admission.hpp>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace hybridstate::runtime {

enum class RequestOutcome : std::uint8_t { completed, refused, capacity };

/// What happened to one request; times in nanoseconds of the run's clock, -1 = never happened.
struct RequestRecord {
  std::uint32_t index = 0;  ///< position in the workload
  RequestOutcome outcome = RequestOutcome::completed;
  std::int64_t arrival_ns = 0;
  std::int64_t admitted_ns = -1;  ///< first admission
  std::int64_t first_token_ns = -1;
  std::int64_t finished_ns = -1;
  Tokens prompt_tokens = 0;
  Tokens output_tokens = 0;     ///< generated
  Tokens adopted_tokens = 0;    ///< J of the first admission
  Tokens attention_tokens = 0;  ///< A of the first admission
  Tokens recurrent_tokens = 0;  ///< R of the first admission
  Tokens raw_match_tokens = 0;  ///< contiguous attention prefix of the first admission
  Tokens computed_tokens = 0;   ///< prompt and recompute tokens executed, all admissions
  std::uint32_t preemptions = 0;
  std::string reason;  ///< one sentence for refused and capacity
};

/// The organizations X for which M_X of a live set is given, in the order of every such list.
inline constexpr const char* stored_organizations[] = {"S0", "S1", "S2", "D0", "D0-M512"};
/// M_X of one live set: bytes of one layer group.
using StoredBytes = std::array<Bytes, std::size(stored_organizations)>;

/// Convolution states in slots and the slab pages that hold them, at one moment.
struct SlabSample {
  std::uint32_t live = 0;
  std::uint32_t pages = 0;
  std::int64_t saved = 0;  ///< equation (E1): bytes per layer against a page for each live one
};

/// Occupancy at one scheduler step. Bytes are planner bytes of one layer group (all groups of the
/// organization); capacity = referenced + cached + keyless + fenced. The kinds split what is
/// referenced or cached by what the unit holds; a conv slab counts as conv.
struct TimelineSample {
  std::int64_t time_ns = 0;
  std::uint64_t step = 0;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  Bytes attention_referenced = 0;
  Bytes ssm_referenced = 0;
  Bytes conv_referenced = 0;
  Bytes cached = 0;
  Bytes keyless = 0;
  Bytes fenced = 0;
  Bytes payload = 0;                  ///< useful bytes in referenced and cached units
  Bytes allocated = 0;                ///< bytes of referenced and cached units
  std::optional<StoredBytes> stored;  ///< M_X of the live set; absent for reference rows
  std::optional<SlabSample> slabs;    ///< only where slabs exist
};

/// Steps of one composition: how many, their scheduled tokens, and how long they took.
struct PhaseWork {
  std::uint64_t steps = 0;
  std::uint64_t tokens = 0;
  std::int64_t ns = 0;

  friend bool operator==(const PhaseWork&, const PhaseWork&) = default;
};

/// The window from the 20th to the 80th percentile of the arrivals (Appendix B.4): time-weighted
/// means of the queue lengths in its earlier and later half. A drift between them says that the
/// system was not steady there; that there is none proves nothing.
struct CentralWindow {
  static constexpr double drift_fraction = 0.10;  ///< of the larger of the two means (inferred)
  static constexpr double drift_requests = 0.5;   ///< smaller differences are none (inferred)

  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::optional<double> running[2];  ///< absent when no step fell into the half
  std::optional<double> waiting[2];

  /// Whether the running or the waiting mean differs between the halves by more than both limits;
  /// absent when a half has no step.
  std::optional<bool> drifts() const {
    bool any = false;
    for (auto const* mean : {running, waiting}) {
      std::optional<double> const &first = mean[0], &second = mean[1];
      if (!first || !second) return std::nullopt;
      double const change = std::fabs(*second - *first);
      any |= change > drift_requests && change > drift_fraction * std::fmax(*first, *second);
    }
    return any;
  }

  friend bool operator==(const CentralWindow&, const CentralWindow&) = default;
};

/// Slab pages over the steps of a run; every histogram counts steps by value, from 0 up.
struct SlabStatistics {
  std::uint64_t taken = 0;  ///< units of the pool that became slab pages
  std::uint64_t pops = 0;   ///< slab pages reassigned with cached checkpoints on them
  std::vector<std::uint64_t> live_histogram;   ///< steps by live slots
  std::vector<std::uint64_t> pages_histogram;  ///< steps by slab pages
  /// Slab pages by used slots, summed over steps: its sum is that of the pages, weighted by the
  /// index that of the live slots.
  std::vector<std::uint64_t> occupancy;
  std::uint32_t live_p10 = 0, live_median = 0, live_p90 = 0;
  std::uint32_t pages_p10 = 0, pages_median = 0, pages_p90 = 0;
  double live_mean = 0;
  double pages_mean = 0;
  double saved_bytes_mean = 0;  ///< equation (E1), both counts of the same step; per layer

  friend bool operator==(const SlabStatistics&, const SlabStatistics&) = default;
};

/// M_X of the live sets over the steps of a run, and how often the nominal budget B holds it. Steps
/// with an empty set have no B / M_X.
struct StoredStatistics {
  double bytes_mean = 0;  ///< per layer
  std::optional<double> per_budget_mean, per_budget_p10, per_budget_median, per_budget_p90;

  friend bool operator==(const StoredStatistics&, const StoredStatistics&) = default;
};

/// Tails and the slabs that they share (CacheOptions::tail_tokens), over a run.
struct TailStatistics {
  std::uint64_t taken = 0;   ///< blocks that became slabs of tails
  std::uint64_t grown = 0;   ///< tails that grew in place
  std::uint64_t filled = 0;  ///< tails that took over their slab as a block of their own
  std::uint64_t copies = 0;  ///< tails copied to where they could grow
  Bytes copied_bytes = 0;    ///< by these, all layers
  double slabs_mean = 0;     ///< over steps
  double parts_mean = 0;     ///< used quarters

  friend bool operator==(const TailStatistics&, const TailStatistics&) = default;
};

/// Completed requests that kept within all thresholds (Appendix E.8), and the thresholds in
/// milliseconds; a latency that a request does not have keeps within any.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
  std::uint64_t requests = 0;
  std::uint64_t output_tokens = 0;

  friend bool operator==(const Goodput&, const Goodput&) = default;
};

/// Everything one run of one organization with one seed left behind.
struct RunResult {
  std::string organization;  ///< "S0", "S1", "S2", "D0", "D0-M512", "infinite", "byte-exact bound"
  std::string policy;        ///< e.g. "paper", "path-safe"
  std::string executor;      ///< "simulated", later "cpu", "cuda"
  std::string device;        ///< preset of the step law
  std::uint64_t seed = 0;
  std::string budget;             ///< as the user wrote it, e.g. "b63" or "20GiB"
  Bytes budget_bytes = 0;         ///< planner bytes per layer
  Bytes total_bytes = 0;          ///< over all layers
  std::vector<Units> pool_units;  ///< B of each pool, null page included
  std::vector<Bytes> pool_bytes;  ///< bytes of each pool per layer
  /// FP32 working states beside the pools, over all layers; only where there is such an arena.
  std::optional<Bytes> arena_bytes;
  Tokens block_tokens = 0;
  Tokens checkpoint_tokens = 0;
  std::uint32_t cap = 0;

  std::int64_t span_ns = 0;  ///< first arrival to last completion
  std::uint64_t steps = 0;
  std::uint64_t c_once = 0;            ///< prompt tokens computed at first admissions, counted once
  std::uint64_t submitted_tokens = 0;  ///< all tokens of all steps
  std::uint64_t recomputed_tokens = 0;  ///< of these, tokens that had been computed before
  std::uint64_t admissions = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t refused = 0;         ///< requests that can never fit
  std::uint64_t capacity_ended = 0;  ///< sequences ended because the pool could not hold them alone
  std::uint64_t admission_waits = 0;  ///< admission tests of the head of the line that said wait
  std::uint64_t pending_waits = 0;    ///< steps in which the head waited for a publication
  std::uint64_t published_checkpoints = 0;
  std::uint64_t reclaimed_units = 0;  ///< units of cached objects that were taken over
  std::uint64_t invalidated_checkpoints = 0;
  std::uint64_t invalidated_attention = 0;
  /// Checkpoints lost because their slab was reassigned; absent without slabs, as all of `slabs`.
  std::optional<std::uint64_t> cross_invalidations;
  std::optional<SlabStatistics> slabs;
  std::optional<TailStatistics> tails;  ///< only with tails
  std::optional<Bytes> nominal_bytes;   ///< B per layer as asked for, before rounding to units
  std::optional<std::array<StoredStatistics, std::size(stored_organizations)>> stored;
  std::uint64_t reserve_failures = 0;  ///< failed reserves, all pools
  std::vector<std::uint64_t>
      pool_failures;  ///< failed reserves and waits by the pool that was short
  // The same by what was free: some but too little, nothing, or enough but for the headroom.
  std::vector<std::uint64_t> failures_some_free, failures_none_free, failures_headroom;
  std::uint64_t reserves_without_need = 0;  ///< granted reserves that took no unit
  /// Granted reserves that found nothing free in the pool (Table E-10): they took nothing of it
  /// beyond what they gave back first.
  std::vector<std::uint64_t> granted_none_free;
  // Failed allocations by what followed: somebody waits (a head of the line, or a running request
  // for a fence), somebody was preempted, or the request ran alone and was cut short or ended.
  // Their sum is that of pool_failures.
  std::uint64_t failures_deferred = 0, failures_preempted = 0, failures_alone = 0;
  // Scheduled tokens by purpose (Appendix C.3): catching up at a first admission, catching up after
  // a preemption, decode. Their sum is submitted_tokens.
  std::uint64_t initial_tokens = 0, resume_tokens = 0, normal_decode_tokens = 0;
  PhaseWork prefill_only, decode_only, mixed;  ///< steps by what they contain
  CentralWindow central;
  std::optional<PriceRecord> pricing;  ///< with the priced gate
  /// Of the cached checkpoints, those that lost attention on their path; over every 64th step.
  std::optional<double> orphaned_fraction;
  // With retention: boundaries that reached K requesters, that were kept, and that were given up.
  std::optional<std::uint64_t> eligible_boundaries, retained_boundaries, retained_yielded;
  // With pinning: boundaries pinned, refused by the protection budget, and given up.
  std::optional<std::uint64_t> pins, pins_over_budget, pins_yielded;

  double allocated_bytes_mean = 0;  ///< step-weighted, per layer
  double payload_bytes_mean = 0;
  std::optional<double> stranded_fraction;  ///< split pools only (Appendix B.4), step-weighted
  std::uint32_t running_median = 0;         ///< over steps
  std::uint32_t waiting_median = 0;
  std::uint32_t running_p10 = 0, running_p90 = 0, waiting_p10 = 0, waiting_p90 = 0;
  std::uint32_t running_p99 = 0, waiting_p99 = 0;
  double running_mean = 0;  ///< weighted by the time of the steps
  double waiting_mean = 0;
  /// With thresholds given, or observed on the comparator's requests or on those of all rows.
  std::optional<Goodput> goodput, goodput_comparator, goodput_union;

  std::vector<RequestRecord> requests;
  std::vector<TimelineSample> timeline;
};

/// The whole of one `compare` or `run`.
struct Comparison {
  std::string workload_name;
  std::string workload_description;
  std::string model;
  std::vector<std::string> heading;     ///< settings, one "name value" pair a line
  std::uint64_t excluded_requests = 0;  ///< refused under some row, dropped from all rows
  std::vector<RunResult> runs;          ///< row-major: all seeds of the first row, then the second
};

}  // namespace hybridstate::runtime
