// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/declaration.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "campaign/folder.hpp"
#include "campaign/paper_values.hpp"
#include "campaign/support.hpp"

using hybridstate::RetentionMode;
using hybridstate::RetentionYield;
using namespace hybridstate::runtime;
using campaign_test::catalogue;
using campaign_test::distinct;

namespace {

/// Seeds of an arm at a point.
std::vector<std::uint64_t> seeds_of(const std::string& experiment, const std::string& point,
                                    const std::string& arm) {
  std::vector<std::uint64_t> seeds;
  for (Entry const& entry : catalogue().experiment(experiment)->entries)
    if (entry.point == point && entry.arm == arm) seeds.push_back(entry.cell.seed);
  return seeds;
}

}  // namespace

TEST_CASE("every experiment has the cells that the paper counts") {
  // arms x points x seeds, from Table 2, Table C-1 and the sections that the declarations name
  std::map<std::string, std::size_t> const counts = {
      {"Q1.main", 3 * 3 * 12},
      {"Q1.low", 3 * 2 * 3},
      {"Q1.low-extension", 4 * 3},
      {"Q2.anchors", 3 * 2 * 3},
      {"Q2.no-sharing", 3 * 12},
      {"Q3.sharing", 4 * 3 * 12},
      {"Q4.budget", 4 * 3 * 12},
      {"Q5.b63", 2 * 5 * 3},
      {"Q5.b108", 2 * 6 * 3},
      {"Q5.high-load", 2 * (6 + 9 + 6)},
      {"Q6.selection", 2 * 3 * 5 * 3},
      {"Q6.selection-b83", 5 * 3},
      {"Q6.confirmation", 360},  // "groups the 360 adopted runs into thirty cells"
      {"Q7.trace", 24},          // "the final 24-run collection"
      {"Q8.depth", 3 * 3},       // two arms of the paper and the producer's reading
      {"Q9.retention", 24},      // "all 24 cells" of Table G-5
      {"Q9.producer", 24},       // S2's are those of Q9.retention
      {"caps.b63", 2 * 5 * 3},
      {"caps.b108", 2 * 5 * 3},
      {"caps.cap8", 2 * (9 + 6)},
      {"bursts.on-off", 2 * (9 + 6)},
      {"splits.sweep", 2 * 5 * 12},
      {"granite.four-arms", 4 * 3 * 3},
      {"granite.high-load", 2 * 9},
      {"pinning.sweep", 96},  // "the 96-cell pinning sweep"
      {"matched-grid.input", 2 * 2 * 2 * 6},
      {"matched-grid.isolation", 2 * 2 * 2 * 3},
      {"work.steps", 18},  // 36 of which half were traced
      {"best.paper-workload", 4 * 5 * 3 * (2 * 2 + 2) * 12},
      {"best.options", 4 * 3 * 3 * (18 + 2) * 12},
      {"best.mooncake", 5 * (2 * 2 + 2)},
      {"best.mooncake-options", 5 * (18 + 2)},
      {"best.mooncake-load", 0},  // its rates follow from best.mooncake
  };
  std::size_t found = 0;
  for (Question const& question : catalogue().questions)
    for (Experiment const& e : question.experiments) {
      INFO(e.id);
      REQUIRE(counts.contains(e.id));
      CHECK(e.entries.size() == counts.at(e.id));
      CHECK_FALSE(e.source.empty());
      CHECK_FALSE(e.primary.empty());
      CHECK_FALSE(e.rule.empty());
      ++found;
    }
  CHECK(found == counts.size());
}

TEST_CASE("what questions share is one cell") {
  // Appendix E.14: "348 unique completed runs" of the extension
  CHECK(distinct({"Q1.main", "Q1.low-extension", "Q2.no-sharing", "Q3.sharing", "Q4.budget",
                  "splits.sweep"}) == 348);
  CHECK(distinct({"Q1.main", "Q4.budget"}) == 4 * 3 * 12);  // Q4 reuses Q1's runs
  CHECK(distinct({"Q2.no-sharing", "Q3.sharing"}) == 4 * 3 * 12);
  // Appendix B.2: 72 fresh cells and 24 compatible existing R1 cells
  CHECK(distinct({"pinning.sweep", "Q5.high-load"}) == 72 + distinct({"Q5.high-load"}));
  CHECK(distinct({"best.paper-workload"}) == 4 * 5 * 12 * (3 * 5 + 1));  // one infinite memory
  // Of the options, paper, path-safe and the bounds run there already.
  CHECK(distinct({"best.paper-workload", "best.options"}) ==
        distinct({"best.paper-workload"}) + 4 * 3 * 3 * 12 * 16);
}

