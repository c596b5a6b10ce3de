// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/json.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "fixtures.hpp"

using namespace hybridstate::runtime;
using namespace hybridstate::runtime::testing;
using Json = nlohmann::ordered_json;

TEST_CASE("numbers take their shortest form and read back as themselves") {
  CHECK(number_text(0.1) == "0.1");
  CHECK(number_text(3) == "3.0");
  CHECK(number_text(0) == "0.0");
  CHECK(number_text(5e-324) == "5e-324");
  CHECK(number_text(1e300) == "1e+300");
  CHECK(number_text(0.1 + 0.2) == "0.30000000000000004");
  CHECK(std::stod(number_text(2.0 / 3)) == 2.0 / 3);
  CHECK(number_text(std::numeric_limits<double>::quiet_NaN()) == "null");
  CHECK(number_text(std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("equal comparisons give equal bytes that parse back") {
  const std::string text = json_text(small_comparison());
  CHECK(text == json_text(small_comparison()));
  CHECK(text.starts_with("{\n  \"schema\": 1,\n  \"workload\": {\n    \"name\": \"paper\","));
  CHECK(text.ends_with("}\n"));

  const Json json = Json::parse(text);
  CHECK(json["workload"]["description"] == "2 requests <made> & \"small\"");
  CHECK(json["model"] == "falcon-h1-1.5b");
  CHECK(json["settings"]["budget"] == "b63");
  CHECK(json["settings"]["cap"] == "63");
  REQUIRE(json["runs"].size() == 10);
  const Json& run = json["runs"][2];
  CHECK(run["organization"] == "S2");
  CHECK(run["policy"] == "paper");
  CHECK(run["seed"] == 1);
  CHECK(run["executor"] == "simulated");
  CHECK(run["duration"] == 10.0);
  CHECK(run["duration"].is_number_float());
  CHECK(run["completed"] == 2);
  CHECK(run["total_input_tokens"] == 3000);
  CHECK(run["total_output_tokens"] == 300);
  CHECK(run["output_throughput"] == 30.0);
  CHECK(run["request_throughput"] == 0.2);
  CHECK(run["total_token_throughput"] == 330.0);
  CHECK(run["mean_ttft_ms"] == 2000.0);
  CHECK(run["median_ttft_ms"] == 2000.0);
  CHECK(run["std_ttft_ms"] == 1000.0);
  CHECK(run["p99_e2el_ms"].get<double>() == doctest::Approx(7970));
  CHECK(run.contains("p99_tpot_ms"));
  CHECK(run["c_once"] == 1500);
  CHECK(run["iterations"] == 4);
  CHECK(run["preemptions"] == 1);
  CHECK(run["mean_adopted_tokens"] == 768.0);
  CHECK(run["hit_rate_tokens"] == 0.512);
  CHECK(run["refused"] == 0);
  CHECK_FALSE(run.contains("stranded_fraction"));
  CHECK(json["runs"][4]["stranded_fraction"] == 0.125);
  CHECK(json["runs"][4]["pool_units"] == Json({3256, 29}));
  REQUIRE(json["rows"].size() == 5);
  CHECK(json["rows"][1]["gain_percent"].get<double>() == doctest::Approx(37.5));
  CHECK_FALSE(json["rows"][0].contains("gain_percent"));
}

TEST_CASE("values that do not exist are left out, odd text stays valid") {
  Comparison comparison;
  comparison.workload_name = "tab\there \"quoted\" \\ \x01 \xff";
  comparison.heading = {"note a", "note b"};
  comparison.runs.emplace_back();
  comparison.runs[0].steps = 1;
  comparison.runs[0].allocated_bytes_mean = std::numeric_limits<double>::quiet_NaN();
  const Json json = Json::parse(json_text(comparison));
  CHECK(json["settings"]["note"] == "a; b");
  CHECK_FALSE(json["runs"][0].contains("output_throughput"));
  CHECK_FALSE(json["runs"][0].contains("mean_ttft_ms"));
  CHECK_FALSE(json["runs"][0].contains("mean_allocated_bytes"));
  CHECK(json["runs"][0]["completed"] == 0);
  CHECK(Json::parse(json_text(Comparison{}))["runs"].empty());
}

TEST_CASE("counters of slabs and of live sets are there where they apply") {
  Comparison comparison = small_comparison();
  RunResult& s2 = comparison.runs[2];
  s2.cross_invalidations = 0;
  s2.slabs.emplace();
  s2.slabs->pops = 2;
  s2.slabs->live_histogram = {0, 0, 4};
  s2.stored.emplace();
  (*s2.stored)[4].bytes_mean = 12;
  (*s2.stored)[4].per_budget_median = 2.5;
  s2.central.running[0] = s2.central.waiting[0] = s2.central.waiting[1] = 1;
  s2.central.running[1] = 3;
  const Json json = Json::parse(json_text(comparison));
  const Json& with = json["runs"][2];
  CHECK(with["cross_invalidations"] == 0);
  CHECK(with["slab_pops"] == 2);
  CHECK(with["slab_live_histogram"] == Json({0, 0, 4}));
  CHECK(with["m_d0_m512_bytes_mean"] == 12.0);
  CHECK(with["b_per_m_d0_m512_median"] == 2.5);
  CHECK_FALSE(with.contains("b_per_m_d0_m512_mean"));
  CHECK(with["central_drift"] == "seen");
  CHECK(with["o_ctr"] == 300);
  CHECK(with["h_tokens"] == 1800);
  CHECK(with["h_per_k"] == 450.0);
  for (const auto& [name, value] : json["runs"][0].items()) {
    CAPTURE(name);
    CHECK_FALSE(name.starts_with("slab_"));
    CHECK_FALSE(name.starts_with("m_"));
    CHECK_FALSE(name.starts_with("b_per_"));
    CHECK(name != "cross_invalidations");
    CHECK(name != "central_drift");
  }
}

TEST_CASE("the arena's bytes are there where there is an arena") {
  Comparison comparison = small_comparison();
  comparison.runs[1].arena_bytes = 12345;
  const Json json = Json::parse(json_text(comparison));
  CHECK_FALSE(json["runs"][0].contains("arena_bytes"));
  CHECK(json["runs"][1]["arena_bytes"] == 12345);
}

TEST_CASE("CSV has one line per run under the JSON names") {
  Comparison comparison = small_comparison();
  comparison.runs[0].budget = "a, \"b\"";
  const std::string text = csv_text(comparison);
  CHECK(occurrences(text, "\n") == 11);
  const std::string names = text.substr(0, text.find('\n'));
  CHECK(names.starts_with("organization,policy,seed,executor,"));
  CHECK(names.ends_with(",stranded_fraction"));
  CHECK(occurrences(names, ",") + 1 == run_fields(RunResult{}).size());
  CHECK(text.find("\"a, \"\"b\"\"\"") != std::string::npos);
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  CHECK(occurrences(last, ",") == occurrences(names, ","));
  CHECK(last.ends_with(",\n"));  // no stranded fraction
  CHECK(text.find(",3256;29,") != std::string::npos);
}

TEST_CASE("requests and timeline as CSV") {
  RunResult run = small_run("S2", 1, 200);
  RequestRecord refused;
  refused.index = 2;
  refused.outcome = RequestOutcome::refused;
  refused.reason = "It needs 70 pages, the pool has 62.";
  run.requests.push_back(refused);
  const std::string requests = requests_csv_text(run);
  CHECK(occurrences(requests, "\n") == 4);
  CHECK(requests.find("\n0,completed,0,0,1000000000,5000000000,1000.0,") != std::string::npos);
  CHECK(requests.find(
            "\n2,refused,0,,,,,,,0,0,0,0,0,0,0,0,\"It needs 70 pages, the pool has 62.\"\n") !=
        std::string::npos);
  const std::string timeline = timeline_csv_text(run);
  CHECK(occurrences(timeline, "\n") == 5);
  CHECK(timeline.find("\n3000000000,1,1,2,2097152,2097152,1048576,524288,7340032,0,0,0,"
                      ",,,,,,,,,,,,\n") != std::string::npos);
  CHECK(timeline.starts_with(
      "time_ns,step,running,waiting,attention_referenced,ssm_referenced,conv_referenced,cached,"
      "keyless,fenced,payload,allocated,slab_live,slab_pages,slab_saved_bytes,m_s0,m_s1,m_s2,m_d0,"
      "m_d0_m512,b_per_m_s0,b_per_m_s1,b_per_m_s2,b_per_m_d0,b_per_m_d0_m512\n"));
  run.nominal_bytes = 6000;
  run.timeline[1].slabs = SlabSample{43, 3, 20971520};
  run.timeline[1].stored = StoredBytes{4000, 3000, 2400, 0, 12000};
  CHECK(timeline_csv_text(run).find(
            ",0,0,0,43,3,20971520,4000,3000,2400,0,12000,1.5,2.0,2.5,,0.5\n") != std::string::npos);
}

TEST_CASE("files per run have readable, distinct names") {
  Comparison comparison = small_comparison();
  comparison.runs.push_back(comparison.runs.front());
  const auto stems = run_file_stems(comparison);
  CHECK(stems.front() == "S0-paper-seed1");
  CHECK(stems[8] == "byte-exact-bound-paper-seed1");
  CHECK(stems.back() == "S0-paper-seed1-2");

  const TemporaryFolder folder;
  write_run_files(folder.path() / "deep" / "out", comparison);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "deep" / "out")) {
    CHECK(entry.is_regular_file());
    ++files;
  }
  CHECK(files == 22);
  CHECK(read_file(folder.path() / "deep/out/S2-paper-seed2.requests.csv") ==
        requests_csv_text(comparison.runs[3]));
}

TEST_CASE("writing replaces a whole file or leaves it alone") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "result.json";
  write_text_atomically(path, "old");
  write_text_atomically(path, "new");
  CHECK(read_file(path) == "new");

  std::filesystem::create_directory(folder.path() / "taken");
  CHECK_THROWS_AS(write_text_atomically(folder.path() / "taken", "x"), ReportError);
  CHECK_THROWS_AS(write_text_atomically(folder.path() / "absent" / "a.json", "x"), ReportError);
  CHECK_THROWS_AS(write_text_atomically(path / "below-a-file.json", "x"), ReportError);
  CHECK_THROWS_AS(write_text_atomically("", "x"), ReportError);
  CHECK_THROWS_AS(make_folder(path), ReportError);
  try {
    write_json(folder.path() / "absent" / "a.json", small_comparison());
    FAIL("no exception");
  } catch (const ReportError& error) {
    const std::string what = error.what();
    CHECK(what.find("a.json") != std::string::npos);
    CHECK(what.find("does not exist") != std::string::npos);
    CHECK(what.ends_with("."));
  }

  // A name too long for the file system fails before the old file is touched.
  CHECK_THROWS_AS(write_text_atomically(folder.path() / std::string(300, 'n'), "x"), ReportError);
  CHECK(read_file(path) == "new");
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++entries;
  }
  CHECK(entries == 2);  // the file and the folder: no temporary file stayed
}

TEST_CASE("a folder without write permission keeps the old file") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "result.json";
  write_text_atomically(path, "old");
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  bool thrown = false;
  try {
    write_text_atomically(path, "new");
  } catch (const ReportError&) {
    thrown = true;
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  // Root may write anywhere; for everybody else the old text must still be there.
  CHECK(read_file(path) == (thrown ? "old" : "new"));
}

TEST_CASE("a symbolic link is followed and stays a link") {
  const TemporaryFolder folder;
  write_text_atomically(folder.path() / "real.txt", "old");
  std::filesystem::create_symlink("real.txt", folder.path() / "link.txt");
  write_text_atomically(folder.path() / "link.txt", "new");
  CHECK(std::filesystem::is_symlink(folder.path() / "link.txt"));
  CHECK(read_file(folder.path() / "real.txt") == "new");
}
