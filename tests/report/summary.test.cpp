// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/summary.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "fixtures.hpp"

using namespace hybridstate::runtime;
using namespace hybridstate::runtime::testing;
using doctest::Approx;

TEST_CASE("percentiles interpolate linearly between ranks") {
  CHECK_FALSE(percentile({}, 50).has_value());
  const std::vector<double> one = {7};
  CHECK(percentile(one, 0) == 7);
  CHECK(percentile(one, 99) == 7);
  const std::vector<double> four = {1, 2, 4, 8};
  CHECK(percentile(four, 0) == 1);
  CHECK(percentile(four, 50) == 3);                          // rank 1.5
  CHECK(percentile(four, 90).value_or(-1) == Approx(6.8));   // rank 2.7
  CHECK(percentile(four, 99).value_or(-1) == Approx(7.88));  // rank 2.97
  CHECK(percentile(four, 100) == 8);
}

TEST_CASE("a summary against hand values") {
  const RunResult run = small_run("S2", 42000, 200);
  const Summary summary = summarize(run);
  CHECK(summary.completed == 2);
  CHECK(summary.duration_s == 10);
  CHECK(summary.output_rate == 20);
  CHECK(summary.request_rate == 0.2);
  CHECK(summary.total_token_rate == 320);
  CHECK(summary.input_tokens == 3000);
  CHECK(summary.output_tokens == 200);
  // TTFT 1 s and 3 s; E2E 5 s and 8 s; TPOT 4 s / 99 and 5 s / 99.
  CHECK(summary.ttft.mean == 2000);
  CHECK(summary.ttft.stddev == 1000);
  CHECK(summary.ttft.p50 == 2000);
  CHECK(summary.ttft.p90.value_or(-1) == Approx(2800));
  CHECK(summary.ttft.p99.value_or(-1) == Approx(2980));
  CHECK(summary.e2e.mean == 6500);
  CHECK(summary.tpot.mean.value_or(-1) == Approx(4500.0 / 99));
  CHECK(summary.adopted_mean == 768);
  CHECK(summary.attention_mean == 768);
  CHECK(summary.recurrent_mean == 1000);
  CHECK(summary.hit_rate.value_or(-1) == Approx(0.512));
  CHECK(summary.running_median == 2);
  CHECK_FALSE(summary.stranded_fraction.has_value());
}

TEST_CASE("only completed requests have latencies, every admitted one has a depth") {
  RunResult run = small_run("S2", 1, 200);
  RequestRecord refused;
  refused.outcome = RequestOutcome::refused;
  refused.prompt_tokens = 50'000;
  run.requests.push_back(refused);
  RequestRecord ended = request(3, 4, 6, 3000, 10);
  ended.outcome = RequestOutcome::capacity;
  ended.adopted_tokens = 1464;
  run.requests.push_back(ended);
  const Summary summary = summarize(run);
  CHECK(summary.submitted == 4);
  CHECK(summary.completed == 2);
  CHECK(summary.ttft.count == 2);
  CHECK(summary.output_tokens == 200);
  CHECK(summary.hit_rate == 0.5);  // (1536 + 1464) / (1000 + 2000 + 3000)
  CHECK(summary.adopted_mean == 1000);
}

TEST_CASE("requests with one output token have no time per output token") {
  RunResult run = small_run("S2", 1, 200);
  run.requests[0].output_tokens = 1;
  run.requests[0].finished_ns = run.requests[0].first_token_ns;
  Summary summary = summarize(run);
  CHECK(summary.tpot.count == 1);
  CHECK(summary.tpot.p99.value_or(-1) == Approx(5000.0 / 99));

  run.requests.resize(1);
  summary = summarize(run);
  CHECK(summary.completed == 1);
  CHECK(summary.ttft.p50 == 1000);
  CHECK(summary.ttft.p99 == 1000);
  CHECK(summary.ttft.stddev == 0);
  CHECK_FALSE(summary.tpot.mean.has_value());
  CHECK_FALSE(summary.tpot.p99.has_value());
}

TEST_CASE("nothing completed, nothing divided") {
  RunResult run;
  Summary summary = summarize(run);
  CHECK(summary.completed == 0);
  CHECK_FALSE(summary.output_rate.has_value());
  CHECK_FALSE(summary.duration_s.has_value());
  CHECK_FALSE(summary.ttft.mean.has_value());
  CHECK_FALSE(summary.hit_rate.has_value());
  CHECK_FALSE(summary.adopted_mean.has_value());
  CHECK_FALSE(summary.running_median.has_value());
  CHECK_FALSE(summary.allocated_mean.has_value());

  run.span_ns = second;  // time passed, nothing came of it: a true zero
  summary = summarize(run);
  CHECK(summary.output_rate == 0);
}

TEST_CASE("the gain is paired by seed and has a spread") {
  const Comparison comparison = small_comparison();
  const std::vector<Row> rows = rows_of(comparison);
  REQUIRE(rows.size() == 5);
  CHECK(rows[0].label == "S0");
  CHECK(rows[3].label == "infinite memory");
  CHECK(rows[3].reference);
  CHECK(rows[4].reference);
  CHECK_FALSE(rows[0].gain.mean.has_value());
  // S2: 300 / 200 and 500 / 400.
  CHECK(rows[1].gain.mean.value_or(-1) == Approx(37.5));
  CHECK(rows[1].gain.min.value_or(-1) == Approx(25));
  CHECK(rows[1].gain.max.value_or(-1) == Approx(50));
  CHECK(rows[1].gain.stddev.value_or(-1) == Approx(17.67766953));
  CHECK(rows[2].gain.mean.value_or(-1) == Approx(75));
  CHECK(rows[1].over_seeds(&Summary::output_rate).mean == 40);
}

TEST_CASE("a seed that the first row lacks has no gain") {
  Comparison comparison;
  comparison.runs = {small_run("S0", 1, 200), small_run("S2", 1, 300), small_run("S2", 2, 900)};
  std::vector<Row> rows = rows_of(comparison);
  CHECK(rows[1].gain.count == 1);
  CHECK(rows[1].gain.mean.value_or(-1) == Approx(50));
  CHECK_FALSE(rows[1].gain.stddev.has_value());

  comparison.runs[0].span_ns = 0;
  rows = rows_of(comparison);
  CHECK_FALSE(rows[1].gain.mean.has_value());
}

TEST_CASE("references come last, labels tell policies and budgets apart") {
  Comparison comparison;
  comparison.runs = {small_run("infinite", 1, 200), small_run("S2", 1, 200),
                     small_run("S2", 1, 300), small_run("S2", 1, 300)};
  comparison.runs[2].policy = "path-safe";
  comparison.runs[3].policy = "path-safe";
  comparison.runs[3].budget = "b83";
  std::vector<Row> rows = rows_of(comparison);
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].label == "S2 paper b63");
  CHECK(rows[1].label == "S2 path-safe b63");
  CHECK(rows[2].label == "S2 path-safe b83");
  CHECK(rows[3].organization == "infinite");
}

TEST_CASE("settings split at a colon or at the first space") {
  CHECK(split_setting("budget b63").value == "b63");
  CHECK(split_setting("max context: 32768:drop").name == "max context");
  CHECK(split_setting("max context: 32768:drop").value == "32768:drop");
  CHECK(split_setting("mixed").name == "mixed");
  CHECK(split_setting("mixed").value.empty());
}
