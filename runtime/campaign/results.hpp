// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "campaign/folder.hpp"

namespace hybridstate::runtime {

/// What is read of a cell. A p99 is that of the run's requests; depths are means over INITIAL
/// episodes.
enum class Metric : std::uint8_t {
  throughput,         ///< output tokens/s over the request span
  ledger_throughput,  ///< output tokens/s over the span rounded up to whole seconds
  request_rate,
  ttft_p99,
  e2e_p99,
  tpot_p99,
  c_once,
  steps,
  submitted,
  busy_seconds,  ///< all phases
  prefill_seconds,
  decode_seconds,
  mixed_seconds,
  running,
  waiting,
  preemptions,
  hit_rate,
  initial_tokens,
  resume_tokens,
  attention_some_free,  ///< failed reserves of D0's attention pool: need > free > 0
  attention_none_free,
  recurrent_some_free,
  stranded,
  pins,
  eligible,
  enter_depth,
  adopt_depth,
  attention_depth_m0,
  attention_depth,  ///< A_max under M1
  recurrent_depth_m0,
  recurrent_depth,  ///< R_max under M1
  gap_depth,        ///< Gap_R under M1
  share_zero_zero,  ///< of the INITIAL episodes
  share_positive_equal,
  share_zero_positive,
  share_deeper,
  share_shallower,
  replay_different,
  orphaned,
  preemptions_300,  ///< for 300 requests
};
inline constexpr std::size_t metric_count = static_cast<std::size_t>(Metric::preemptions_300) + 1;

struct MetricInfo {
  const char* name;      ///< as in run_fields(), timebases or state_history
  const char* title;     ///< for people, with its unit
  const char* value;     ///< JSON pointers into a cell's file, added up where '+' joins them
  const char* per = "";  ///< JSON pointer of a divisor, or empty
  double factor = 1;     ///< from the file's unit to the title's
  int decimals = 1;      ///< shown
};
const MetricInfo& info(Metric metric);
/// By its name; also "span_output_throughput", which is what "output_throughput" reads.
std::optional<Metric> metric_named(std::string_view name);

/// One whole cell.
struct CellValues {
  std::string file;  ///< name of its file in cells/
  std::uint64_t seed = 0;
  bool simulated = true;
  std::array<std::optional<double>, metric_count> values;

  std::optional<double> operator[](Metric metric) const {
    return values[static_cast<std::size_t>(metric)];
  }
};

/// The cells of an arm at a point of an experiment.
struct CellGroup {
  std::vector<std::uint64_t> declared;               ///< seeds
  std::map<std::uint64_t, const CellValues*> cells;  ///< those that are there, by seed
};

/// How much of an experiment there is.
struct Coverage {
  std::size_t declared = 0;          ///< entries
  std::size_t present = 0;           ///< of these, with a cell
  std::vector<std::string> missing;  ///< cells that were selected and are not there
};

/// Everything that a campaign's folder holds, against its declarations.
class Results {
 public:
  /// Throws ReportError with one sentence when the folder is none, or what is in it is damaged or
  /// of another version.
  explicit Results(const CampaignFolder& folder);

  const Catalogue& catalogue() const noexcept { return catalogue_; }
  const CampaignSettings& settings() const noexcept { return settings_; }
  const std::vector<HeadroomChoice>& choices() const noexcept { return choices_.headroom; }
  std::size_t cell_count() const noexcept { return cells_.size(); }

  /// Empty for what is not declared. "f=selected" is resolved by the choices; without them there
  /// is no such group.
  const CellGroup& group(const std::string& experiment, const std::string& point,
                         const std::string& arm) const;
  /// The point with "f=selected" replaced by the arm's choice; nothing without the choice.
  std::optional<std::string> resolved(const std::string& point, const std::string& arm) const;
  const Coverage& coverage(const std::string& experiment) const { return coverage_.at(experiment); }
  /// "simulated" or "measured", as all cells of a campaign are; empty without cells.
  std::string figures() const;

 private:
  CampaignSettings settings_;
  Catalogue catalogue_;
  Choices choices_;
  std::map<std::string, CellValues> cells_;  ///< by id
  std::map<std::array<std::string, 3>, CellGroup> groups_;
  std::map<std::string, Coverage> coverage_;
};

}  // namespace hybridstate::runtime
