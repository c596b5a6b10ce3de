// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "fixtures.hpp"

using namespace hybridstate::runtime;
using namespace hybridstate::runtime::testing;

namespace {

const TableColumn& column(const std::vector<TableColumn>& columns, const std::string& group,
                          const std::string& name) {
  const auto found = std::find_if(columns.begin(), columns.end(), [&](const TableColumn& c) {
    return c.group == group && c.name == name;
  });
  REQUIRE(found != columns.end());
  return *found;
}

std::size_t widest_line(const std::string& text) {
  std::istringstream in(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(in, line);) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("numbers for people") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1234567.4) == "1,234,567");
  CHECK(grouped(-1234.56, 1) == "-1,234.6");
  CHECK(grouped(-0.01, 1) == "0.0");
  CHECK(bytes_text(512) == "512 B");
  CHECK(bytes_text(524288) == "512 KiB");
  CHECK(bytes_text(1.5 * 1024 * 1024 * 1024) == "1.50 GiB");
}

TEST_CASE("cells are means over seeds, absent values a dash") {
  const auto columns = comparison_columns(rows_of(small_comparison()));
  CHECK(column(columns, "output", "tok/s").cells[0] == "30.0");
  CHECK(column(columns, "output", "tok/s").cells[1] == "40.0");
  CHECK(column(columns, "gain over the first row, %", "mean").cells[0] == "-");
  CHECK(column(columns, "gain over the first row, %", "mean").cells[1] == "+37.5");
  CHECK(column(columns, "gain over the first row, %", "sd").cells[1] == "17.7");
  CHECK(column(columns, "gain over the first row, %", "min..max").cells[1] == "+25.0..+50.0");
  CHECK(column(columns, "TTFT s", "p99").cells[0] == "2.98");
  CHECK(column(columns, "stranded", "%").cells[1] == "-");
  CHECK(column(columns, "stranded", "%").cells[2] == "12.5");
  CHECK(column(columns, "", "C_once").cells[0] == "1,500");
  for (const TableColumn& c : columns) {
    CHECK(c.cells.size() == 5);
    CHECK_FALSE(c.help.empty());
  }
}

TEST_CASE("a table fits its width and names every row and setting") {
  const std::string text = comparison_table(small_comparison(), 140);
  CHECK(widest_line(text) <= 140);
  for (const char* part : {"S0", "S2", "D0", "infinite memory", "byte-exact bound",
                           "falcon-h1-1.5b", "simulated", "budget", "b63", "2 (1 to 2)", "+37.5"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("nan") == std::string::npos);
  CHECK(occurrences(text, "byte-exact bound") == 2);  // two blocks
  CHECK(occurrences(comparison_table(small_comparison(), 1000), "byte-exact bound") == 1);
  // A width too small for anything still shows every column.
  CHECK(comparison_table(small_comparison(), 1).find("stranded") != std::string::npos);
  // The policy that all rows share stands in the heading.
  CHECK(text.find("policy    paper") != std::string::npos);
  CHECK(comparison_table(Comparison{}).find("No runs.") != std::string::npos);
}

TEST_CASE("FP32 working states are shown where there are some, and nowhere else") {
  Comparison comparison = small_comparison();
  CHECK(comparison_table(comparison).find("arena") == std::string::npos);
  CHECK(run_details(comparison).find("FP32 working states") == std::string::npos);
  for (RunResult& run : comparison.runs)
    if (run.organization == "S2") run.arena_bytes = 3 * 1024 * 1024;
  CHECK(comparison_table(comparison).find("arena") != std::string::npos);
  const auto columns = comparison_columns(rows_of(comparison));
  CHECK(column(columns, "arena", "MiB").cells[0] == "-");
  CHECK(column(columns, "arena", "MiB").cells[1] == "3.00");
  CHECK(occurrences(run_details(comparison),
                    "FP32 working states               3 MiB over all layers, outside the pools") ==
        2);
}

TEST_CASE("measured runs are not called simulated") {
  Comparison comparison = small_comparison();
  for (RunResult& run : comparison.runs) run.executor = "cpu";
  CHECK(comparison_table(comparison).find("simulated") == std::string::npos);
}

TEST_CASE("details list refused requests with their sentences") {
  Comparison comparison;
  comparison.runs.push_back(small_run("D0", 7, 200));
  RunResult& run = comparison.runs.front();
  run.pool_units = {3256, 29};
  run.pool_failures = {3, 4};
  run.stranded_fraction = 0.125;
  run.refused = 25;
  for (std::uint32_t i = 0; i < 25; ++i) {
    RequestRecord refused;
    refused.index = 10 + i;
    refused.outcome = RequestOutcome::refused;
    refused.reason = "It needs 70 pages, the pool has 62.";
    run.requests.push_back(refused);
  }
  const std::string text = run_details(comparison);
  for (const char* part : {"D0, policy paper, seed 7", "2 completed of 27; 25 refused", "12.5 %",
                           "TTFT (s)", "It needs 70 pages, the pool has 62.", "and 5 more",
                           "short pool: 3, 4", "3.00 MiB (75.0 % of allocated)", "3,256 units"}) {
    CAPTURE(part);
    if (std::string(part) == "3.00 MiB (75.0 % of allocated)") {
      CHECK(text.find("75.0 % of allocated") != std::string::npos);
    } else {
      CHECK(text.find(part) != std::string::npos);
    }
  }
  CHECK(occurrences(text, "It needs 70 pages") == 20);
}

TEST_CASE("a run in which nothing completed can be printed") {
  Comparison comparison;
  comparison.runs.emplace_back();
  comparison.runs[0].organization = "S2";
  CHECK(run_details(comparison).find("0 completed of 0") != std::string::npos);
  const std::string text = comparison_table(comparison);
  CHECK(text.find("nan") == std::string::npos);
  CHECK(text.find("inf") == std::string::npos);
}
