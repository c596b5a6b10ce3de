// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "stats/student.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "math/deterministic.hpp"

namespace hybridstate::runtime {

namespace {

constexpr double half_log_two_pi = 0.91893853320467274178;

/// The part of I_x(a, b) that its continued fraction converges fast for, x < (a + 1) / (a + b + 2),
/// by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  auto const keep_away_from_zero = [](double v) { return std::abs(v) < tiny ? tiny : v; };
  double c = 1;
  double d = 1 / keep_away_from_zero(1 - (a + b) * x / (a + 1));
  double h = d;
  for (int m = 1; m <= 10000; ++m) {
    double const even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / keep_away_from_zero(1 + even * d);
    c = keep_away_from_zero(1 + even / c);
    h *= d * c;
    double const odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / keep_away_from_zero(1 + odd * d);
    c = keep_away_from_zero(1 + odd / c);
    double const step = d * c;
    h *= step;
    if (std::abs(step - 1) < 1e-16) break;
  }
  return h;
}

void check_degrees(double degrees) {
  if (!(degrees > 0) || !std::isfinite(degrees))
    throw std::invalid_argument(fmt::format(
        "Student's distribution: {} degrees of freedom; they must be positive", degrees));
}

/// P(T > t) for t >= 0, accurate far into the tail.
double upper_tail(double t, double degrees) {
  return 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

}  // namespace

double log_gamma(double x) {
  if (!(x > 0) || !std::isfinite(x))
    throw std::invalid_argument(fmt::format("log_gamma: {} is not a positive number", x));
  // Stirling's series from 16 on, and the recurrence below.
  double product = 1;
  while (x < 16) {
    product *= x;
    x += 1;
  }
  constexpr double terms[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                              1.0 / 1188, -691.0 / 360360, 1.0 / 156};
  double const inverse = 1 / x;
  double power = inverse;
  double series = 0;
  for (double term : terms) {
    series += term * power;
    power *= inverse * inverse;
  }
  return (x - 0.5) * portable_log(x) - x + half_log_two_pi + series - portable_log(product);
}

double incomplete_beta(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || !(x <= 1))
    throw std::invalid_argument(
        fmt::format("incomplete_beta: a = {}, b = {}, x = {}; a and b must be positive and x "
                    "between 0 and 1",
                    a, b, x));
  if (x == 0 || x == 1) return x;
  double const front = portable_exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) +
                                    a * portable_log(x) + b * portable_log(1 - x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_cdf(double t, double degrees) {
  check_degrees(degrees);
  double const tail = upper_tail(std::abs(t), degrees);
  return t > 0 ? 1 - tail : tail;
}

double student_quantile(double p, double degrees) {
  check_degrees(degrees);
  if (!(p > 0) || !(p < 1))
    throw std::invalid_argument(
        fmt::format("student_quantile: p is {}; it must lie between 0 and 1", p));
  if (p == 0.5) return 0;
  double const tail = p < 0.5 ? p : 1 - p;
  double low = 0;
  double high = 1;
  while (upper_tail(high, degrees) > tail && high < 1e150) {
    low = high;
    high *= 2;
  }
  // Bisection down to neighbouring numbers: a few dozen steps, and no tolerance to choose.
  for (;;) {
    double const middle = low + (high - low) / 2;
    if (!(middle > low) || !(middle < high)) break;
    (upper_tail(middle, degrees) > tail ? low : high) = middle;
  }
  return p < 0.5 ? -high : high;
}

}  // namespace hybridstate::runtime