TEST_CASE("the aims of best: one for each figure, over the places that are declared") {
  CampaignSettings settings;
  settings.policies = {"paper", "best"};
  auto const aims = [&] { return declare(settings).find("best")->aims; };
  std::vector<Aim> const without = aims();
  REQUIRE(without.size() == 9 + 3);
  CHECK(without[1].name == "of infinite memory: b83, 3 requests/s");
  CHECK(without[1].bound == 99);
  CHECK(without[1].places == std::vector<Contrast>{{"best.paper-workload", "S2 best", "b83 3/s q=1",
                                                    "infinite", "b83 3/s q=1"}});
  CHECK(without[9].of == Aim::Of::gain);
  CHECK(without[9].places.size() == 4 * 5 * 3);
  CHECK(without[11].places.size() == 4 * 5 * 3 + 4 * 3 * 3);
  CHECK(without[11].places.front().baseline.empty());
  settings.mooncake = "0123456789abcdef";
  CHECK(aims().size() == 9 + 1 + 5 + 2);
  settings.policies = {"paper"};
  settings.mooncake.clear();
  CHECK(aims().size() == 2);  // S2 best is an option still: orphans and preemptions
  // A real executor cannot know what comes.
  settings.executor = "cpu";
  settings.model = "tiny:0123456789abcdef";
  Catalogue const real = declare(settings);
  for (Entry const& entry : real.experiment("best.options")->entries)
    CHECK(entry.cell.policy.find("clairvoyant") == std::string::npos);
}

TEST_CASE("seeds, pinning and lengths are those of each campaign") {
  for (Question const& question : catalogue().questions)
    for (Experiment const& e : question.experiments)
      for (Entry const& entry : e.entries) {
        INFO(e.id);
        Cell const& cell = entry.cell;
        if (question.id == "best" || e.id == "pinning.sweep") continue;
        bool const late = cell.seed >= 70000;  // Q6 to Q9 and the matched grid
        bool const extension = !late && cell.seed >= 42000;
        CHECK(cell.pin_distinct == (late ? 1 : 2));
        CHECK(cell.lengths == (late        ? LengthPreset::admission
                               : extension ? LengthPreset::extension
                                           : LengthPreset::original));
        CHECK(cell.requests == 300);
        CHECK((cell.attention_ppm == 0 || (e.id == "splits.sweep" && cell.arm == Arm::d0)));
        CHECK((cell.budget == "b160") == (cell.model == "granite-4.0-h-micro"));
      }
  CHECK(seeds_of("Q6.confirmation", "b83 f=0.35", "S2").front() == 76400);
  CHECK(seeds_of("Q6.confirmation", "b83 f=0.35", "S2").back() == 76411);
  CHECK(seeds_of("Q6.selection-b83", "b83 f=0.43", "S2") ==
        std::vector<std::uint64_t>{76300, 76301, 76302});
  CHECK(seeds_of("Q9.retention", "ISOLATE", "S2+Retention").back() == 88006);
  CHECK(seeds_of("Q5.high-load", "b108 4.5/s", "D0").size() == 9);
}

TEST_CASE("texts and ids are stable and tell all cells apart") {
  Cell cell;
  CHECK(canonical_text(cell) ==
        "executor=sim model=falcon-h1-7b law=a100-40gb organization=S2 policy=paper budget=b63 "
        "attention_ppm=published cap=63 headroom=0 pin=off retention=none workload=paper "
        "requests=300 rate=3 share=1 lengths=original popularity=skewed arrivals=poisson "
        "variance_reduction=off isolate=off trace=off seed=0");
  CHECK(cell_id(cell).size() == 16);
  CHECK(digest_of("") == digest_of(""));
  std::map<std::string, std::string> texts;  // by id
  std::set<std::string> stems;
  for (Question const& question : catalogue().questions)
    for (Experiment const& e : question.experiments)
      for (Entry const& entry : e.entries) {
        std::string const text = canonical_text(entry.cell);
        auto const [at, fresh] = texts.emplace(cell_id(entry.cell), text);
        CHECK(at->second == text);
        std::string const stem = cell_stem(entry.cell);
        CHECK(stems.insert(stem).second == fresh);
        CHECK(stem.find_first_of("/:+ ") == std::string::npos);
      }
}

