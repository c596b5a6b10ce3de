// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "report/table.hpp"
#include "report/text_table.hpp"
#include "version_text.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

bool belongs(const Question& question, const std::string& experiment) {
  return std::any_of(question.experiments.begin(), question.experiments.end(),
                     [&](const Experiment& e) { return e.id == experiment; });
}

IntervalKind interval_of(const Quantity& q) {
  return q.form == Form::log_percent ? IntervalKind::log_t_95 : IntervalKind::range;
}

/// Effects of ours that the paper has no value for.
std::vector<PaperReadout> our_readouts(const Catalogue& catalogue) {
  std::vector<PaperReadout> list;
  auto const add = [&](Quantity q) { list.push_back({std::move(q), {}, 0, {}, {}, ""}); };
  auto const retention = [](Metric metric, const char* mode) {
    return effect(Form::log_percent, metric, "Q9.producer", mode, "S2+Retention (producer)", "S2");
  };
  Quantity interaction = retention(Metric::ledger_throughput, "SHARE");
  interaction.less = retention(Metric::ledger_throughput, "ISOLATE").contrast;
  add(interaction);
  for (char const* mode : {"SHARE", "ISOLATE"}) add(retention(Metric::ledger_throughput, mode));
  for (Metric const metric : {Metric::adopt_depth, Metric::recurrent_depth})
    add(effect(Form::difference, metric, "Q8.depth", "SHARE", "S2+Retention (producer)", "S2"));

  // What each policy gains, and how far each arm is from infinite memory.
  Question const* const best = catalogue.find("best");
  if (best == nullptr) return list;
  for (Experiment const& e : best->experiments) {
    auto const places = places_of(e);
    for (auto const& [point, arm] : places) {
      std::string const organization = arm.substr(0, arm.find(' '));
      bool const options = e.id.ends_with("options");  // the bounds are an arm of theirs
      for (std::string const& baseline : {organization + " paper", std::string("infinite")})
        if (arm != baseline && !(options && baseline == "infinite") &&
            std::find(places.begin(), places.end(), std::pair(point, baseline)) != places.end())
          add(effect(Form::relative, Metric::throughput, e.id, point, arm, baseline));
    }
  }
  return list;
}

Json json_of(const Quantity& q, const Finding& f) {
  Json j = {{"quantity", q.text()}, {"metric", info(q.metric).name}, {"unit", q.unit()}};
  if (!f.figures().empty()) j["figures"] = f.figures();
  j["seeds"] = f.seeds.size();
  j["seeds_declared"] = f.declared;
  if (f.value) j["value"] = *f.value;
  if (f.low && f.high)
    j["interval"] = {{"kind", interval_name(f.interval)}, {"low", *f.low}, {"high", *f.high}};
  for (SeedFinding const& s : f.seeds) {
    Json seed = {{"seed", s.seed}, {"value", s.value}};
    for (CellValues const* cell : s.cells) seed["cells"].push_back(cell->file);
    j["by_seed"].push_back(std::move(seed));
  }
  return j;
}

Json json_of(const ComparisonRow& row) {
  Json j = {{"name", row.name}};
  if (row.test != nullptr) {
    j["family"] = row.test->family->id;
    if (row.test->p) j["p"] = *row.test->p;
    if (row.test->adjusted) j["adjusted_p"] = *row.test->adjusted;
    if (!row.test->decision.empty()) j["decision"] = row.test->decision;
  }
  j.update(json_of(*row.quantity, *row.finding));
  if (row.paper || row.paper_sign != 0) {
    Json paper = {{"source", row.source}};
    if (row.paper) paper["value"] = *row.paper;
    if (row.paper_low && row.paper_high)
      paper["interval"] = {{"low", *row.paper_low}, {"high", *row.paper_high}};
    if (row.paper_p) paper["adjusted_p"] = *row.paper_p;
    if (row.paper_sign != 0) paper["sign"] = row.paper_sign;
    j["paper"] = std::move(paper);
  }
  if (std::string const verdict = row.verdict(); !verdict.empty()) j["sign"] = verdict;
  return j;
}

}  // namespace

std::string ComparisonRow::verdict() const {
  if (!quantity->effect() || quantity->form == Form::log_points || !finding->value) return "";
  if (!paper && paper_sign == 0) return "";
  if (same_sign(*finding->value, paper ? *paper : paper_sign)) return "same";
  return *finding->value == 0 ? "zero" : "other";
}

bool ComparisonRow::paper_inconclusive() const {
  if (paper_p) return *paper_p >= 0.05;
  return paper_low && paper_high && *paper_low <= 0 && *paper_high >= 0;
}

