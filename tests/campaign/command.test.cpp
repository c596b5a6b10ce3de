// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The command as a user calls it.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "campaign/cell.hpp"
#include "campaign/support.hpp"
#include "cli/process.hpp"
#include "workload/support.hpp"

using cli_test::call;
using cli_test::file_text;
using cli_test::Outcome;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

/// Small cells, so that whole campaigns fit a test.
const std::string few = " --seeds first:2 --requests 12 ";

std::vector<fs::path> cell_files(const std::string& folder) {
  std::vector<fs::path> files;
  for (auto const& file : fs::directory_iterator(folder + "/cells")) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  return files;
}

void expect_usage_error(const std::string& arguments, const std::string& words) {
  campaign_test::expect_refused("campaign " + arguments, words);
}

}  // namespace

TEST_CASE("a campaign goes on after a kill, and the result does not show it") {
  workload_test::TemporaryFolder const folder;
  std::string const whole = folder.path() + "/whole";
  std::string const cut = folder.path() + "/cut";
  Outcome const run = call("campaign run Q1 Q9" + few + "--out " + whole);
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.err.empty());  // no bar in a pipe
  REQUIRE(call("campaign collect " + whole).code == 0);
  std::size_t const cells = cell_files(whole).size();
  CHECK(cells == 3 * 3 * 2 + 3 * 2 * 2 + 4 * 2 + 6 * 2);

  REQUIRE(call("campaign run Q1 Q9" + few + "--threads 1 --limit 9 --out " + cut).code == 0);
  std::vector<fs::path> const first = cell_files(cut);
  CHECK(first.size() == 9);
  Outcome const early = call("campaign collect " + cut);
  CHECK(early.code == 1);
  CHECK(early.err.find(std::to_string(cells - 9) + " cells are missing") != std::string::npos);
  // One file is cut off, one has another number, one belongs to another cell, one is left of a
  // kill.
  std::string const text = file_text(first[0].string());
  std::ofstream(first[0]) << text.substr(0, text.size() / 2);
  std::string other = file_text(first[1].string());
  other.replace(other.find("\"c_once\": ") + 10, 1, "7");
  if (other == file_text(first[1].string())) other.replace(other.find("\"c_once\": ") + 10, 1, "8");
  std::ofstream(first[1]) << other;
  std::ofstream(first[2]) << file_text(first[3].string());
  std::ofstream(cut + "/cells/.left.json.1-0.tmp") << "{";
  auto const kept = fs::last_write_time(first[4]);
  Outcome const again = call("campaign run Q1 Q9" + few + "--out " + cut);
  REQUIRE(again.code == 0);
  CHECK(again.out.find("it is cut off") != std::string::npos);
  CHECK(again.out.find("its digest does not match") != std::string::npos);
  CHECK(again.out.find("its id is another") != std::string::npos);
  CHECK(again.out.find(std::to_string(cells - 6) + " run, 6 were there") != std::string::npos);
  CHECK(fs::last_write_time(first[4]) == kept);
  REQUIRE(call("campaign collect " + cut).code == 0);
  for (char const* name : {"/cells.json", "/cells.csv", "/campaign.json"})
    CHECK(file_text(whole + name) == file_text(cut + name));
  Json const merged = Json::parse(file_text(whole + "/cells.json"));
  CHECK(merged["cells"].size() == cells);
  CHECK(merged["missing"].empty());
  std::string const csv = file_text(whole + "/cells.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == static_cast<std::ptrdiff_t>(cells) + 1);
}