TEST_CASE("a change of any setting changes the id") {
  std::vector<void (*)(Cell&)> const changes = {
      [](Cell&) {},
      [](Cell& c) { c.executor = "cpu"; },
      [](Cell& c) { c.model = "granite-4.0-h-micro"; },
      [](Cell& c) { c.law = "a100-40gb-long"; },
      [](Cell& c) { c.arm = Arm::d0; },
      [](Cell& c) { c.policy = "path-safe"; },
      [](Cell& c) { c.budget = "b83"; },
      [](Cell& c) { c.attention_ppm = 527383; },
      [](Cell& c) { c.cap = 109; },
      [](Cell& c) { c.headroom = 0.1; },
      [](Cell& c) { c.pin_distinct = 1; },
      [](Cell& c) { c.retention.mode = RetentionMode::holders; },
      [](Cell& c) { c.retention.mode = RetentionMode::producer; },
      [](Cell& c) {
        c.retention.mode = RetentionMode::holders;
        c.retention.distinct = 3;
      },
      [](Cell& c) {
        c.retention.mode = RetentionMode::holders;
        c.retention.yield = RetentionYield::before_preemption;
      },
      [](Cell& c) { c.workload = "mooncake:0"; },
      [](Cell& c) { c.requests = 30; },
      [](Cell& c) { c.rate = 4.5; },
      [](Cell& c) { c.share = 0.5; },
      [](Cell& c) { c.lengths = LengthPreset::admission; },
      [](Cell& c) { c.popularity = Popularity::uniform; },
      [](Cell& c) { c.arrivals = ArrivalProcess::on_off; },
      [](Cell& c) { c.variance_reduction = true; },
      [](Cell& c) { c.isolate = true; },
      [](Cell& c) { c.trace = true; },
      [](Cell& c) { c.seed = 1; }};
  std::set<std::string> ids;
  for (auto const& change : changes) {
    Cell cell;
    change(cell);
    ids.insert(cell_id(cell));
  }
  CHECK(ids.size() == changes.size());
}

TEST_CASE("families test what is declared, as often as the paper says") {
  std::map<std::string, std::size_t> const sizes = {{"original", 5},      {"extension", 22},
                                                    {"confirmation", 17}, {"pinning", 2},
                                                    {"fidelity", 4},      {"retention", 3}};
  CHECK(catalogue().families.size() == sizes.size());
  std::set<std::pair<std::string, std::string>> tests;
  for (Family const& family : catalogue().families) {
    INFO(family.id);
    CHECK(family.tests.size() == sizes.at(family.id));
    for (Test const& test : family.tests) {
      INFO(test.id);
      CHECK(tests.emplace(family.id, test.id).second);
      for (Contrast const* c : {&test.contrast, test.less ? &*test.less : &test.contrast}) {
        // Both sides exist and pair by seed; a chosen headroom exists once it is chosen.
        auto const point = [](std::string p) {
          auto const at = p.find("f=selected");
          return at == std::string::npos ? p : p.replace(at, std::string::npos, "f=0");
        };
        auto const arm = seeds_of(c->experiment, point(c->arm_point), c->arm);
        CHECK_FALSE(arm.empty());
        CHECK(arm == seeds_of(c->experiment, point(c->baseline_point), c->baseline));
      }
    }
  }
}

TEST_CASE("every figure of the paper has its place") {
  for (PaperValue const& value : paper_values()) {
    INFO(value.experiment, " ", value.point, " ", value.arm, " ", value.metric);
    CHECK_FALSE(seeds_of(value.experiment, value.point, value.arm).empty());
    if (*value.baseline != 0)
      CHECK_FALSE(seeds_of(value.experiment, value.point, value.baseline).empty());
  }
  for (PaperTest const& test : paper_tests()) {
    INFO(test.family, " ", test.test);
    auto const family =
        std::find_if(catalogue().families.begin(), catalogue().families.end(),
                     [&](const Family& f) { return f.id == std::string(test.family); });
    REQUIRE(family != catalogue().families.end());
    CHECK(std::any_of(family->tests.begin(), family->tests.end(),
                      [&](const Test& t) { return t.id == std::string(test.test); }));
    if (test.low) CHECK((*test.low < test.effect && test.effect < *test.high));
  }
}

