// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// What run and compare say about FP32 working states that live outside the pools.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/process.hpp"

using cli_test::call;
using cli_test::Outcome;
using Json = nlohmann::json;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The tiny model and a workload of a few tokens.
struct Served {
  workload_test::TemporaryFolder folder;
  std::string options;

  Served() {
    REQUIRE(call("make-model --preset tiny --seed 7 --out '" + folder.path() + "/m'").code == 0);
    std::string const trace =
        folder.write("trace.csv", "arrival,input_length,output_length\n0,9,2\n0,20,3\n");
    options = " --executor cpu --model '" + folder.path() + "/m' --workload 'csv:" + trace +
              "' --budget b63 --cap 3 --threads 1";
  }
  Json runs(const std::string& arguments, std::string& text) const {
    std::string const file = folder.path() + "/out.json";
    Outcome const got = call(arguments + options + " --json '" + file + "'");
    CAPTURE(got.err);
    REQUIRE(got.code == 0);
    text = got.out;
    return Json::parse(cli_test::file_text(file))["runs"];
  }
};

// 3 SSM states x 4 layers x 24 x 16 x 128 x 4 bytes.
constexpr int arena_bytes = 3 * 4 * 196608;

}  // namespace

TEST_CASE("run and compare report the arena of bf16-at-grid and of no other carry") {
  Served const served;
  std::string text;
  for (std::string const carry : {"fp32", "bf16-per-token", "bf16-at-grid"}) {
    CAPTURE(carry);
    bool const grid = carry == "bf16-at-grid";
    Json const run = served.runs("run --org D0 --carry " + carry, text);
    REQUIRE(run.size() == 1);
    CHECK(run[0]["completed"] == 2);
    CHECK(run[0].contains("arena_bytes") == grid);
    if (grid) CHECK(run[0]["arena_bytes"] == arena_bytes);
    CHECK(contains(text, "FP32 working states               2.25 MiB over all layers, outside") ==
          grid);
    CHECK(contains(text, "FP32 working states") == grid);

    Json const rows = served.runs("compare --carry " + carry, text);
    REQUIRE(rows.size() == 4);
    for (Json const& row : rows) {
      CHECK(row.contains("arena_bytes") == grid);
      if (grid) CHECK(row["arena_bytes"] == arena_bytes);
    }
    CHECK(contains(text, "arena") == grid);
    CHECK(contains(text, "2.25") == grid);
  }
}

TEST_CASE("a simulated run has no arena, and an unknown carry is refused") {
  workload_test::TemporaryFolder const folder;
  std::string const file = folder.path() + "/out.json";
  Outcome const got = call(
      "run --workload paper --requests 3 --budget b63 --carry bf16-at-grid --json '" + file + "'");
  CHECK(got.code == 0);
  CHECK_FALSE(Json::parse(cli_test::file_text(file))["runs"][0].contains("arena_bytes"));
  CHECK_FALSE(contains(got.out, "FP32 working states"));

  Served const served;
  Outcome const refused = call("run --carry fp8" + served.options);
  CHECK(refused.code == 2);
  CHECK(refused.out.empty());
  CHECK(contains(refused.err, "--carry fp8: use fp32, bf16-per-token or bf16-at-grid"));
}
