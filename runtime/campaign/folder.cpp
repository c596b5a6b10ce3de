// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "report/file.hpp"
#include "report/json.hpp"
#include "version_text.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

void write_json(const std::filesystem::path& path, const Json& json) {
  write_text_atomically(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
}

Json object_of(const std::vector<std::pair<std::string, std::string>>& settings) {
  Json object = Json::object();
  for (auto const& [name, value] : settings) object[name] = value;
  return object;
}

/// What a cell's file says before its result: a file that says anything else is not this cell's.
Json head_of(const PlannedCell& planned) {
  return {{"schema", schema},
          {"id", cell_id(planned.cell)},
          {"version", version_text()},
          {"figures", planned.cell.executor == "sim" ? "simulated" : "measured"},
          {"settings", object_of(settings_of(planned.cell))},
          {"uses", planned.uses}};
}

Json settings_json(const CampaignSettings& s) {
  return {{"executor", s.executor},
          {"model", s.model},
          {"requests", s.requests},
          {"mooncake", s.mooncake},
          {"policies", s.policies}};
}

Json contrast_json(const Contrast& c) {
  return {{"experiment", c.experiment},
          {"arm", c.arm},
          {"arm_point", c.arm_point},
          {"baseline", c.baseline},
          {"baseline_point", c.baseline_point}};
}

Json family_json(const Family& family) {
  Json j = {{"id", family.id},
            {"source", family.source},
            {"statistic", statistic_name(family.statistic)},
            {"interval", interval_name(family.interval)},
            {"correction", family.holm ? "Holm over all tests of the family" : "none"},
            {"two_looks", family.two_looks},
            {"timebase", family.timebase},
            {"rule", family.rule}};
  if (!family.inferred.empty()) j["inferred"] = family.inferred;
  for (Test const& test : family.tests) {
    Json t = {{"id", test.id}, {"contrast", contrast_json(test.contrast)}};
    if (test.less) t["less"] = contrast_json(*test.less);
    j["tests"].push_back(std::move(t));
  }
  return j;
}

Json aim_json(const Aim& aim) {
  constexpr const char* of[] = {"output tokens/s in percent of the baseline's",
                                "output tokens/s against the baseline in percent",
                                "orphaned checkpoints in percent of the cached ones",
                                "preemptions for 300 requests"};
  Json j = {{"aim", aim.name},
            {"of", of[static_cast<int>(aim.of)]},
            {aim.at_most() ? "at_most" : "at_least", aim.bound}};
  for (Contrast const& place : aim.places) j["places"].push_back(contrast_json(place));
  return j;
}

Json experiment_json(const Experiment& e) {
  Json j = {{"id", e.id},           {"source", e.source},
            {"design", e.design},   {"role", role_name(e.role)},
            {"primary", e.primary}, {"secondary", e.secondary},
            {"rule", e.rule}};
  if (!e.inferred.empty()) j["inferred"] = e.inferred;
  j["stage"] = e.stage;
  j["order"] = e.balanced ? "seed by seed, the arms rotated by one place from seed to seed"
                          : "seed by seed, the arms as listed";
  // Seeds of one point and arm follow each other.
  for (Entry const& entry : e.entries) {
    Json& groups = j["cells"];
    if (groups.empty() || groups.back()["point"] != entry.point ||
        groups.back()["arm"] != entry.arm)
      groups.push_back({{"point", entry.point}, {"arm", entry.arm}});
    groups.back()["seeds"].push_back(entry.cell.seed);
    groups.back()["ids"].push_back(cell_id(entry.cell));
  }
  return j;
}

Json declarations(const CampaignSettings& settings, const Catalogue& catalogue) {
  Json j = {{"schema", schema},
            {"version", version_text()},
            {"settings", settings_json(settings)},
            {"timebases",
             {{"span", "first arrival to last completion, in nanoseconds of the run's clock"},
              {"ledger", "the span rounded up to whole seconds"}}},
            {"execution",
             settings.executor == "sim"
                 ? "simulated: the declared orders have no effect, cells run longest first and in "
                   "parallel"
                 : "measured: one cell at a time in the declared order"}};
  for (Family const& family : catalogue.families) j["families"].push_back(family_json(family));
  for (Question const& question : catalogue.questions) {
    Json q = {{"id", question.id}, {"question", question.text}};
    for (Experiment const& e : question.experiments) q["experiments"].push_back(experiment_json(e));
    for (Aim const& aim : question.aims) q["aims"].push_back(aim_json(aim));
    j["questions"].push_back(std::move(q));
  }
  return j;
}

}  // namespace

