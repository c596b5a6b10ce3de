// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// compare and run as a user calls them: files, exit codes, and what lands on which stream.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "hybridstate-serving-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
    return (path / name).string();
  }
  std::string at(const std::string& name) const { return (path / name).string(); }

  Outcome run(const std::string& arguments) const {
    std::string const command = std::string(HYBRIDSTATE_BINARY) + " " + arguments + " >" +
                                at("stdout") + " 2>" + at("stderr") + " </dev/null";
    int const status = std::system(command.c_str());
    Outcome o{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(at("stdout")), read(at("stderr"))};
    return o;
  }
};

bool one_sentence(const std::string& text) {
  return !text.empty() && text.back() == '\n' && text.find('\n') == text.size() - 1;
}

constexpr const char* small = "--workload paper --requests 40 --seeds 2 ";

}  // namespace

TEST_CASE("compare prints a row per organization and two references, and nothing on stderr") {
  Folder const folder;
  Outcome const o = folder.run(std::string("compare ") + small);
  CHECK(o.code == 0);
  CHECK(o.err.empty());
  for (const char* row :
       {"\nS0 ", "\nS1 ", "\nS2 ", "\nD0 ", "\ninfinite memory", "\nbyte-exact bound"})
    CHECK_MESSAGE(o.out.find(row) != std::string::npos, row);
  CHECK(o.out.find("simulated") != std::string::npos);
}

TEST_CASE("policies are put together by their names") {
  Folder const folder;
  struct Case {
    const char* policy;
    const char* name;
  };
  constexpr Case cases[] = {
      {"paper+headroom:0.27+last", "paper + headroom 0.27 + last boundary only"},
      {"branch-point+adaptive-headroom+reuse", "branch-point + adaptive headroom + reuse beyond J"},
      {"best+clairvoyant+prefix-aware", "best + next uses known + prefix-aware admission"},
      {"best+retention", "best + holders' retention (K = 2)"},
      {"greedy-dual+junction+unpriced+marconi:2",
       "greedy-dual + Marconi-like score (alpha = 2) + admission without a price + junctions"}};
  std::string policies = "paper";
  for (Case const& c : cases) policies += std::string(",") + c.policy;
  std::string const json = folder.at("all.json");
  Outcome const o = folder.run(
      "compare --no-references --orgs S2 --requests 60 --rate 6 --seeds 1 "
      "--policy " +
      policies + " --json " + json);
  CHECK_MESSAGE(o.code == 0, o.err);
  auto const runs = nlohmann::json::parse(read(json))["runs"];
  REQUIRE(runs.size() == 1 + std::size(cases));
  std::set<double> different;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) CHECK(runs[i]["policy"] == cases[i - 1].name);
    different.insert(runs[i]["output_throughput"].get<double>());
    CHECK(runs[i].contains("price_weighed") == (i == 3 || i == 4));
  }
  CHECK(different.size() == runs.size());
}

TEST_CASE("equal seeds give byte-equal JSON on any number of threads") {
  Folder const folder;
  std::string const options =
      std::string("compare --budget b63 --policy paper,path-safe+reuse ") + small;
  CHECK(folder.run(options + "--threads 1 --json " + folder.at("one.json")).code == 0);
  CHECK(folder.run(options + "--threads 4 --json " + folder.at("four.json")).code == 0);
  std::string const one = read(folder.at("one.json"));
  CHECK(one.size() > 1000);
  CHECK(one == read(folder.at("four.json")));

  auto const json = nlohmann::json::parse(one);
  REQUIRE(json["runs"].size() == 2 * (4 + 4 + 2));
  for (auto const& run : json["runs"]) {
    CHECK(run["completed"] == 40);
    CHECK(run["executor"] == "simulated");
    CHECK(run["output_throughput"].get<double>() > 0);
    CHECK(run["total_input_tokens"].get<std::uint64_t>() > 40 * 3072);
  }
  // The seed decides the work, not the organization.
  CHECK(json["runs"][0]["total_output_tokens"] == json["runs"][2]["total_output_tokens"]);
  CHECK(json["runs"][0]["total_output_tokens"] != json["runs"][1]["total_output_tokens"]);
}

