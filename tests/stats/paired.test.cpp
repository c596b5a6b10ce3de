// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "stats/paired.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "math/deterministic.hpp"
#include "stats/golden.hpp"

using namespace hybridstate::runtime;
using stats_test::golden;
using Values = std::vector<double>;

namespace {

/// Table G-5, ledger throughput of seeds 88001-88006.
RetentionRuns table_g5() {
  RetentionRuns runs;
  runs.isolate_base = {367.534, 381.056, 374.522, 384.449, 376.463, 345.845};
  runs.isolate_retention = {369.327, 381.056, 374.522, 384.449, 374.636, 363.490};
  runs.share_base = {522.152, 498.836, 529.497, 477.648, 571.667, 487.973};
  runs.share_retention = {560.830, 715.721739, 568.719, 583.793, 571.667, 565.429};
  return runs;
}

void check_interval(const Interval& interval, double effect, double low, double high,
                    double tolerance) {
  CHECK(std::abs(interval.effect - effect) < tolerance);
  CHECK(std::abs(interval.low - low) < tolerance);
  CHECK(std::abs(interval.high - high) < tolerance);
}

/// The definition, one assignment after the other.
double sign_flip_slowly(const Values& values) {
  double observed = 0;
  for (double v : values) observed += v;
  std::uint64_t count = 0;
  std::uint64_t const all = std::uint64_t{1} << values.size();
  for (std::uint64_t signs = 0; signs < all; ++signs) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += (signs >> i) & 1U ? values[i] : -values[i];
    if (std::abs(sum) >= std::abs(observed) - 1e-9) ++count;
  }
  return static_cast<double>(count) / static_cast<double>(all);
}

}  // namespace

TEST_CASE("Table G-7 comes out of Table G-5") {
  RetentionEffects const effects = retention_interaction(table_g5());
  check_interval(effects.share, 15.2563, 0.7993, 31.7867, 0.0005);
  check_interval(effects.isolate, 0.8328, -1.3181, 3.0306, 0.0005);
  check_interval(effects.interaction, 14.3043, -0.1057, 30.7930, 0.0005);
  // Not the difference of the two percentages.
  CHECK(std::abs(effects.interaction.effect - (15.2563 - 0.8328)) > 0.1);
}

TEST_CASE("Table G-6: geometric means, whose ratio is the effect") {
  RetentionRuns const runs = table_g5();
  CHECK(std::abs(geometric_mean(runs.isolate_base) - 371.42) < 0.005);
  CHECK(std::abs(geometric_mean(runs.isolate_retention) - 374.52) < 0.005);
  CHECK(std::abs(geometric_mean(runs.share_base) - 513.70) < 0.005);
  CHECK(std::abs(geometric_mean(runs.share_retention) - 592.07) < 0.005);
  CHECK(
      std::abs(100 * (geometric_mean(runs.share_retention) / geometric_mean(runs.share_base) - 1) -
               retention_interaction(runs).share.effect) < 1e-9);
}

TEST_CASE("the product of mean step ratios of Figure 3") {
  // S1/S0 of one seed and S2/S1 of the same: relative effects that multiply to the S2/S0 index.
  Values const s0{100};
  Values const s1{137.9451456};
  Values const s2{137.9451456 * 1.025856851625};
  double const step1 = 1 + arithmetic_mean(relative_effects(s1, s0)) / 100;
  double const step2 = 1 + arithmetic_mean(relative_effects(s2, s1)) / 100;
  CHECK(std::abs(step1 - 1.379451456) < 1e-12);
  CHECK(std::abs(step2 - 1.025856851625) < 1e-12);
  CHECK(std::abs(step1 * step2 - 1.415119728) < 5e-10);
  CHECK(std::abs(1 + arithmetic_mean(relative_effects(s2, s0)) / 100 - 1.415119728) < 5e-10);
}

TEST_CASE("effects are formed inside each seed, then averaged") {
  Values const arm{110, 300};
  Values const base{100, 200};
  Values const effects = relative_effects(arm, base);
  CHECK(std::abs(effects[0] - 10) < 1e-12);
  CHECK(std::abs(effects[1] - 50) < 1e-12);
  CHECK(std::abs(arithmetic_mean(effects) - 30) < 1e-12);  // not 36.7 = 410 / 300
  Values const logs = log_ratios(arm, base);
  CHECK(std::abs(logs[0] - 0.09531017980432493) < 1e-15);
  CHECK(std::abs(logs[1] - 0.4054651081081644) < 1e-15);
}

