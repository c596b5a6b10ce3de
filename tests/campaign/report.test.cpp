// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/report.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "campaign/support.hpp"
#include "cli/process.hpp"
#include "report/file.hpp"
#include "workload/support.hpp"

using namespace hybridstate::runtime;
using cli_test::call;
using cli_test::file_text;
using cli_test::Outcome;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

/// A campaign whose cells hold nothing but the throughput that `rate` gives to each.
using Rate = std::function<double(const Experiment&, const Entry&)>;

class MadeCampaign {
 public:
  MadeCampaign(const Selection& selection, const Rate& rate, const std::string& executor = "sim")
      : folder_(temporary_.path() + "/campaign") {
    CampaignSettings settings;
    settings.executor = executor;
    if (executor == "cpu") settings.model = "tiny:0123456789abcdef";
    settings.policies = {"paper", "best"};
    Catalogue const catalogue = declare(settings);
    folder_.declare(settings, catalogue, selection);
    std::map<std::string, double> rates;
    for (Question const& question : catalogue.questions)
      for (Experiment const& e : question.experiments)
        for (Entry const& entry :
             e.entries)  // the last of the experiments that share a cell decides
          if (selection.contains(question.id)) rates[cell_id(entry.cell)] = rate(e, entry);
    for (PlannedCell const& planned : planned_cells(catalogue, selection, 1)) {
      double const value = rates.at(cell_id(planned.cell));
      folder_.save(
          planned,
          {{"timebases", {{"span_output_throughput", value}, {"ledger_output_throughput", value}}},
           {"result", {{"c_once", 1000}}}});
      files_.push_back(folder_.cell_path(planned.cell));
    }
  }

  const CampaignFolder& folder() const { return folder_; }
  std::string path() const { return folder_.path().string(); }
  const std::vector<fs::path>& files() const { return files_; }
  Json json() const {
    Results const results(folder_);
    return Json::parse(report_json(report_of(results)));
  }

 private:
  workload_test::TemporaryFolder temporary_;
  CampaignFolder folder_;
  std::vector<fs::path> files_;
};

/// Table G-5.
double table_g5(const Experiment&, const Entry& entry) {
  constexpr double ledger[4][6] = {{367.534, 381.056, 374.522, 384.449, 376.463, 345.845},
                                   {369.327, 381.056, 374.522, 384.449, 374.636, 363.490},
                                   {522.152, 498.836, 529.497, 477.648, 571.667, 487.973},
                                   {560.830, 715.721739, 568.719, 583.793, 571.667, 565.429}};
  int const mode = entry.point == "SHARE" ? 2 : 0;
  double const base = ledger[mode][entry.cell.seed - 88001];
  if (entry.arm == "S2") return base;
  return entry.arm == "S2+Retention" ? ledger[mode + 1][entry.cell.seed - 88001] : 1.1 * base;
}

/// D0 against its comparator by a known percentage.
double high_load(const Experiment& e, const Entry& entry) {
  if (entry.arm != "D0") return 400;
  double percent = 0;
  if (entry.point == "b63 3/s") percent = 1;
  if (entry.point == "b108 4.5/s") percent = -2;
  if (e.id == "caps.cap8" && entry.point == "cap 8") percent = -3;
  if (entry.point == "on/off") percent = entry.cell.seed % 2 == 0 ? 1 : -1;
  if (e.id == "granite.high-load") percent = entry.cell.seed < 6 ? -1 : 5;
  return 400 * (1 + percent / 100);
}

const Json& question(const Json& report, const std::string& id) {
  for (Json const& q : report.at("questions"))
    if (q.at("id") == id) return q;
  FAIL("no question ", id);
  return report;
}
const Json& named(const Json& list, const std::string& name) {
  for (Json const& item : list)
    if (item.value("name", item.value("aim", "")) == name) return item;
  FAIL("nothing named ", name);
  return list;
}

void check_near(const Json& value, double expected, double tolerance) {
  CHECK(std::abs(value.get<double>() - expected) < tolerance);
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

void expect_error(const std::string& arguments, const std::string& words) {
  campaign_test::expect_refused("report " + arguments, words);
}

}  // namespace