TEST_CASE("every output option leaves its files") {
  Folder const folder;
  Outcome const o =
      folder.run(std::string("compare --orgs S2,D0-M512 ") + small + "--csv " + folder.at("c.csv") +
                 " --html " + folder.at("p.html") + " --out " + folder.at("runs"));
  CHECK(o.code == 0);
  CHECK(read(folder.at("c.csv")).find("D0-M512") != std::string::npos);
  CHECK(read(folder.at("p.html")).find("</html>") != std::string::npos);
  CHECK(!fs::is_empty(folder.at("runs")));
}

TEST_CASE("goodput within observed thresholds, for every row and reference") {
  Folder const folder;
  Outcome const o = folder.run(std::string("compare --orgs S2,D0 --goodput observed:p90 ") + small +
                               "--json " + folder.at("g.json"));
  CHECK(o.code == 0);
  CHECK(o.out.find("goodput tok/s") != std::string::npos);
  auto const json = nlohmann::json::parse(read(folder.at("g.json")));
  CHECK(json["settings"].contains("goodput"));
  REQUIRE(json["runs"].size() == 2 * 4);
  for (auto const& run : json["runs"])
    for (const char* const from : {"output_goodput_comparator", "output_goodput_union"})
      CHECK(run[from].get<double>() <= run["output_throughput"].get<double>());
  // Both thresholds are the first row's own: between 80 and 90 % of its 40 requests keep them.
  CHECK(json["runs"][0]["goodput_comparator_requests"].get<int>() >= 32);
  CHECK(json["runs"][0]["goodput_comparator_requests"].get<int>() <= 36);
}

TEST_CASE("run gives the details of one organization and keeps refused requests in the run") {
  Folder const folder;
  std::string const trace =
      folder.file("t.csv", "arrival,input_length,output_length\n0,600,4\n0.5,500000,4\n1,700,4\n");
  Outcome const o = folder.run("run --org S0 --budget b63 --workload csv:" + trace + " --json " +
                               folder.at("r.json"));
  CHECK(o.code == 0);
  auto const run = nlohmann::json::parse(read(folder.at("r.json")))["runs"][0];
  CHECK(run["completed"] == 2);
  CHECK(run["refused"] == 1);
  CHECK(o.out.find("needs") != std::string::npos);  // the numbers of the refusal
}

TEST_CASE("compare drops what some row could never hold from all rows and counts it") {
  Folder const folder;
  // D0's attention pool at b63 is smaller than S2's shared one.
  std::string const trace =
      folder.file("t.csv", "arrival,input_length,output_length\n0,600,4\n0.5,70000,4\n1,700,4\n");
  Outcome const o = folder.run("compare --orgs S2,D0 --budget b63 --workload csv:" + trace +
                               " --json " + folder.at("r.json"));
  CHECK(o.code == 0);
  auto const json = nlohmann::json::parse(read(folder.at("r.json")));
  for (auto const& run : json["runs"]) CHECK(run["completed"] == 2);
  CHECK(read(folder.at("r.json")).find("\"excluded_requests\": 1") != std::string::npos);
}

TEST_CASE("a Mooncake trace is replayed with its shared blocks") {
  Folder const folder;
  std::string text;
  for (int i = 0; i < 30; ++i)
    text += R"({"timestamp": )" + std::to_string(i * 20000) +
            R"(, "input_length": 1500, "output_length": 8, "hash_ids": [0, 1, )" +
            std::to_string(i + 2) + "]}\n";
  Outcome const o = folder.run("compare --orgs S1 --memory 20GiB --workload mooncake:" +
                               folder.file("t.jsonl", text) + " --json " + folder.at("r.json"));
  CHECK(o.code == 0);
  auto const run = nlohmann::json::parse(read(folder.at("r.json")))["runs"][0];
  CHECK(run["mean_adopted_tokens"].get<double>() == doctest::Approx(29 * 1024 / 30.0));
}