TEST_CASE("the sign-flip test counts all assignments") {
  CHECK(sign_flip_p(Values{1}) == 1);
  CHECK(sign_flip_p(Values{1, 2}) == 0.5);
  CHECK(sign_flip_p(Values{1, 2, 3}) == 0.25);
  CHECK(sign_flip_p(Values{1, 2, -3}) == 1);
  CHECK(sign_flip_p(Values{0, 0, 0}) == 1);
  CHECK(sign_flip_p(Values(9, -0.7)) == 2.0 / 512);
  CHECK(sign_flip_p(Values(12, 0.1)) == 2.0 / 4096);
  // 0.1 + 0.2 and 0.3 are the same number here, though not the same bits.
  CHECK(sign_flip_p(Values{0.1, 0.2, 0.3}) == 0.25);
  CHECK(sign_flip_p(Values{0.3, -0.2, -0.1, 0.4}) == sign_flip_slowly({0.3, -0.2, -0.1, 0.4}));
  CHECK(sign_flip_p(Values(40, 1.0)) == std::ldexp(1.0, -39));
  BitGenerator bits(7);
  for (int round = 0; round < 60; ++round) {
    Values values(1 + bits.below(13));
    for (double& v : values)  // coarse values, so that sums tie often
      v = static_cast<double>(static_cast<int>(bits.below(9))) / 10.0 - 0.3;
    CAPTURE(round);
    CHECK(sign_flip_p(values) == sign_flip_slowly(values));
  }
}

TEST_CASE("sign flips and t intervals agree with SciPy") {
  for (auto const& row : golden().at("samples")) {
    auto const values = row.at("values").get<Values>();
    CAPTURE(row.at("values").dump());
    CHECK(sign_flip_p(values) == row.at("sign_flip").get<double>());
    for (auto const& [name, level] : {std::pair("t90", 0.90), {"t95", 0.95}, {"t99", 0.99}}) {
      Interval const interval = t_interval(values, level);
      CHECK(std::abs(interval.low - row.at(name)[0].get<double>()) < 1e-13);
      CHECK(std::abs(interval.high - row.at(name)[1].get<double>()) < 1e-13);
    }
    Values powers;
    for (double v : values) powers.push_back(std::exp(v));
    CHECK(std::abs(geometric_mean(powers) - row.at("geometric_mean_of_exp").get<double>()) < 1e-14);
    Interval const percent = percent_t_interval(values);
    CHECK(std::abs(percent.effect - 100 * std::expm1(arithmetic_mean(values))) < 1e-12);
    CHECK(std::abs(percent.high - 100 * std::expm1(row.at("t95")[1].get<double>())) < 1e-11);
  }
}

TEST_CASE("Holm: Tables E-5 and E-16") {
  Values const e5 = holm(Values{0.1250, 0.0078125, 0.0078125, 0.546875, 0.1484375});
  CHECK(e5 == Values{0.375, 0.0390625, 0.0390625, 0.546875, 0.375});
  Values const rounded = holm(Values{0.1250, 0.0078, 0.0078, 0.5469, 0.1484});
  Values const published{0.375, 0.039, 0.039, 0.5469, 0.375};
  for (std::size_t i = 0; i < published.size(); ++i)
    CHECK(std::abs(rounded[i] - published[i]) < 5e-4);
  CHECK(holm(Values{0.4375, 0.4375}) == Values{0.875, 0.875});
  CHECK(holm(Values{0.9, 0.8}) == Values{1, 1});
  CHECK(holm(Values{}) == Values{});
}

TEST_CASE("two looks, as in Table E-5") {
  // Nine seeds of one sign: 2 / 512 at the second look.
  double const p9 = sign_flip_p(Values(9, -0.06));
  double const p6 = sign_flip_p(Values(6, -0.06));
  CHECK(p6 == 0.03125);
  CHECK(two_look_p(p6, p9) == 0.0078125);
  CHECK(two_look_p(0.0625, 0.5) == 0.125);
  CHECK(two_look_p(0.9, 0.7) == 1);
}

