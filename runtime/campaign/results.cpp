// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "report/file.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* episodes = "/state_history/initial/episodes";

constexpr std::array<MetricInfo, metric_count> metrics = {{
    {"output_throughput", "output tokens/s", "/timebases/span_output_throughput"},
    {"ledger_output_throughput", "output tokens/s, ledger", "/timebases/ledger_output_throughput"},
    {"request_throughput", "requests/s", "/result/request_throughput", "", 1, 3},
    {"p99_ttft_ms", "TTFT p99 (s)", "/result/p99_ttft_ms", "", 1e-3, 2},
    {"p99_e2el_ms", "E2E p99 (s)", "/result/p99_e2el_ms", "", 1e-3, 2},
    {"p99_tpot_ms", "TPOT p99 (ms)", "/result/p99_tpot_ms", "", 1, 1},
    {"c_once", "C_once (tokens/run)", "/result/c_once", "", 1, 0},
    {"iterations", "steps/run", "/result/iterations", "", 1, 0},
    {"submitted_tokens", "submitted tokens/run", "/result/submitted_tokens", "", 1, 0},
    {"busy_seconds", "seconds in steps/run",
     "/result/prefill_only_seconds+/result/decode_only_seconds+/result/mixed_seconds", "", 1, 2},
    {"prefill_only_seconds", "prefill-only seconds/run", "/result/prefill_only_seconds", "", 1, 3},
    {"decode_only_seconds", "decode-only seconds/run", "/result/decode_only_seconds", "", 1, 2},
    {"mixed_seconds", "mixed seconds/run", "/result/mixed_seconds", "", 1, 2},
    {"running_median", "running p50", "/result/running_median"},
    {"waiting_median", "waiting p50", "/result/waiting_median"},
    {"preemptions", "preemptions/run", "/result/preemptions"},
    {"hit_rate_tokens", "adopted prefix / input (%)", "/result/hit_rate_tokens", "", 100},
    {"initial_tokens", "INITIAL tokens/run", "/result/initial_tokens", "", 1, 0},
    {"resume_tokens", "RESUME tokens/run", "/result/resume_tokens", "", 1, 0},
    {"attention_failures_some_free", "attention: need > free > 0", "/result/failures_some_free/0"},
    {"attention_failures_none_free", "attention: free = 0", "/result/failures_none_free/0"},
    {"recurrent_failures_some_free", "recurrent: need > free > 0", "/result/failures_some_free/1"},
    {"stranded_fraction", "stranded bytes (%)", "/result/stranded_fraction", "", 100, 3},
    {"pins", "pins/run", "/result/pins"},
    {"eligible_boundaries", "eligible boundaries/run", "/result/eligible_boundaries"},
    {"j_enter", "J_enter (tokens)", "/state_history/initial/means/j_enter"},
    {"j_adopt", "J_adopt (tokens)", "/state_history/initial/means/j_adopt"},
    {"a_m0", "A_max, M0 (tokens)", "/state_history/initial/token_sums/a/m0", episodes},
    {"a_m1", "A_max, M1 (tokens)", "/state_history/initial/means/a_m1"},
    {"r_m0", "R_max, M0 (tokens)", "/state_history/initial/token_sums/r/m0", episodes},
    {"r_m1", "R_max, M1 (tokens)", "/state_history/initial/means/r_m1"},
    {"gap_r_m1", "Gap_R, M1 (tokens)", "/state_history/initial/means/gap_r_m1"},
    {"zero_zero", "zero -> zero", "/state_history/initial/transitions/zero_zero", episodes, 1, 3},
    {"positive_equal", "positive, equal", "/state_history/initial/transitions/positive_equal",
     episodes, 1, 3},
    {"zero_positive", "zero -> positive", "/state_history/initial/transitions/zero_positive",
     episodes, 1, 3},
    {"deeper", "deeper", "/state_history/initial/transitions/deeper", episodes, 1, 3},
    {"shallower", "shallower", "/state_history/initial/transitions/shallower", episodes, 1, 3},
    {"replay_different", "admissions whose replay differs", "/state_history/replay/different", "",
     1, 0},
    {"orphaned_fraction", "orphaned checkpoints (%)", "/result/orphaned_fraction", "", 100, 2},
    {"preemptions_300", "preemptions for 300 requests", "/result/preemptions", "/result/completed",
     300, 2},
}};