TEST_CASE("Q9: Table G-7 comes out of cells that hold Table G-5") {
  MadeCampaign const made({{"Q9", SeedFilter()}}, table_g5);
  Json const report = made.json();
  Json const& q9 = question(report, "Q9");
  CHECK(report.at("figures") == "simulated");
  Json const& k = named(q9.at("tests"), "K_ret");
  check_near(k.at("value"), 14.3043, 0.0005);
  check_near(k.at("interval").at("low"), -0.1057, 0.0005);
  check_near(k.at("interval").at("high"), 30.7930, 0.0005);
  CHECK(k.at("decision") == "directional");
  CHECK(k.at("sign") == "same");
  CHECK(k.at("by_seed").size() == 6);
  CHECK(k.at("by_seed")[0].at("cells").size() == 4);
  Json const& share = named(q9.at("tests"), "Delta_SHARE");
  check_near(share.at("value"), 15.2563, 0.0005);
  CHECK(share.at("decision") == "interval excludes 0");
  CHECK(named(q9.at("tests"), "Delta_ISOLATE").at("decision") == "interval includes 0");
  // Equal values are no sign.
  MadeCampaign const equal({{"Q9", SeedFilter()}}, [](auto&&...) { return 500.0; });
  Json const equal_report = equal.json();
  CHECK(named(question(equal_report, "Q9").at("tests"), "K_ret").at("sign") == "zero");
  // Ten percent in both modes interact with nothing.
  for (Json const& other : q9.at("effects")) {
    if (other.at("quantity").get<std::string>().find("producer") == std::string::npos) continue;
    bool const interaction =
        other.at("quantity").get<std::string>().find("less") != std::string::npos;
    check_near(other.at("value"), interaction ? 0 : 10, 1e-9);
    CHECK_FALSE(other.contains("paper"));
  }
  // Geometric means of Table G-6.
  bool found = false;
  for (Json const& level : q9.at("levels"))
    if (level.at("quantity") == "S2+Retention, SHARE" &&
        level.at("metric") == "ledger_output_throughput") {
      check_near(level.at("value"), 592.07, 0.005);
      found = true;
    }
  CHECK(found);
}

TEST_CASE("the original family: two looks, then Holm over all five tests") {
  MadeCampaign const made({{"Q5", SeedFilter()},
                           {"caps", SeedFilter()},
                           {"bursts", SeedFilter()},
                           {"granite", SeedFilter()}},
                          high_load);
  Json const report = made.json();
  struct Expected {
    const char* question;
    const char* test;
    double effect, p, adjusted;
    const char* decision;
    const char* sign;
  };
  // All six of one sign: 2/64, no second look. All nine: 2/512. Nine of alternating sign: 1. Six of
  // one sign and three of the other, larger: the first look alone.
  Expected const expected[] = {{"Q5", "E5.1", 1, 0.0625, 0.1875, "not rejected", "same"},
                               {"Q5", "E5.2", -2, 0.0078125, 0.0390625, "rejected", "same"},
                               {"caps", "E5.3", -3, 0.0078125, 0.0390625, "rejected", "same"},
                               {"bursts", "E5.4", 1.0 / 9, 1, 1, "not rejected", "other"},
                               {"granite", "E5.5", 1, 0.0625, 0.1875, "not rejected", "other"}};
  for (Expected const& e : expected) {
    CAPTURE(e.test);
    Json const& test = named(question(report, e.question).at("tests"), e.test);
    check_near(test.at("value"), e.effect, 1e-9);
    check_near(test.at("p"), e.p, 1e-12);
    check_near(test.at("adjusted_p"), e.adjusted, 1e-12);
    CHECK(test.at("decision") == e.decision);
    CHECK(test.at("sign") == e.sign);
  }
  // The gap's change over the six common seeds alone.
  bool found = false;
  for (Json const& effect : question(report, "Q5").at("effects"))
    if (effect.at("unit") == "points") {
      CHECK(effect.at("seeds") == 6);
      check_near(effect.at("value"), -2, 1e-9);
      CHECK(effect.at("sign") == "other");
      found = true;
    }
  CHECK(found);
}