ComparisonRow row_of(const std::string& question, const TestFinding& test) {
  ComparisonRow row;
  row.question = question;
  row.name = test.test->id;
  // An id such as "S1/S0 b63" is the contrast itself.
  if (row.name.find('/') == std::string::npos) row.title = test.shown.text();
  row.quantity = &test.quantity;
  row.unit = test.quantity.unit();
  row.finding = &test.finding;
  row.test = &test;
  if (test.paper != nullptr) {
    row.paper = test.paper->effect;
    row.paper_low = test.paper->low;
    row.paper_high = test.paper->high;
    row.paper_p = test.paper->p;
    row.source = test.paper->source;
  }
  return row;
}

ComparisonRow row_of(const std::string& question, const ReadoutFinding& readout) {
  ComparisonRow row;
  row.question = question;
  row.quantity = &readout.paper.quantity;
  row.name = fmt::format("{}: {}", row.quantity->contrast.experiment, row.quantity->text());
  if (row.quantity->metric != Metric::throughput)
    row.name += fmt::format(": {}", info(row.quantity->metric).title);
  row.unit = row.quantity->unit();
  row.finding = &readout.finding;
  row.paper = readout.paper.value;
  row.paper_low = readout.paper.low;
  row.paper_high = readout.paper.high;
  row.paper_sign = readout.paper.sign;
  row.source = readout.paper.source;
  return row;
}

CampaignReport report_of(const Results& results) {
  CampaignReport report;
  report.results = &results;
  std::vector<TestFinding> tests;
  for (Family const& family : results.catalogue().families)
    for (TestFinding& t : decide(results, family)) tests.push_back(std::move(t));
  std::vector<PaperReadout> printed = paper_readouts();
  for (PaperReadout& ours : our_readouts(results.catalogue())) printed.push_back(std::move(ours));

  for (Question const& question : results.catalogue().questions) {
    QuestionFindings q;
    q.question = &question;
    for (Experiment const& e : question.experiments) {
      q.declared += results.coverage(e.id).declared;
      q.present += results.coverage(e.id).present;
    }
    for (TestFinding const& t : tests)
      if (belongs(question, t.quantity.contrast.experiment)) q.tests.push_back(t);
    for (PaperReadout const& readout : printed) {
      Quantity const& quantity = readout.quantity;
      if (quantity.seed || !belongs(question, quantity.contrast.experiment)) continue;
      bool const tested = std::any_of(q.tests.begin(), q.tests.end(),
                                      [&](const TestFinding& t) { return t.quantity == quantity; });
      if (tested) continue;
      auto& list = quantity.effect() ? q.effects : q.levels;
      list.push_back({readout, find(results, quantity, interval_of(quantity))});
    }
    for (Aim const& aim : question.aims) q.aims.push_back(judge(results, aim));
    auto const count = [&](const ComparisonRow& row) {
      std::string const verdict = row.verdict();
      q.compared += verdict.empty() ? 0 : 1;
      q.same_sign += verdict == "same" ? 1 : 0;
      q.zero += verdict == "zero" ? 1 : 0;
    };
    for (TestFinding const& t : q.tests) count(row_of(question.id, t));
    for (ReadoutFinding const& r : q.effects) count(row_of(question.id, r));
    report.questions.push_back(std::move(q));
  }
  return report;
}

std::vector<ComparisonRow> CampaignReport::summary() const {
  std::vector<ComparisonRow> rows;
  for (QuestionFindings const& q : questions) {
    bool tested = false;
    for (TestFinding const& t : q.tests) {
      if (t.paper == nullptr) continue;
      rows.push_back(row_of(q.question->id, t));
      tested = true;
    }
    // Without a declared test, the effects on throughput and input work answer.
    for (ReadoutFinding const& r : q.effects) {
      Metric const metric = r.paper.quantity.metric;
      bool const answers = !tested && r.paper.value &&
                           (metric == Metric::throughput || metric == Metric::ledger_throughput ||
                            metric == Metric::c_once);
      if (r.paper.headline || answers) rows.push_back(row_of(q.question->id, r));
    }
  }
  return rows;
}

std::string value_text(const Quantity& quantity, std::optional<double> value) {
  if (!value) return "";
  if (quantity.form == Form::share) return grouped(*value, 2);
  if (!quantity.effect()) return grouped(*value, info(quantity.metric).decimals);
  int const decimals = quantity.form == Form::difference ? info(quantity.metric).decimals : 2;
  std::string const text = grouped(*value, decimals);
  return *value > 0 ? "+" + text : text;
}

