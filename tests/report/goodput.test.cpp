// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/goodput.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.hpp"
#include "fixtures.hpp"
#include "options/quantities.hpp"
#include "report/json.hpp"
#include "report/table.hpp"

using namespace hybridstate::runtime;
using namespace hybridstate::runtime::testing;

TEST_CASE("thresholds are read in seconds and milliseconds") {
  const GoodputRule rule = parse_goodput("ttft:2s,tpot:80ms");
  CHECK(rule.ttft_ms == 2000);
  CHECK(rule.tpot_ms == 80);
  CHECK_FALSE(rule.e2e_ms.has_value());
  CHECK_FALSE(rule.observed_percent.has_value());
  CHECK(parse_goodput("e2e:1.5s").e2e_ms == 1500);
  CHECK(parse_goodput("observed").observed_percent == 99);
  CHECK(parse_goodput("observed:p97.5").observed_percent == 97.5);
  CHECK(parse_goodput("observed:p100").observed_percent == 100);
  for (const char* bad :
       {"ttft",       "ttft:",           "ttft:2",           "ttft:2m",       "ttft:-2s",
        "ttft:0s",    "ttft:nans",       "ttft:infs",        "itl:2s",        "ttft:2s,",
        ",ttft:2s",   "ttft:2s,ttft:3s", "ttft:2s,observed", "observed:",     "observed:95",
        "observed:p", "observed:p0",     "observed:p101",    "observed:p95x", "observedly"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_goodput(bad), UsageError);
  }
}

TEST_CASE("given thresholds, against hand values") {
  // TTFT 1 s and 3 s, E2E 5 s and 8 s, TPOT 4 s / 99 and 5 s / 99; 100 tokens each in 10 s.
  Comparison comparison;
  comparison.runs.push_back(small_run("S2", 1, 200));
  const auto with = [&](const char* text) {
    add_goodput(comparison, parse_goodput(text));
    return comparison.runs.front().goodput.value();
  };
  CHECK(with("ttft:1s") == Goodput{1000, {}, {}, 1, 100});
  CHECK(with("ttft:999ms").requests == 0);
  CHECK(with("ttft:3s").requests == 2);
  CHECK(with("tpot:45ms,e2e:8s").requests == 1);
  CHECK(with("ttft:3s,tpot:51ms,e2e:7999ms").requests == 1);
  // A request with one output token has no TPOT to miss.
  comparison.runs.front().requests[1].output_tokens = 1;
  CHECK(with("tpot:41ms").output_tokens == 101);
  // Whoever did not complete does not count.
  comparison.runs.front().requests[0].outcome = RequestOutcome::capacity;
  CHECK(with("ttft:3s").output_tokens == 1);
  CHECK_FALSE(comparison.runs.front().goodput_union.has_value());
}

TEST_CASE("observed thresholds come from the same seed's first row, and from all rows") {
  Comparison comparison = small_comparison();
  // Under S2, the second request of seed 1 takes 18 s, which no S0 request does; D0 is as S0.
  comparison.runs[2].requests[1].finished_ns = 20 * second;
  add_goodput(comparison, parse_goodput("observed:p100"));
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    CAPTURE(i);
    const RunResult& run = comparison.runs[i];
    CHECK_FALSE(run.goodput.has_value());
    // S0 took 5 and 8 s.
    CHECK(run.goodput_comparator.value().e2e_ms == 8000);
    CHECK_FALSE(run.goodput_comparator.value().ttft_ms.has_value());
    CHECK(run.goodput_union.value().e2e_ms == (run.seed == 1 ? 18'000 : 8000));
    CHECK(run.goodput_comparator.value().requests == (i == 2 ? 1 : 2));
    CHECK(run.goodput_union.value().requests == 2);
  }
  const double p50 = 6500;
  add_goodput(comparison, parse_goodput("observed:p50"));
  CHECK(comparison.runs[0].goodput_comparator.value().e2e_ms == p50);
  CHECK(comparison.runs[0].goodput_comparator.value().requests == 1);

  // References set no thresholds for the union, and one row alone has none.
  for (std::size_t i = 6; i < 10; ++i) comparison.runs[i].requests[1].finished_ns = 90 * second;
  add_goodput(comparison, parse_goodput("observed:p100"));
  CHECK(comparison.runs[0].goodput_union.value().e2e_ms == 18'000);
  Comparison alone;
  alone.runs.push_back(small_run("S2", 1, 200));
  add_goodput(alone, parse_goodput("observed"));
  CHECK(alone.runs[0].goodput_comparator.has_value());
  CHECK_FALSE(alone.runs[0].goodput_union.has_value());
  // Nobody completed: there is nothing to observe.
  for (RequestRecord& r : alone.runs[0].requests) r.outcome = RequestOutcome::capacity;
  alone.runs[0].goodput_comparator.reset();
  add_goodput(alone, parse_goodput("observed"));
  CHECK_FALSE(alone.runs[0].goodput_comparator.has_value());
}

TEST_CASE("goodput reaches JSON and tables, and only when it was asked for") {
  Comparison comparison = small_comparison();
  CHECK(json_text(comparison).find("goodput") == std::string::npos);
  CHECK(comparison_table(comparison).find("goodput") == std::string::npos);
  CHECK(run_details(comparison).find("goodput") == std::string::npos);
  add_goodput(comparison, parse_goodput("ttft:2s"));
  const auto json = nlohmann::json::parse(json_text(comparison));
  const auto& run = json["runs"][0];
  CHECK(run["goodput_ttft_threshold_ms"] == 2000.0);
  CHECK_FALSE(run.contains("goodput_tpot_threshold_ms"));
  CHECK(run["goodput_requests"] == 1);
  CHECK(run["request_goodput"] == 0.1);
  CHECK(run["output_goodput"] == 10.0);
  CHECK_FALSE(run.contains("output_goodput_union"));
  CHECK(json["rows"][0]["output_goodput"] == 15.0);  // 10 and 20 over the two seeds
  CHECK(comparison_table(comparison).find("goodput tok/s") != std::string::npos);
  CHECK(run_details(comparison).find("10.0 output tok/s of 1 requests within TTFT 2.00 s") !=
        std::string::npos);
}