TEST_CASE("a family is declared before its results") {
  TestFamily family("headroom", {"b63", "b83", "b108"});
  family.set("b83", 0.01);
  CHECK_THROWS_WITH_AS(static_cast<void>(family.adjusted()),
                       "Family \"headroom\": the declared test \"b63\" has no p yet",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(family.set("b160", 0.5),
                       "Family \"headroom\" does not declare the test \"b160\"",
                       std::invalid_argument);
  CHECK_THROWS_AS(family.set("b83", 0.02), std::invalid_argument);
  CHECK_THROWS_AS(family.set("b63", 1.5), std::invalid_argument);
  family.set("b63", 0.04);
  family.set("b108", 0.03);
  auto const adjusted = family.adjusted();
  CHECK(adjusted.at("b83") == 0.03);
  CHECK(adjusted.at("b108") == 0.06);
  CHECK(adjusted.at("b63") == 0.06);
  CHECK_THROWS_AS(TestFamily("none", {}), std::invalid_argument);
  CHECK_THROWS_AS(TestFamily("twice", {"a", "a"}), std::invalid_argument);
}

TEST_CASE("the bootstrap interval: SciPy's within the noise of resampling, equal bits each time") {
  for (auto const& row : golden().at("bootstrap")) {
    auto const values = row.at("values").get<Values>();
    Interval const interval = bootstrap_interval(values);
    double const noise = 0.04 * sample_deviation(values);
    CHECK(std::abs(interval.low - row.at("interval")[0].get<double>()) < noise);
    CHECK(std::abs(interval.high - row.at("interval")[1].get<double>()) < noise);
    CHECK(interval.effect == arithmetic_mean(values));
    CHECK(bootstrap_interval(values).low == interval.low);
    CHECK(bootstrap_interval(values, {0.95, 10'000, 1}).low != interval.low);
    CHECK(bootstrap_interval(values, {0.5, 10'000, 0}).low > interval.low);
  }
  // Two values: the resampled mean is 0, 1/2 or 1 with 1/4, 1/2, 1/4.
  Interval const two = bootstrap_interval(Values{0, 1}, {0.4, 10'000, 3});
  CHECK(two.low == 0.5);
  CHECK(two.high == 0.5);
  Interval const wide = bootstrap_interval(Values{0, 1}, {0.6, 10'000, 3});
  CHECK(wide.low == 0);
  CHECK(wide.high == 1);
  Interval const single = bootstrap_interval(Values{2.5});
  CHECK(single.low == 2.5);
  CHECK(single.high == 2.5);
}

TEST_CASE("containment in a margin of 3 %") {
  // Table C-3, D0 at f = 0.19: mean -0.280, interval [-0.395, -0.164]; df = 2.
  Values const off{400, 410, 420};
  auto const with_effects = [&](std::array<double, 3> points) {
    Values on;
    for (std::size_t i = 0; i < 3; ++i) on.push_back(off[i] * std::exp(points[i] / 100));
    return containment(on, off);
  };
  double const s = 0.1155 * std::sqrt(3.0) / 2.919985580355516;  // t of df = 2 at 0.95
  Containment const narrow = with_effects({-0.2795 - s, -0.2795, -0.2795 + s});
  CHECK(narrow.contained);
  check_interval(narrow.log_points, -0.280, -0.395, -0.164, 0.001);
  // One seed far off: contained on average, not as an interval.
  Containment const wide = with_effects({-2.5, 0, 2.5});
  CHECK(std::abs(wide.log_points.effect) < 1e-9);
  CHECK_FALSE(wide.contained);
  CHECK_FALSE(with_effects({3.1, 3.1, 3.1001}).contained);
  CHECK_FALSE(with_effects({-3.1, -3.1, -3.1001}).contained);
}

TEST_CASE("one sentence for what has no statistic") {
  CHECK_THROWS_WITH_AS(static_cast<void>(relative_effects(Values{1, 2}, Values{1})),
                       "Relative effects: 2 values against 1; pairs need equal numbers of seeds",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(log_ratios(Values{1, 0}, Values{1, 1})),
                       "Log ratios: value 1 is 0; it must be positive", std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(geometric_mean(Values{1, -1})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(geometric_mean(Values{})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(t_interval(Values{1})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(t_interval(Values{1, 2}, 1.0)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(sign_flip_p(Values(41, 1.0))), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(sign_flip_p(Values{})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(sign_flip_p(Values{std::nan("")})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(holm(Values{0.5, 2})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(two_look_p(-0.1, 0.5)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(bootstrap_interval(Values{})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(containment(Values{1, 2}, Values{1, 2}, 0)),
                  std::invalid_argument);
  RetentionRuns runs = table_g5();
  runs.isolate_base.pop_back();
  runs.isolate_retention.pop_back();
  CHECK_THROWS_AS(static_cast<void>(retention_interaction(runs)), std::invalid_argument);
}