std::optional<double> number_at(const Json& cell, std::string_view pointer) {
  Json::json_pointer const at{std::string(pointer)};
  if (!cell.contains(at) || !cell.at(at).is_number()) return std::nullopt;
  return cell.at(at).get<double>();
}

std::optional<double> value_of(const Json& cell, const MetricInfo& metric) {
  double sum = 0;
  for (std::string_view left = metric.value; !left.empty();) {
    std::size_t const plus = std::min(left.find('+'), left.size());
    std::optional<double> const part = number_at(cell, left.substr(0, plus));
    if (!part) return std::nullopt;
    sum += *part;
    left.remove_prefix(std::min(plus + 1, left.size()));
  }
  sum *= metric.factor;
  if (*metric.per == '\0') return sum;
  std::optional<double> const divisor = number_at(cell, metric.per);
  if (!divisor || *divisor == 0) return std::nullopt;
  return sum / *divisor;
}

}  // namespace

std::optional<Metric> metric_named(std::string_view name) {
  if (name == "span_output_throughput") return Metric::throughput;
  for (std::size_t m = 0; m < metric_count; ++m)
    if (metrics[m].name == name) return static_cast<Metric>(m);
  return std::nullopt;
}

const MetricInfo& info(Metric metric) { return metrics[static_cast<std::size_t>(metric)]; }

Results::Results(const CampaignFolder& folder) {
  Selection selection;
  std::tie(settings_, selection) = folder.declared();
  catalogue_ = declare(settings_);
  choices_ = folder.choices();
  add_chosen_cells(catalogue_, choices_);

  std::map<std::string, std::string> missing;  // file name by id
  for (int const stage : {1, 2})
    for (PlannedCell const& planned : planned_cells(catalogue_, selection, stage)) {
      std::string problem;
      std::optional<Json> const j = folder.load(planned, problem);
      std::string const file = folder.cell_path(planned.cell).filename().string();
      if (!problem.empty())
        throw ReportError(fmt::format("{} is damaged: {}; campaign run makes it again",
                                      folder.cell_path(planned.cell).string(), problem));
      std::string const id = cell_id(planned.cell);
      if (!j) {
        missing.emplace(id, file);
        continue;
      }
      CellValues cell{file, planned.cell.seed, (*j)["figures"] == "simulated", {}};
      for (std::size_t m = 0; m < metric_count; ++m) cell.values[m] = value_of(*j, metrics[m]);
      cells_.emplace(id, std::move(cell));
    }

  for (Question const& question : catalogue_.questions)
    for (Experiment const& e : question.experiments) {
      Coverage& coverage = coverage_[e.id];
      for (Entry const& entry : e.entries) {
        CellGroup& group = groups_[{e.id, entry.point, entry.arm}];
        group.declared.push_back(entry.cell.seed);
        ++coverage.declared;
        std::string const id = cell_id(entry.cell);
        if (auto const found = cells_.find(id); found != cells_.end()) {
          group.cells[entry.cell.seed] = &found->second;
          ++coverage.present;
        } else if (auto const lost = missing.find(id); lost != missing.end()) {
          coverage.missing.push_back(lost->second);
        }
      }
    }
}

std::optional<std::string> Results::resolved(const std::string& point,
                                             const std::string& arm) const {
  constexpr std::string_view by_choice = " f=selected";
  if (!point.ends_with(by_choice)) return point;
  std::string const budget = point.substr(0, point.size() - by_choice.size());
  for (HeadroomChoice const& choice : choices_.headroom)
    if (choice.budget == budget && choice.arm == arm)
      return headroom_point(budget, choice.headroom);
  return std::nullopt;
}

const CellGroup& Results::group(const std::string& experiment, const std::string& point,
                                const std::string& arm) const {
  static const CellGroup none;
  std::optional<std::string> const real = resolved(point, arm);
  if (!real) return none;
  auto const found = groups_.find({experiment, *real, arm});
  return found == groups_.end() ? none : found->second;
}

std::string Results::figures() const {
  if (cells_.empty()) return "";
  return cells_.begin()->second.simulated ? "simulated" : "measured";
}

}  // namespace hybridstate::runtime