SeedFilter::SeedFilter(const std::string& text) : text_(text) {
  if (text.empty()) return;
  auto const bad = [&] {
    return std::invalid_argument(
        fmt::format("seeds \"{}\": use first:N or a list such as 42000-42003,0,1", text));
  };
  auto const number = [&](std::string_view digits) {
    std::uint64_t value = 0;
    auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) throw bad();
    return value;
  };
  if (text.starts_with("first:")) {
    first_ = number(std::string_view(text).substr(6));
    if (*first_ == 0) throw bad();
    return;
  }
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t const comma = std::min(text.find(',', at), text.size());
    std::string_view const item = std::string_view(text).substr(at, comma - at);
    std::size_t const dash = item.find('-');
    std::uint64_t const low = number(item.substr(0, dash));
    std::uint64_t const high = dash == std::string_view::npos ? low : number(item.substr(dash + 1));
    if (high < low) throw bad();
    ranges_.emplace_back(low, high);
    at = comma + 1;
  }
}

bool SeedFilter::takes(const Experiment& experiment, const Entry& entry) const {
  std::uint64_t const seed = entry.cell.seed;
  if (first_) return seed - experiment.entries.front().cell.seed < *first_;
  return ranges_.empty() || std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
           return range.first <= seed && seed <= range.second;
         });
}

std::vector<PlannedCell> planned_cells(const Catalogue& catalogue, const Selection& selection,
                                       int stage) {
  std::map<std::string, Json> uses;  // over all questions: a file does not depend on the selection
  for (Question const& question : catalogue.questions)
    for (Experiment const& e : question.experiments)
      for (Entry const& entry : e.entries)
        uses[cell_id(entry.cell)].push_back({{"experiment", e.id},
                                             {"point", entry.point},
                                             {"arm", entry.arm},
                                             {"role", role_name(e.role)}});
  std::vector<PlannedCell> cells;
  std::set<std::string> taken;
  for (Question const& question : catalogue.questions) {
    auto const selected = selection.find(question.id);
    if (selected == selection.end()) continue;
    for (Experiment const& e : question.experiments) {
      if (e.stage != stage) continue;
      for (Entry const* entry : execution_order(e)) {
        std::string const id = cell_id(entry->cell);
        if (selected->second.takes(e, *entry) && taken.insert(id).second)
          cells.push_back({entry->cell, uses.at(id)});
      }
    }
  }
  return cells;
}

std::filesystem::path CampaignFolder::cell_path(const Cell& cell) const {
  return path_ / "cells" / (cell_stem(cell) + ".json");
}

void CampaignFolder::declare(const CampaignSettings& settings, const Catalogue& catalogue,
                             const Selection& selection) const {
  make_folder(path_ / "cells");
  Json declared = declarations(settings, catalogue);
  Json selected = Json::object();
  auto const file = path_ / "campaign.json";
  std::optional<std::string> const old_text = text_of_file(file);
  if (old_text) {
    Json old = Json::parse(*old_text, nullptr, false);
    if (!old.is_object() || !old.contains("selected"))
      throw std::invalid_argument(
          fmt::format("{} is not a campaign's declaration; move it away", file.string()));
    selected = old["selected"];
    old.erase("selected");
    if (old != declared)
      throw std::invalid_argument(fmt::format(
          "{} declares other settings, experiments or another version than this call; what is "
          "declared before a run stays: use another folder",
          file.string()));
  }
  for (auto const& [question, seeds] : selection) selected[question] = seeds.text();
  declared["selected"] = std::move(selected);
  std::string const text = declared.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
  if (!old_text || *old_text != text) write_text_atomically(file, text);
}

std::pair<CampaignSettings, Selection> CampaignFolder::declared() const {
  auto const file = path_ / "campaign.json";
  auto const text = text_of_file(file);
  if (!text)
    throw ReportError(
        fmt::format("{} holds no campaign: there is no campaign.json", path_.string()));
  std::pair<CampaignSettings, Selection> result;
  bool current = false;
  try {
    Json const j = Json::parse(*text);
    Json const& s = j.at("settings");
    result.first = {s.at("executor"), s.at("model"), s.at("requests"), s.at("mooncake"),
                    s.at("policies")};
    for (auto const& [question, seeds] : j.at("selected").items())
      result.second.emplace(question, SeedFilter(seeds.get<std::string>()));
    Json declared = j;
    declared.erase("selected");
    current = declared == declarations(result.first, hybridstate::runtime::declare(result.first));
  } catch (const std::exception&) {
    throw ReportError(
        fmt::format("{} is damaged: it is not a campaign's declaration", file.string()));
  }
  if (!current)
    throw ReportError(
        fmt::format("{} declares other experiments than hybridstate {}; read it with the version "
                    "that wrote it",
                    file.string(), version_text()));
  return result;
}

std::optional<Json> CampaignFolder::load(const PlannedCell& cell, std::string& problem) const {
  problem.clear();
  std::optional<std::string> const text = text_of_file(cell_path(cell.cell));
  if (!text) return std::nullopt;
  Json j = Json::parse(*text, nullptr, false);
  if (!j.is_object() || !j.contains("digest")) {
    problem = "it is cut off or no JSON";
    return std::nullopt;
  }
  Json const digest = j["digest"];
  j.erase("digest");
  if (digest != digest_of(j.dump(-1, ' ', false, Json::error_handler_t::replace))) {
    problem = "its digest does not match";
    return std::nullopt;
  }
  Json const head = head_of(cell);
  for (auto const& [key, value] : head.items())
    if (!j.contains(key) || j[key] != value) {
      problem = fmt::format("its {} is another", key);
      return std::nullopt;
    }
  return j;
}

