// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "stats/student.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>

#include "stats/golden.hpp"

using namespace hybridstate::runtime;
using stats_test::golden;

namespace {

double relative_error(double value, double reference) {
  if (reference == 0) return std::abs(value);
  return std::abs(value - reference) / std::abs(reference);
}

}  // namespace

TEST_CASE("the gamma and the incomplete beta function agree with SciPy") {
  int compared = 0;
  for (auto const& row : golden().at("log_gamma")) {
    CAPTURE(row[0].get<double>());
    CHECK(std::abs(log_gamma(row[0]) - row[1].get<double>()) <
          2e-14 * (1 + std::abs(row[1].get<double>())));
    ++compared;
  }
  for (auto const& row : golden().at("incomplete_beta")) {
    CAPTURE(row.dump());
    CHECK(relative_error(incomplete_beta(row[0], row[1], row[2]), row[3]) < 1e-11);
    ++compared;
  }
  CHECK(compared == 58);
  CHECK(incomplete_beta(2, 3, 0) == 0);
  CHECK(incomplete_beta(2, 3, 1) == 1);
}

TEST_CASE("Student's distribution agrees with SciPy") {
  int compared = 0;
  for (auto const& row : golden().at("student_cdf")) {
    CAPTURE(row.dump());
    CHECK(relative_error(student_cdf(row[0], row[1]), row[2]) < 1e-11);
    ++compared;
  }
  for (auto const& row : golden().at("student_quantile")) {
    CAPTURE(row.dump());
    double const t = student_quantile(row[0], row[1]);
    double const p = row[0];
    // Near p = 1/2 a quantile is a small number that stands for a difference of probabilities.
    CHECK(std::abs(t - row[2].get<double>()) < 1e-11 * std::max(1.0, std::abs(t)));
    CHECK(relative_error(student_cdf(t, row[1]), p) < 1e-11);
    ++compared;
  }
  CHECK(compared == 123);
}

TEST_CASE("the quantile of G4, which the paper prints to nine digits") {
  CHECK(std::abs(student_quantile(0.975, 5) - 2.5705818366147395) < 2e-9);
  CHECK(std::abs(student_quantile(0.975, 5) - 2.5705818356363146) < 1e-13);
  CHECK(student_quantile(0.25, 5) == -student_quantile(0.75, 5));
  CHECK(student_quantile(0.5, 7) == 0);
}

TEST_CASE("what has no value is refused") {
  CHECK_THROWS_AS(static_cast<void>(student_quantile(0, 5)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(student_quantile(1, 5)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(student_quantile(std::nan(""), 5)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(student_quantile(0.9, 0)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(log_gamma(0)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(incomplete_beta(1, 1, 1.5)), std::invalid_argument);
}
