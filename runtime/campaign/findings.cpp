// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "stats/paired.hpp"

namespace hybridstate::runtime {

namespace {

constexpr std::size_t first_look = 6;
constexpr double significance = 0.05;

std::string contrast_text(const Contrast& c) {
  std::string const at_arm = c.arm_point;
  if (c.baseline.empty()) return fmt::format("{}, {}", c.arm, at_arm);
  if (c.arm_point == c.baseline_point) return fmt::format("{} / {}, {}", c.arm, c.baseline, at_arm);
  if (c.arm == c.baseline) return fmt::format("{}, {} / {}", c.arm, at_arm, c.baseline_point);
  return fmt::format("{}, {} / {}, {}", c.arm, at_arm, c.baseline, c.baseline_point);
}

Form form_of(Statistic statistic) {
  switch (statistic) {
    case Statistic::relative_sign_flip:
    case Statistic::log_sign_flip:
      return Form::relative;
    case Statistic::containment:
      return Form::log_points;
    case Statistic::log_t_interval:
      return Form::log_percent;
  }
  return Form::relative;
}

/// The groups that a quantity is formed of: arm, baseline, and the same of what is subtracted.
std::vector<const CellGroup*> groups_of(const Results& results, const Quantity& q) {
  std::vector<const CellGroup*> groups;
  auto const add = [&](const Contrast& c) {
    groups.push_back(&results.group(c.experiment, c.arm_point, c.arm));
    if (!c.baseline.empty())
      groups.push_back(&results.group(c.experiment, c.baseline_point, c.baseline));
  };
  add(q.contrast);
  if (q.less) add(*q.less);
  return groups;
}

/// The effect of each seed before it is averaged: log effects stay logarithms.
std::vector<double> effects_of(Form form, const std::vector<std::vector<double>>& columns) {
  auto const of_pair = [&](std::span<const double> arm, std::span<const double> baseline) {
    switch (form) {
      case Form::relative:
        return relative_effects(arm, baseline);
      case Form::share: {
        std::vector<double> shares = relative_effects(arm, baseline);
        for (double& share : shares) share += 100;
        return shares;
      }
      case Form::log_points:
      case Form::log_percent: {
        std::vector<double> logs = log_ratios(arm, baseline);
        if (form == Form::log_points)
          for (double& z : logs) z *= 100;
        return logs;
      }
      case Form::difference: {
        std::vector<double> differences(arm.begin(), arm.end());
        for (std::size_t i = 0; i < differences.size(); ++i) differences[i] -= baseline[i];
        return differences;
      }
      case Form::level:
      case Form::geometric:
        break;
    }
    return std::vector<double>(arm.begin(), arm.end());
  };
  if (columns.size() == 1) return columns[0];
  std::vector<double> effects = of_pair(columns[0], columns[1]);
  if (columns.size() == 4) {
    std::vector<double> const less = of_pair(columns[2], columns[3]);
    for (std::size_t i = 0; i < effects.size(); ++i) effects[i] -= less[i];
  }
  return effects;
}

bool usable(Form form, double value) {
  return form == Form::level || form == Form::difference || value > 0;
}

/// Seeds in order with the value of each group, and the cells.
struct Paired {
  std::vector<std::vector<double>> columns;
  std::vector<SeedFinding> seeds;
  std::size_t declared = 0;
};
Paired pair(const Results& results, const Quantity& q) {
  Paired paired;
  std::vector<const CellGroup*> const groups = groups_of(results, q);
  paired.columns.resize(groups.size());
  for (std::uint64_t const seed : groups[0]->declared) {
    if (q.seed && *q.seed != seed) continue;
    if (!std::all_of(groups.begin(), groups.end(), [&](const CellGroup* g) {
          return std::find(g->declared.begin(), g->declared.end(), seed) != g->declared.end();
        }))
      continue;
    ++paired.declared;
    SeedFinding found{seed, 0, {}};
    std::vector<double> values;
    for (CellGroup const* g : groups) {
      auto const cell = g->cells.find(seed);
      if (cell == g->cells.end()) break;
      std::optional<double> const value = (*cell->second)[q.metric];
      if (!value || !usable(q.form, *value)) break;
      values.push_back(*value);
      found.cells.push_back(cell->second);
    }
    if (values.size() != groups.size()) continue;
    for (std::size_t g = 0; g < groups.size(); ++g) paired.columns[g].push_back(values[g]);
    paired.seeds.push_back(std::move(found));
  }
  return paired;
}

Quantity resolved(const Results& results, Quantity q) {
  auto const resolve = [&](Contrast& c) {
    c.arm_point = results.resolved(c.arm_point, c.arm).value_or(c.arm_point);
    c.baseline_point = results.resolved(c.baseline_point, c.baseline).value_or(c.baseline_point);
  };
  resolve(q.contrast);
  if (q.less) resolve(*q.less);
  return q;
}

/// p of one test over its effects, by the family's statistic and looks.
double p_of(const Family& family, std::span<const double> effects) {
  if (!family.two_looks || effects.size() < first_look) return sign_flip_p(effects);
  // A second look that was not performed has p = 1.
  double const second = effects.size() > first_look ? sign_flip_p(effects) : 1;
  return two_look_p(sign_flip_p(effects.first(first_look)), second);
}

std::string decision_of(const Family& family, const TestFinding& t) {
  Finding const& f = t.finding;
  switch (family.statistic) {
    case Statistic::relative_sign_flip:
    case Statistic::log_sign_flip:
      return t.adjusted && *t.adjusted < significance ? "rejected" : "not rejected";
    case Statistic::containment:
      return f.low >= -3 && f.high <= 3 ? "contained" : "not contained";
    case Statistic::log_t_interval:
      if (!t.test->less)  // inside one mode
        return f.low > 0 || f.high < 0 ? "interval excludes 0" : "interval includes 0";
      return f.low > 0 ? "confirmed" : f.value > 0 ? "directional" : "not confirmed";
  }
  return "";
}

}  // namespace

std::string Quantity::unit() const {
  switch (form) {
    case Form::relative:
      return less ? "points" : "%";
    case Form::log_percent:
    case Form::share:
      return "%";
    case Form::log_points:
      return "100 ln";
    case Form::level:
    case Form::geometric:
    case Form::difference:
      break;
  }
  return info(metric).title;
}

std::string Quantity::text() const {
  std::string text = contrast_text(contrast);
  if (less) text += " less " + contrast_text(*less);
  if (seed) text += fmt::format(", seed {}", *seed);
  return text;
}

Quantity level(Metric metric, const std::string& experiment, const std::string& point,
               const std::string& arm) {
  return {Form::level, metric, {experiment, arm, point, "", ""}};
}

Quantity effect(Form form, Metric metric, const std::string& experiment, const std::string& point,
                const std::string& arm, const std::string& baseline) {
  return {form, metric, {experiment, arm, point, baseline, point}};
}

std::size_t Finding::positive() const {
  return static_cast<std::size_t>(
      std::count_if(seeds.begin(), seeds.end(), [](const SeedFinding& s) { return s.value > 0; }));
}
std::size_t Finding::negative() const {
  return static_cast<std::size_t>(
      std::count_if(seeds.begin(), seeds.end(), [](const SeedFinding& s) { return s.value < 0; }));
}

std::string Finding::figures() const {
  if (seeds.empty()) return "";
  return seeds.front().cells.front()->simulated ? "simulated" : "measured";
}

Finding find(const Results& results, const Quantity& q, IntervalKind interval) {
  Paired paired = pair(results, q);
  Finding finding;
  finding.declared = paired.declared;
  finding.interval = interval;
  if (paired.seeds.empty()) return finding;
  std::vector<double> const effects = effects_of(q.form, paired.columns);
  auto const shown = [&](double effect) {  // of one seed or of the mean
    return q.form == Form::log_percent ? percent_effect(effect) : effect;
  };
  for (std::size_t i = 0; i < effects.size(); ++i) paired.seeds[i].value = shown(effects[i]);
  finding.seeds = std::move(paired.seeds);
  finding.value =
      q.form == Form::geometric ? geometric_mean(effects) : shown(arithmetic_mean(effects));
  if (effects.size() < 2) return finding;
  Interval ends{*finding.value, 0, 0};
  switch (interval) {
    case IntervalKind::range: {
      auto const [low, high] = std::minmax_element(effects.begin(), effects.end());
      ends.low = shown(*low);
      ends.high = shown(*high);
      break;
    }
    case IntervalKind::bootstrap_95:
      ends = bootstrap_interval(effects);
      break;
    case IntervalKind::t_90:
      ends = t_interval(effects, 0.90);
      break;
    case IntervalKind::log_t_95:
      ends = percent_t_interval(effects, 0.95);
      break;
  }
  finding.low = ends.low;
  finding.high = ends.high;
  return finding;
}

std::vector<TestFinding> decide(const Results& results, const Family& family) {
  std::vector<TestFinding> found;
  bool const tests_p = family.statistic == Statistic::relative_sign_flip ||
                       family.statistic == Statistic::log_sign_flip;
  bool complete = true;
  for (Test const& test : family.tests) {
    TestFinding t;
    t.family = &family;
    t.test = &test;
    t.quantity = {form_of(family.statistic),
                  family.timebase == "ledger" ? Metric::ledger_throughput : Metric::throughput,
                  test.contrast, test.less};
    t.shown = resolved(results, t.quantity);
    t.finding = find(results, t.quantity, family.interval);
    for (PaperTest const& paper : paper_tests())
      if (paper.family == family.id && paper.test == test.id) t.paper = &paper;
    complete = complete && t.finding.complete();
    if (tests_p && t.finding.complete()) {
      Quantity q = t.quantity;
      if (family.statistic == Statistic::log_sign_flip) q.form = Form::log_points;
      Paired const paired = pair(results, q);
      t.p = p_of(family, effects_of(q.form, paired.columns));
    }
    found.push_back(std::move(t));
  }
  if (tests_p && !complete) return found;
  if (tests_p) {
    std::vector<std::string> names;
    names.reserve(family.tests.size());
    for (Test const& test : family.tests) names.push_back(test.id);
    TestFamily corrected(family.id, names);
    for (TestFinding const& t : found) corrected.set(t.test->id, *t.p);
    auto const adjusted = corrected.adjusted();
    for (TestFinding& t : found) t.adjusted = family.holm ? adjusted.at(t.test->id) : *t.p;
  }
  for (TestFinding& t : found)
    if (t.finding.complete() && t.finding.low) t.decision = decision_of(family, t);
  return found;
}

AimFinding judge(const Results& results, const Aim& aim) {
  constexpr std::pair<Form, Metric> read[] = {{Form::share, Metric::throughput},
                                              {Form::relative, Metric::throughput},
                                              {Form::level, Metric::orphaned},
                                              {Form::level, Metric::preemptions_300}};
  AimFinding worst;
  worst.aim = &aim;
  bool complete = true;
  for (Contrast const& place : aim.places) {
    auto const [form, metric] = read[static_cast<int>(aim.of)];
    Quantity const quantity{form, metric, place};
    Finding finding = find(results, quantity);
    complete = complete && finding.complete();
    if (finding.value) ++worst.places;
    bool const worse = finding.value && worst.finding.value &&
                       (aim.at_most() ? *finding.value > *worst.finding.value
                                      : *finding.value < *worst.finding.value);
    if (!worst.finding.value || worse) {
      worst.quantity = quantity;
      worst.finding = std::move(finding);
    }
  }
  if (!complete || !worst.finding.value) return worst;
  double const shown = std::round(*worst.finding.value * 100) / 100;  // as the report has it
  worst.reached = aim.at_most() ? shown <= aim.bound : shown >= aim.bound;
  return worst;
}

bool same_sign(double ours, double papers) {
  return (ours > 0) == (papers > 0) && (ours < 0) == (papers < 0);
}

}  // namespace hybridstate::runtime