TEST_CASE("a balanced order rotates the arms from seed to seed") {
  Experiment const& e = *catalogue().experiment("Q9.retention");
  auto const order = execution_order(e);
  REQUIRE(order.size() == 24);
  // Every arm is at every place of a block: six blocks of four, so each once or twice.
  std::map<std::pair<std::string, std::size_t>, int> places;
  for (std::size_t i = 0; i < order.size(); ++i) {
    CHECK(order[i]->cell.seed == 88001 + i / 4);
    ++places[{order[i]->point + order[i]->arm, i % 4}];
  }
  CHECK(places.size() == 16);
  for (auto const& [place, count] : places) CHECK(count <= 2);
}

TEST_CASE("the smallest headroom within 1 % of the best is chosen, from the seeds taken") {
  // Rates by headroom; the search of b83's S2 goes on to 0.60.
  auto const rate = [](const Cell& cell, const char*) {
    double const f = cell.headroom;
    if (cell.arm == Arm::d0) return 100 - 10 * f + static_cast<double>(cell.seed % 10);
    if (cell.budget == "b63")
      return f == 0.27 ? 113.0 : f == 0.19 ? 111.9 : f == 0.35 ? 112.9 : 100.0;
    if (cell.budget == "b83") return f == 0.50 ? 120.0 : f == 0.43 ? 118.8 : 100.0;
    return 100.0;
  };
  auto const everything = [](const Experiment&, const Entry&) { return true; };
  auto const choices = choose_headroom(catalogue(), everything, rate);
  REQUIRE(choices.size() == 6);
  std::map<std::string, double> chosen;
  for (HeadroomChoice const& c : choices) chosen[c.arm + ' ' + c.budget] = c.headroom;
  CHECK(chosen == std::map<std::string, double>{{"D0 b63", 0},
                                                {"S2 b63", 0.19},
                                                {"D0 b83", 0},
                                                {"S2 b83", 0.43},
                                                {"D0 b108", 0},
                                                {"S2 b108", 0}});
  // 111.9 is within 1 % of 113, 118.8 exactly 99 % of 120.
  Catalogue extended = catalogue();
  add_chosen_cells(extended, {choices, {}});
  auto const& entries = extended.experiment("Q6.confirmation")->entries;
  CHECK(entries.size() == 360 + 12);
  CHECK(entries.back().point == "b83 f=0.43");
  CHECK(entries.back().arm == "S2");
  CHECK(entries.back().cell.headroom == 0.43);
  CHECK(entries.back().cell.seed == 76411);
  auto const nothing = [](const Experiment&, const Entry&) { return false; };
  CHECK_THROWS_AS(choose_headroom(catalogue(), nothing, rate), std::invalid_argument);
}

TEST_CASE("Mooncake's loads are parts of paper's capacity with the same memory") {
  auto const everything = [](const Experiment&, const Entry&) { return true; };
  auto const capacity =
      mooncake_capacity(catalogue(), everything, [](const Cell& cell, const char* field) {
        CHECK(std::string(field) == "request_throughput");
        return cell.budget == "6GiB" ? 0.5 : 1.0;
      });
  CHECK(capacity.size() == 5);
  Catalogue extended = catalogue();
  add_chosen_cells(extended, {{}, capacity});
  auto const& entries = extended.experiment("best.mooncake-load")->entries;
  CHECK(entries.size() == 5 * 3 * 2 * 2);
  for (Entry const& entry : entries) {
    double const whole = entry.cell.budget == "6GiB" ? 0.5 : 1.0;
    double const part = entry.cell.rate / whole;
    CHECK(entry.point.find(entry.cell.budget) == 0);
    CHECK((part == 0.7 || part == 0.9 || part == 1.1));
  }
  auto const one = [](const Cell&, const char*) { return 1.0; };
  CHECK(mooncake_capacity(declare({}), everything, one).empty());
  auto const nothing = [](const Experiment&, const Entry&) { return false; };
  CHECK(mooncake_capacity(catalogue(), nothing, one).empty());
}

TEST_CASE("seed filters") {
  Experiment const& e = *catalogue().experiment("Q1.main");
  auto const count = [&](const std::string& text) {
    SeedFilter const filter(text);
    return std::count_if(e.entries.begin(), e.entries.end(),
                         [&](const Entry& entry) { return filter.takes(e, entry); });
  };
  CHECK(count("") == 108);
  CHECK(count("first:2") == 18);
  CHECK(count("42000-42003,42011") == 5 * 9);
  CHECK(count("7") == 0);
  for (char const* bad : {"first:", "first:0", "first:x", "-", "3-1", "1,", ",1", "1-", "a", "1 2",
                          "99999999999999999999"})
    CHECK_THROWS_AS(SeedFilter{bad}, std::invalid_argument);
}