std::string paper_text(const ComparisonRow& row) {
  if (row.paper_sign != 0) return row.paper_sign < 0 ? "below 0" : "above 0";
  return value_text(*row.quantity, row.paper);
}

std::string summary_text(const CampaignReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"question, effect", "unit", "paper", "ours", "seeds", "adjusted p", "decision", "sign"}};
  std::string last;
  for (ComparisonRow const& row : report.summary()) {
    if (row.question != last) rows.push_back({row.question, "", "", "", "", "", "", ""});
    last = row.question;
    std::string unit = row.quantity->form == Form::difference ? "" : row.unit;
    rows.push_back(
        {"  " + row.full_name(), unit, paper_text(row),
         row.finding->value ? value_text(*row.quantity, row.finding->value) : "not run",
         fmt::format("{}/{}", row.finding->seeds.size(), row.finding->declared),
         row.test != nullptr && row.test->adjusted ? fmt::format("{:.4f}", *row.test->adjusted)
                                                   : "",
         row.test != nullptr ? row.test->decision : "",
         row.verdict() + (row.paper_inconclusive() && !row.verdict().empty() ? "*" : " ")});
  }
  std::string text = aligned_table(rows, 0);
  text += "* the paper's own result is inconclusive\n\n";
  std::vector<std::vector<std::string>> totals = {
      {"question", "cells", "effects compared", "same sign", "ours is 0"}};
  for (QuestionFindings const& q : report.questions)
    totals.push_back({q.question->id, fmt::format("{}/{}", q.present, q.declared),
                      fmt::format("{}", q.compared), fmt::format("{}", q.same_sign),
                      fmt::format("{}", q.zero)});
  text += aligned_table(totals, 0);
  std::vector<std::vector<std::string>> aims = {{"aim", "asked for", "found", ""}};
  for (QuestionFindings const& q : report.questions)
    for (AimFinding const& a : q.aims)
      if (a.places > 0)
        aims.push_back({a.aim->name, bound_text(a), found_text(a), verdict_text(a)});
  return aims.size() == 1 ? text : text + '\n' + aligned_table(aims, 0);
}

std::string bound_text(const AimFinding& a) {
  char const* const unit = a.aim->of == Aim::Of::preemptions ? "" : " %";
  return fmt::format("{} {}{}", a.aim->at_most() ? "at most" : "at least", a.aim->bound, unit);
}

std::string found_text(const AimFinding& a) {
  if (!a.finding.value) return "not run";
  std::string const value = value_text(a.quantity, a.finding.value);
  return a.aim->of == Aim::Of::preemptions ? value : value + " %";
}

std::string verdict_text(const AimFinding& a) {
  if (a.reached) return *a.reached ? "reached" : "missed";
  return fmt::format("open: {} of {} places, not all seeds", a.places, a.aim->places.size());
}

std::string report_json(const CampaignReport& report) {
  Results const& results = *report.results;
  Json j = {{"schema", 1},
            {"version", version_text()},
            {"figures", results.figures()},
            {"cells_present", results.cell_count()}};
  for (HeadroomChoice const& choice : results.choices())
    j["choices"].push_back(
        {{"budget", choice.budget}, {"arm", choice.arm}, {"headroom", choice.headroom}});
  for (QuestionFindings const& q : report.questions) {
    Json question = {{"id", q.question->id},
                     {"question", q.question->text},
                     {"cells_declared", q.declared},
                     {"cells_present", q.present}};
    for (Experiment const& e : q.question->experiments)
      for (std::string const& file : results.coverage(e.id).missing)
        question["missing"].push_back(file);
    question["effects_compared"] = q.compared;
    question["same_sign"] = q.same_sign;
    question["zero"] = q.zero;
    for (AimFinding const& a : q.aims) {
      Json aim = {{"aim", a.aim->name},
                  {a.aim->at_most() ? "at_most" : "at_least", a.aim->bound},
                  {"places", a.aim->places.size()},
                  {"places_found", a.places}};
      if (a.reached) aim["reached"] = *a.reached;
      aim.update(json_of(a.quantity, a.finding));
      question["aims"].push_back(std::move(aim));
    }
    for (TestFinding const& t : q.tests)
      question["tests"].push_back(json_of(row_of(q.question->id, t)));
    for (ReadoutFinding const& r : q.effects)
      question["effects"].push_back(json_of(row_of(q.question->id, r)));
    for (ReadoutFinding const& r : q.levels)
      question["levels"].push_back(json_of(row_of(q.question->id, r)));
    j["questions"].push_back(std::move(question));
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace hybridstate::runtime