TEST_CASE("a family that lacks a seed decides nothing, and what is missing is said") {
  MadeCampaign const made({{"Q5", SeedFilter()}}, high_load);
  Json report = made.json();
  Json const& alone = named(question(report, "Q5").at("tests"), "E5.2");
  CHECK(alone.at("p") == 0.0078125);
  CHECK_FALSE(alone.contains("adjusted_p"));  // three tests of the family have no cells
  CHECK_FALSE(alone.contains("decision"));
  CHECK(question(report, "Q1").at("cells_present") < question(report, "Q1").at("cells_declared"));
  CHECK_FALSE(named(question(report, "Q1").at("tests"), "S1/S0 b63").contains("value"));

  fs::path lost;
  for (fs::path const& file : made.files())
    if (file.filename().string().starts_with("D0-b108-4.5rps-cap109-q1-seed8")) lost = file;
  REQUIRE(fs::remove(lost));
  report = made.json();
  Json const& q5 = question(report, "Q5");
  CHECK(q5.at("missing") == Json::array({lost.filename().string()}));
  Json const& test = named(q5.at("tests"), "E5.2");
  CHECK(test.at("seeds") == 8);
  CHECK(test.at("seeds_declared") == 9);
  check_near(test.at("value"), -2, 1e-9);
  CHECK_FALSE(test.contains("p"));
  std::string const page = report_html(report_of(Results(made.folder())), "cells");
  CHECK(page.find("1 not run yet</summary>" + lost.filename().string()) != std::string::npos);
  CHECK(page.find("None of its cells were run.") != std::string::npos);
}

TEST_CASE("aims: shares and gains at least, counts at most, the worst place decides") {
  MadeCampaign const made({{"Q5", SeedFilter()}, {"bursts", SeedFilter()}}, high_load);
  Results const results(made.folder());
  auto const at = [](const std::string& point, const std::string& baseline) {
    return Contrast{"Q5.high-load", "D0", point, baseline, baseline.empty() ? "" : point};
  };
  Aim aim{"share", Aim::Of::share, 98, {at("b108 4.5/s", "S2")}};
  AimFinding found = judge(results, aim);
  CHECK(std::abs(*found.finding.value - 98) < 1e-9);
  CHECK(found.finding.seeds.size() == 9);
  CHECK(found.finding.seeds[0].cells.size() == 2);
  CHECK(found_text(found) == "98.00 %");
  aim.bound = 97.99;
  CHECK(verdict_text(judge(results, aim)) == "reached");
  aim.bound = 98.01;
  CHECK(verdict_text(judge(results, aim)) == "missed");
  aim = {"gain", Aim::Of::gain, -2.01, {at("b63 3/s", "S2"), at("b108 4.5/s", "S2")}};
  found = judge(results, aim);
  CHECK(found.quantity.contrast.arm_point == "b108 4.5/s");
  CHECK(found.places == 2);
  CHECK(found_text(found) == "-2.00 %");
  CHECK(bound_text(found) == "at least -2.01 %");
  CHECK(verdict_text(found) == "reached");
  aim.places.push_back({"caps.cap8", "D0", "cap 8", "S2", "cap 8"});  // was not run
  found = judge(results, aim);
  CHECK_FALSE(found.reached);
  CHECK(verdict_text(found) == "open: 2 of 3 places, not all seeds");
  aim = {"none", Aim::Of::preemptions, 0.5, {at("b63 3/s", "")}};  // these cells count none
  found = judge(results, aim);
  CHECK(found_text(found) == "not run");
  CHECK(bound_text(found) == "at most 0.5");
  CHECK_FALSE(found.reached);
}

TEST_CASE("the aims of best stand on the page, with their cells") {
  MadeCampaign const made(
      {{"best", SeedFilter("first:1")}}, [](const Experiment&, const Entry& entry) {
        return entry.arm == "infinite" ? 500.0 : entry.arm == "S2 best" ? 490.0 : 400.0;
      });
  Json const report = made.json();
  Json const& aim =
      named(question(report, "best").at("aims"), "of infinite memory: b63, 3 requests/s");
  check_near(aim.at("value"), 98, 1e-9);
  CHECK_FALSE(aim.contains("reached"));  // one seed of twelve
  CHECK(aim.at("by_seed")[0].at("cells").size() == 2);
  std::string const page = report_html(report_of(Results(made.folder())), "cells");
  CHECK(page.find("Aims of S2 under best") != std::string::npos);
  CHECK(page.find("open: 1 of 1 places, not all seeds") != std::string::npos);
  std::string const text = summary_text(report_of(Results(made.folder())));
  CHECK(text.find("of infinite memory: b63, 3 requests/s") != std::string::npos);
}