void CampaignFolder::save(const PlannedCell& cell, const Json& result) const {
  Json j = head_of(cell);
  j.update(result);
  j["digest"] = digest_of(j.dump(-1, ' ', false, Json::error_handler_t::replace));
  write_json(cell_path(cell.cell), j);
}

void CampaignFolder::write_choices(const Choices& choices) const {
  Json j = {{"schema", schema},
            {"rule", "the smallest f whose mean output tokens/s is within 1 % of the highest"}};
  for (HeadroomChoice const& choice : choices.headroom) {
    Json c = {{"budget", choice.budget},
              {"arm", choice.arm},
              {"experiment", choice.experiment},
              {"headroom", choice.headroom},
              {"highest_mean_at", choice.best}};
    for (auto const& [f, mean] : choice.means)
      c["candidates"].push_back({{"headroom", f}, {"mean_output_throughput", mean}});
    j["choices"].push_back(std::move(c));
  }
  for (auto const& [memory, rate] : choices.capacity)
    j["mooncake_capacity"].push_back({{"memory", memory}, {"request_throughput", rate}});
  write_json(path_ / "choices.json", j);
}

Choices CampaignFolder::choices() const {
  Choices choices;
  auto const file = path_ / "choices.json";
  std::optional<std::string> const text = text_of_file(file);
  if (!text) return choices;
  try {
    Json const j = Json::parse(*text);
    for (Json const& c : j.value("mooncake_capacity", Json::array()))
      choices.capacity[c.at("memory")] = c.at("request_throughput");
    for (Json const& c : j.value("choices", Json::array())) {
      HeadroomChoice choice{c.at("budget"),          c.at("arm"),
                            c.at("experiment"),      c.at("headroom"),
                            c.at("highest_mean_at"), {}};
      for (Json const& candidate : c.at("candidates"))
        choice.means[candidate.at("headroom")] = candidate.at("mean_output_throughput");
      choices.headroom.push_back(std::move(choice));
    }
  } catch (const Json::exception&) {
    throw ReportError(fmt::format("{} is damaged; campaign run writes it again", file.string()));
  }
  return choices;
}

std::vector<std::string> CampaignFolder::collect() const {
  auto const [settings, selection] = declared();
  Catalogue catalogue = hybridstate::runtime::declare(settings);
  add_chosen_cells(catalogue, choices());
  std::vector<std::string> missing;
  Json cells = Json::array();
  for (int const stage : {1, 2})
    for (PlannedCell const& cell : planned_cells(catalogue, selection, stage)) {
      std::string problem;
      if (auto j = load(cell, problem))
        cells.push_back(std::move(*j));
      else
        missing.push_back(problem.empty() ? cell_stem(cell.cell)
                                          : cell_stem(cell.cell) + ": " + problem);
    }
  std::sort(cells.begin(), cells.end(),
            [](const Json& a, const Json& b) { return a["id"] < b["id"]; });

  // Columns: settings and timebases of the first cell, then every field that a run can have.
  std::string csv = "id,figures,uses";
  std::vector<std::pair<const char*, std::string>> columns;
  for (auto const& [name, value] : settings_of(Cell{})) columns.emplace_back("settings", name);
  for (char const* name : {"span_ns", "ledger_s", "output_tokens", "span_output_throughput",
                           "ledger_output_throughput"})
    columns.emplace_back("timebases", name);
  for (auto const& [name, value] : run_fields(RunResult{})) columns.emplace_back("result", name);
  for (auto const& [group, name] : columns)
    csv += fmt::format(",{}{}", *group == 's' ? "set_" : "", name);
  csv += '\n';
  for (Json const& cell : cells) {
    std::string uses;
    for (Json const& use : cell["uses"])
      uses += fmt::format("{}{}: {}, {}", uses.empty() ? "" : "; ",
                          use["experiment"].get<std::string>(), use["point"].get<std::string>(),
                          use["arm"].get<std::string>());
    csv += fmt::format("{},{},{}", cell["id"].get<std::string>(),
                       cell["figures"].get<std::string>(), csv_cell(uses));
    for (auto const& [group, name] : columns) {
      csv += ',';
      Json const& values = cell[group];
      if (!values.contains(name)) continue;
      Json const& value = values[name];
      if (value.is_string()) {
        csv += csv_cell(value.get<std::string>());
      } else if (value.is_array()) {
        for (std::size_t i = 0; i < value.size(); ++i) csv += (i > 0 ? ";" : "") + value[i].dump();
      } else {
        csv += value.dump();
      }
    }
    csv += '\n';
  }
  Json merged = {{"schema", schema}, {"version", version_text()}};
  merged["missing"] = missing;
  merged["cells"] = std::move(cells);
  write_json(path_ / "cells.json", merged);
  write_text_atomically(path_ / "cells.csv", csv);
  return missing;
}

}  // namespace hybridstate::runtime
