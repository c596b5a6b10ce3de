// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "campaign/cell.hpp"

namespace hybridstate::runtime {

/// A cell in its place in an experiment. Entries with equal point and arm differ by seed alone;
/// seeds pair the arms of a point.
struct Entry {
  std::string point;  ///< operating point, e.g. "b63", "b83 f=0.19", "q=0.5"
  std::string arm;    ///< what is compared at the point, e.g. "S2", "S2+Retention"
  Cell cell;
};

/// What an experiment is for, fixed before it runs.
enum class Role : std::uint8_t {
  primary,      ///< its primary readout decides
  descriptive,  ///< reported without a decision
  selection,    ///< chooses a setting for a confirmation; no evidence of its own
  sensitivity,  ///< repeats a primary readout under another rule
};
const char* role_name(Role role);

struct Experiment {
  std::string id = {};      ///< unique, e.g. "Q1.main"
  std::string source = {};  ///< where the paper says so, e.g. "Exp. 1a; Table 2, Section 5.1"
  std::string design = {};
  Role role = Role::descriptive;
  std::string primary = {};    ///< primary readout
  std::string secondary = {};  ///< the other readouts
  std::string rule = {};       ///< how the primary readout is decided
  std::string inferred = {};   ///< what the paper does not state and we chose; empty: nothing
  bool balanced = false;       ///< the arms of a seed run in an order that rotates with the seed
  int stage = 1;               ///< 2: runs after the choices of stage 1 are written
  std::vector<Entry> entries = {};
};

/// Arm against baseline, seed by seed. A point may end in "f=selected": the headroom that the
/// choices name for the arm.
struct Contrast {
  std::string experiment;
  std::string arm, arm_point;
  std::string baseline, baseline_point;

  friend bool operator==(const Contrast&, const Contrast&) = default;
};

/// What a question's results are to reach, declared like its rules. Of several places the worst
/// decides.
struct Aim {
  enum class Of : std::uint8_t {
    share,        ///< output tokens/s in percent of the baseline's, at least
    gain,         ///< output tokens/s against the baseline, in percent, at least
    orphaned,     ///< part of the cached checkpoints, in percent, at most
    preemptions,  ///< for 300 requests, at most
  };
  std::string name;
  Of of = Of::share;
  double bound = 0;
  std::vector<Contrast> places = {};  ///< those of orphans and preemptions have no baseline

  bool at_most() const { return of == Of::orphaned || of == Of::preemptions; }
};

struct Question {
  std::string id = {};  ///< "Q1" to "Q9", or a word for what the appendices add
  std::string text;
  std::vector<Experiment> experiments = {};
  std::vector<Aim> aims = {};
};

/// The operating point of a budget under a headroom in Q6.
std::string headroom_point(const std::string& budget, double f);

/// One declared test: a contrast, or the difference of two.
struct Test {
  std::string id = {};
  Contrast contrast;
  std::optional<Contrast> less = {};  ///< subtracted
};

enum class Statistic : std::uint8_t {
  relative_sign_flip,  ///< all sign assignments of 100 (arm / baseline - 1)
  log_sign_flip,       ///< all sign assignments of ln(arm / baseline)
  containment,         ///< 90 % paired t interval of 100 ln(arm / baseline) inside +-3
  log_t_interval,      ///< 95 % paired t interval of the log effects, in percent
};
const char* statistic_name(Statistic statistic);

enum class IntervalKind : std::uint8_t {
  range,         ///< smallest to largest seed
  bootstrap_95,  ///< percentile bootstrap of the mean
  t_90,
  log_t_95,  ///< in log space, then percent (G4)
};
const char* interval_name(IntervalKind kind);

/// Tests that are decided together.
struct Family {
  std::string id = {};
  std::string source = {};
  Statistic statistic = Statistic::log_sign_flip;
  IntervalKind interval = IntervalKind::range;  ///< shown beside each effect
  bool holm = false;
  bool two_looks = false;     ///< p = min(1, 2 min(p of the first 6 seeds, p of all 9))
  std::string timebase = {};  ///< "span" or "ledger"
  std::string rule = {};
  std::string inferred = {};
  std::vector<Test> tests = {};
};

/// Every question, experiment and family.
struct Catalogue {
  std::vector<Question> questions;
  std::vector<Family> families;

  const Question* find(const std::string& id) const;
  const Experiment* experiment(const std::string& id) const;
};

/// Every point and arm of an experiment once, as declared.
std::vector<std::pair<std::string, std::string>> places_of(const Experiment& experiment);

/// What one machine or reader may change about the declared cells.
struct CampaignSettings {
  std::string executor = "sim";
  std::string model;                  ///< cpu: name and digest of the model; else empty
  std::uint32_t requests = 0;         ///< of the paper's workload; 0: as declared
  std::string mooncake;               ///< digest of the trace; empty: without its cells
  std::vector<std::string> policies;  ///< of the question "best"
};

/// Policies of the question "best".
inline constexpr const char* beyond_policies[] = {"paper", "best"};

/// The declarations; equal settings give equal ones.
Catalogue declare(const CampaignSettings& settings);

/// A headroom that the selection runs chose for one organization at one budget.
struct HeadroomChoice {
  std::string budget, arm;
  std::string experiment;  ///< whose cells it rests on
  double headroom = 0;
  double best = 0;                 ///< the candidate with the highest mean
  std::map<double, double> means;  ///< output tokens per second by candidate
};

/// What the cells of stage 1 decide for stage 2.
struct Choices {
  std::vector<HeadroomChoice> headroom;    ///< Q6
  std::map<std::string, double> capacity;  ///< best, Mooncake: requests/s of S2 under the policy
                                           ///< paper at saturation, by memory
  bool empty() const { return headroom.empty() && capacity.empty(); }
};

/// Whether an entry is taken; a field of run_fields() of a cell's result.
using EntryFilter = std::function<bool(const Experiment&, const Entry&)>;
using CellField = std::function<double(const Cell& cell, const char* field)>;

/// Q6's rule: the smallest candidate whose mean output tokens/s is within 1 % of the highest. The
/// candidates of b83's S2 come from its own search, the others from the first. Entries that `use`
/// does not take are left out; throws std::invalid_argument when a pair has none left.
std::vector<HeadroomChoice> choose_headroom(const Catalogue& catalogue, const EntryFilter& use,
                                            const CellField& field);

/// The capacities that the loads of best.mooncake-load are parts of; empty without a trace.
std::map<std::string, double> mooncake_capacity(const Catalogue& catalogue, const EntryFilter& use,
                                                const CellField& field);

/// Adds the cells of stage 2 that depend on choices: headrooms outside the confirmation's grid, and
/// loads relative to a capacity.
void add_chosen_cells(Catalogue& catalogue, const Choices& choices);

/// The entries of an experiment in the order in which a device would run them: seed by seed, and
/// inside a seed as declared, rotated by the seed's position if the order is balanced.
std::vector<const Entry*> execution_order(const Experiment& experiment);

}  // namespace hybridstate::runtime