TEST_CASE("a cell says what it is, on both timebases; declarations come first") {
  workload_test::TemporaryFolder const folder;
  std::string const out = folder.path() + "/q7";
  REQUIRE(call("campaign run Q7 --declare-only" + few + "--out " + out).code == 0);
  CHECK(cell_files(out).empty());
  std::string const declared = file_text(out + "/campaign.json");
  Json const campaign = Json::parse(declared);
  CHECK(campaign["selected"]["Q7"] == "first:2");
  CHECK(campaign["families"].size() == 6);
  CHECK(campaign["execution"].get<std::string>().find("simulated") == 0);
  REQUIRE(call("campaign run Q7" + few + "--out " + out).code == 0);
  CHECK(file_text(out + "/campaign.json") == declared);
  std::vector<fs::path> const files = cell_files(out);
  CHECK(files.size() == 16);  // traces are gone
  Json off, on;
  for (fs::path const& file : files) {
    Json const cell = Json::parse(file_text(file.string()));
    CHECK(file.filename().string().find(cell["id"].get<std::string>()) != std::string::npos);
    CHECK(cell["figures"] == "simulated");
    auto const& times = cell["timebases"];
    auto const span = times["span_ns"].get<std::int64_t>();
    auto const ledger = times["ledger_s"].get<std::int64_t>();
    CHECK(ledger * 1'000'000'000 >= span);
    CHECK((ledger - 1) * 1'000'000'000 < span);
    CHECK(times["output_tokens"] == cell["result"]["total_output_tokens"]);
    CHECK(times["ledger_output_throughput"].get<double>() ==
          times["output_tokens"].get<double>() / static_cast<double>(ledger));
    bool const traced = cell["settings"]["trace"] == "on";
    CHECK(cell.contains("state_history") == traced);
    if (traced) CHECK(cell["state_history"]["replay"]["different"] == 0);
    if (cell["settings"]["organization"] == "S2" && cell["settings"]["headroom"] == "0" &&
        cell["settings"]["seed"] == "76600")
      (traced ? on : off) = cell;
  }
  CHECK(on["uses"][0]["point"] == "f=0 ON");
  CHECK(on["result"] == off["result"]);  // tracing decides nothing
}

TEST_CASE("Q6 chooses before it confirms") {
  workload_test::TemporaryFolder const folder;
  std::string const out = folder.path() + "/q6";
  REQUIRE(call("campaign run Q6 --stage 1" + few + "--out " + out).code == 0);
  CHECK(cell_files(out).size() == (2 * 3 * 5 + 5) * 2);
  Json const choices = Json::parse(file_text(out + "/choices.json"))["choices"];
  REQUIRE(choices.size() == 6);
  CHECK(choices[3]["experiment"] == "Q6.selection-b83");
  CHECK(choices[3]["candidates"].size() == 5);
  REQUIRE(call("campaign run Q6" + few + "--out " + out).code == 0);
  CHECK(cell_files(out).size() >= (2 * 3 * 5 + 5) * 2 + 2 * 3 * 5 * 2);
  CHECK(Json::parse(file_text(out + "/choices.json"))["choices"] == choices);
  CHECK(call("campaign collect " + out).code == 0);
  expect_usage_error("run Q6 --requests 12 --seeds 76400 --out " + folder.path() + "/none",
                     "none of its seeds is taken");
}

TEST_CASE("questions share cells in a folder") {
  workload_test::TemporaryFolder const folder;
  std::string const out = folder.path() + "/shared";
  REQUIRE(call("campaign run Q1" + few + "--out " + out).code == 0);
  Outcome const q4 = call("campaign run Q4" + few + "--out " + out);
  CHECK(q4.out.find("24 cells: 6 run, 18 were there") != std::string::npos);
  Json const campaign = Json::parse(file_text(out + "/campaign.json"));
  CHECK(campaign["selected"].size() == 2);
  // Other declarations do not go into the same folder.
  expect_usage_error("run Q4 --seeds first:2 --requests 13 --out " + out, "use another folder");
}

TEST_CASE("plans name every cell once, and their calls work") {
  workload_test::TemporaryFolder const folder;
  std::string const out = folder.path() + "/plan";
  Outcome const json = call("campaign plan Q6" + few + "--out " + out);
  REQUIRE(json.code == 0);
  CHECK_FALSE(fs::exists(out));
  Json const plan = Json::parse(json.out);
  std::size_t const sizes[2] = {70, 60};
  std::set<std::string> ids;
  for (std::size_t s = 0; s < 2; ++s) {
    CHECK(plan["stages"][s]["cells"].size() == sizes[s]);
    for (Json const& cell : plan["stages"][s]["cells"]) ids.insert(cell["id"]);
  }
  CHECK(ids.size() == 130);
  Outcome const slurm = call("campaign plan Q6 --format slurm" + few + "--out " + out);
  CHECK(slurm.out.find("--array=0-69 ") != std::string::npos);
  CHECK(slurm.out.find("--array=0-59 ") != std::string::npos);
  CHECK(slurm.out.find("--dependency=afterany:") != std::string::npos);
  Outcome const parallel = call("campaign plan Q6 --format parallel" + few + "--out " + out);
  for (std::string const& id : ids) {
    CHECK(slurm.out.find("  " + id + '\n') != std::string::npos);
    CHECK(parallel.out.find("--cell " + id + '\n') != std::string::npos);
  }
  // Without "hybridstate " a call is what call() takes.
  std::string const command = plan["stages"][0]["cells"][0]["command"];
  REQUIRE(call(command.substr(command.find(' ') + 1)).code == 0);
  REQUIRE(cell_files(out).size() == 1);
  CHECK(out + '/' + plan["stages"][0]["cells"][0]["file"].get<std::string>() ==
        cell_files(out)[0].string());
}

TEST_CASE("bad input is refused in one sentence, with nothing written") {
  workload_test::TemporaryFolder const folder;
  std::string const out = " --out " + folder.path() + "/x";
  expect_usage_error("run Q10" + out, "question Q10: there is none");
  expect_usage_error("run Q1 --seeds a-b" + out, "seeds \"a-b\"");
  expect_usage_error("run Q1 --seeds 5" + out, "no cell of Q1 has such a seed");
  expect_usage_error("run Q1 --executor cuda" + out, "--model DIR");
  expect_usage_error("run Q1 --executor gpu" + out, "use sim, cpu, cuda or interpreted");
  expect_usage_error("run Q1 --executor cpu" + out, "--model DIR");
  expect_usage_error("run Q1 --executor cpu --model /nowhere" + out, "cannot read");
  expect_usage_error("run best --policies nonsense" + out, "nonsense");
  expect_usage_error("run best --mooncake /nowhere" + out, "cannot read");
  expect_usage_error("run Q1 --cell 0 " + out, "no cell of Q1 has this id");
  expect_usage_error("plan Q1 --format xml" + out, "use slurm, parallel or json");
  expect_usage_error("collect " + folder.path() + "/x/none", "no campaign");
  fs::remove_all(folder.path() + "/x");
  expect_usage_error("run Q1", "--out is required");
  std::ofstream(folder.path() + "/file") << "text";
  expect_usage_error("run Q1 --out " + folder.path() + "/file/x", "Cannot create");
}

TEST_CASE("the list names every question") {
  Outcome const outcome = call("campaign --list");
  CHECK(outcome.code == 0);
  for (char const* id : {"Q1:", "Q9:", "Q6.confirmation", "caps:", "granite:", "best:"})
    CHECK(outcome.out.find(id) != std::string::npos);
}