TEST_CASE("the command: page, JSON, and every number leads to cells that are there") {
  MadeCampaign const made(
      {{"Q9", SeedFilter()}, {"Q5", SeedFilter()}}, [](const Experiment& e, const Entry& entry) {
        return e.id.starts_with("Q9") ? table_g5(e, entry) : high_load(e, entry);
      });
  std::string const json = made.path() + "/numbers.json";
  Outcome const outcome = call("report " + made.path() + " --json " + json);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.out.find("K_ret") != std::string::npos);
  CHECK(outcome.out.find("+14.30") != std::string::npos);
  Json const report = Json::parse(file_text(json));
  CHECK(report == made.json());
  std::size_t cells = 0;
  for (Json const& q : report.at("questions"))
    for (char const* list : {"tests", "effects", "levels"})
      for (Json const& item : q.value(list, Json::array())) {
        CHECK(item.contains("value") == item.contains("by_seed"));
        for (Json const& seed : item.value("by_seed", Json::array()))
          for (Json const& file : seed.at("cells")) {
            CHECK(fs::exists(made.path() + "/cells/" + file.get<std::string>()));
            ++cells;
          }
      }
  CHECK(cells > 100);

  std::string const page = file_text(made.path() + "/report.html");
  CHECK(page.find("Figure 7(c)") != std::string::npos);
  CHECK(occurrences(page, ">simulated</text>") > 0);
  CHECK(occurrences(page, ">measured<") == 0);
  for (char const* outside : {"http:", "https:", "src=", "url(", "@import", ">nan", ">inf<"})
    CHECK(page.find(outside) == std::string::npos);
  std::size_t links = 0;
  std::string const begin = "<a href=\"cells/";
  for (std::size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at + 1)) {
    std::size_t const from = at + begin.size();
    REQUIRE(fs::exists(made.path() + "/cells/" + page.substr(from, page.find('"', from) - from)));
    ++links;
  }
  CHECK(links > 100);
  // Elsewhere, the links lead back.
  fs::create_directory(made.path() + "/page");
  REQUIRE(call("report " + made.path() + " --out " + made.path() + "/page/r.html").code == 0);
  CHECK(file_text(made.path() + "/page/r.html").find("<a href=\"../cells/") != std::string::npos);
}

TEST_CASE("cells of a real executor are called measured") {
  MadeCampaign const made({{"Q9", SeedFilter("first:2")}}, table_g5, "cpu");
  std::string const page = report_html(report_of(Results(made.folder())), "cells");
  CHECK(page.find(">measured</text>") != std::string::npos);
  CHECK(page.find(">simulated<") == std::string::npos);
  CHECK(made.json().at("figures") == "measured");
}

TEST_CASE("what is no campaign, or is damaged, is refused with one sentence") {
  MadeCampaign const made({{"Q9", SeedFilter("first:1")}}, table_g5);
  expect_error(made.path() + "/nowhere", "is no folder");
  expect_error(made.path() + "/cells", "there is no campaign.json");
  expect_error(made.path() + " --out " + made.path() + "/no/where.html", "does not exist");

  std::string const cell = made.files().front().string();
  std::string const whole = file_text(cell);
  write_text_atomically(cell, whole.substr(0, whole.size() / 2));
  expect_error(made.path(), "is damaged: it is cut off or no JSON");
  std::string other = whole;
  other.replace(other.find("_throughput\": ") + 14, 1, "9");
  write_text_atomically(cell, other);
  expect_error(made.path(), "its digest does not match");
  write_text_atomically(cell, whole);
  REQUIRE(call("report " + made.path()).code == 0);

  std::string const file = made.path() + "/campaign.json";
  std::string const declared = file_text(file);
  other = declared;
  other.replace(other.find("\"schema\": 1"), 11, "\"schema\": 2");
  write_text_atomically(file, other);
  expect_error(made.path(), "declares other experiments");
  write_text_atomically(file, declared.substr(0, 100));
  expect_error(made.path(), "is damaged");
  CHECK_FALSE(fs::exists(made.path() + "/no"));
}
