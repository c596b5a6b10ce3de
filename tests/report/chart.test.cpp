// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/chart.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fixtures.hpp"

using namespace hybridstate::runtime;
using hybridstate::runtime::testing::occurrences;

namespace {

ChartMark mark(double value, double low, double high) {
  ChartMark m;
  m.value = value;
  m.low = low;
  m.high = high;
  m.dots = {{"seed 1", low}, {"seed 2", high}};
  return m;
}

Chart two_arms(ChartKind kind) {
  Chart chart;
  chart.label = "a & b";
  chart.tag = "simulated";
  chart.y_title = "tokens/s";
  chart.categories = {"b63", "b83"};
  chart.series = {{"S0", {"var(--s0)", ""}, kind, false, {mark(100, 90, 110), mark(200, 190, 210)}},
                  {"<S2>", {"var(--s2)", ""}, kind, true, {mark(-50, -60, -40), {}}}};
  chart.series[0].marks[1].published = 250;
  return chart;
}

}  // namespace

TEST_CASE("a range of values ends on ticks around it") {
  Scale const scale = range_scale(-13, 47, 300, 0, 5);
  CHECK(scale.low == -20);
  CHECK(scale.high == 60);
  CHECK(scale.ticks == std::vector<double>{-20, 0, 20, 40, 60});
  CHECK(scale(-20) == 300);
  CHECK(scale(60) == 0);
  CHECK(scale(20) == 150);
  Scale const flat = range_scale(5, 5, 0, 1, 5);
  CHECK(flat.low <= 5);
  CHECK(flat.high > 5);
  // Ends that are ticks already stay.
  Scale const exact = range_scale(0, 0.6, 0, 1, 3);
  CHECK(exact.low == 0);
  CHECK(exact.high == doctest::Approx(0.6));
}

TEST_CASE("bars, lines and points hold every value, and the published one as a diamond") {
  for (ChartKind const kind : {ChartKind::bars, ChartKind::line, ChartKind::points}) {
    Chart const chart = two_arms(kind);
    std::string const svg = chart_svg(chart);
    CHECK(occurrences(svg, ">simulated</text>") == 1);
    CHECK(occurrences(svg, "class=\"published\" ") == 1);
    CHECK(occurrences(svg, "class=\"seed\"") == 6);
    CHECK(occurrences(svg, "class=\"whisker\"") == 9);  // three, each with two ends
    CHECK(occurrences(svg, "<rect") == (kind == ChartKind::bars ? 3 : 0));
    CHECK(occurrences(svg, "<polyline") == (kind == ChartKind::line ? 2 : 0));
    CHECK(occurrences(svg, "r=\"4\"") == (kind == ChartKind::bars ? 0 : 3));
    CHECK(svg.find("nan") == std::string::npos);
    std::string const legend = chart_legend(chart);
    CHECK(legend.find("&lt;S2&gt;") != std::string::npos);
    CHECK(legend.find("paper") != std::string::npos);
  }
}

TEST_CASE("a chart without values says that nothing was run") {
  Chart chart = two_arms(ChartKind::bars);
  for (ChartSeries& series : chart.series) series.marks = {{}, {}};
  std::string const svg = chart_svg(chart);
  CHECK(svg.find(">not run</text>") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(chart_legend(chart).find("paper") == std::string::npos);
}