TEST_CASE("bad input: one sentence, exit code 2, nothing on stdout, old files untouched") {
  Folder const folder;
  std::string const bad = folder.file("bad.jsonl", "{\"timestamp\": 0}\n");
  std::string const old = folder.file("old.json", "old");
  struct Case {
    std::string arguments, says;
  };
  for (Case const& c : {
           Case{"compare --workload mooncake:" + bad + " --json " + old, "bad.jsonl"},
           {"compare --workload mooncake:" + folder.at("absent.jsonl"), "absent.jsonl"},
           {"compare --workload other", "other"},
           {"compare --orgs S3", "S3"},
           {"compare --policy better", "better"},
           {"compare --policy paper+clairvoyant", "\"clairvoyant\" does not fit"},
           {"compare --policy path-safe+adaptive-headroom", "branch-point: +adaptive-headroom"},
           {"compare --policy best+marconi+clairvoyant", "\"clairvoyant\" does not fit"},
           {"compare --policy best+marconi:much", "much must be a number"},
           {"compare --policy paper+headroom:1", "1 must be a number"},
           {"compare --policy paper+headroom:", "follows the colon"},
           {"compare --policy best+headroom:0.1", "goes with +unpriced"},
           {"run --policy paper+unpriced", "\"unpriced\" does not fit"},
           {"compare --budget 3parsecs", "3parsecs"},
           {"compare --budget b63 --memory 1GiB", "--memory"},
           {"compare --model gpt", "gpt"},
           {"compare --headroom 1.5", "1.5"},
           {"compare --headroom 0.1 --policy best,greedy-dual", "price admissions"},
           {"run --headroom 0.1 --policy best", "price admissions"},
           {"compare --device nowhere.json", "nowhere.json"},
           {"compare --split 2", "--split"},
           {"compare --placement every:0", "every:0"},
           {"compare --goodput ttft:2", "ttft:2"},
           {"run --goodput observed:p0", "observed:p0"},
           {"compare --slab middle", "middle"},
           {"compare --lengths long", "long"},
           {"compare --max-context 5:squeeze --workload mooncake:" + bad, "squeeze"},
           {"compare --rate 0", "rate"},
           {"compare --requests 0", "request"},
           {"compare --budget 1B", "unit"},
           {"compare --unknown", "unknown"},
           {"run --org S9", "S9"},
           {std::string("compare ") + small + "--json /nonexistent/folder/x.json", "/nonexistent"},
       }) {
    CAPTURE(c.arguments);
    Outcome const o = folder.run(c.arguments);
    CHECK(o.code == 2);
    CHECK(o.out.empty());
    CHECK_MESSAGE(one_sentence(o.err), o.err);
    CHECK_MESSAGE(o.err.find(c.says) != std::string::npos, o.err);
  }
  CHECK(read(old) == "old");
}

TEST_CASE("tails: a row of their own, their counters only there, and no D0") {
  Folder const folder;
  std::string const paper = "--requests 30 --rate 6 --cap 30 --no-references ";
  Outcome const o = folder.run("compare " + paper + "--seeds 2 --policy best,best+tails --json " +
                               folder.at("a.json"));
  CHECK(o.code == 0);
  CHECK(o.err.empty());
  CHECK(o.out.find("best + tails") != std::string::npos);
  CHECK(o.out.find("D0 cannot have +tails: its attention blocks of 16 tokens are no multiple of "
                   "128") != std::string::npos);
  std::string const json = read(folder.at("a.json"));
  CHECK(json.find("\"tail_slabs_mean\"") != std::string::npos);
  auto const count = [&json](const char* name) {
    int n = 0;
    for (auto at = json.find(name); at != std::string::npos; at = json.find(name, at + 1)) ++n;
    return n;
  };
  CHECK(count("\"tail_copies\"") == 3 * 2);  // S0, S1, S2, two seeds
  CHECK(count("\"tail_copied_bytes\"") == 3 * 2);

  Outcome const detail = folder.run("run --org S2 --policy paper+tails --requests 30 --rate 6");
  CHECK(detail.code == 0);
  CHECK(detail.out.find("tails grown, filled, copied") != std::string::npos);
  CHECK(folder.run("run --org S2 --requests 30").out.find("tails grown") == std::string::npos);

  for (std::string const bad : {"run --org D0 ", "compare --orgs D0 "}) {
    Outcome const refused = folder.run(bad + "--policy best+tails");
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(one_sentence(refused.err));
    CHECK(refused.err.find("attention blocks of 16 tokens") != std::string::npos);
  }
}
