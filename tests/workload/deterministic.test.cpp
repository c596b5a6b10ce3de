// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "math/deterministic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace hybridstate::runtime;

namespace {

/// The distance of two doubles in units of the last place of the second.
double ulps(double a, double b) {
  double const size = std::fabs(b);
  double const ulp = std::nextafter(size, std::numeric_limits<double>::infinity()) - size;
  return std::fabs(a - b) / ulp;
}

struct Moments {
  double mean = 0;
  double variance = 0;
};

template <class Draw>
Moments moments(int n, Draw draw) {
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    double const x = draw();
    sum += x;
    squares += x * x;
  }
  double const mean = sum / n;
  return {mean, squares / n - mean * mean};
}

}  // namespace

TEST_CASE("the bit generator has its published values and stays as it is") {
  BitGenerator zero(0), seeded(42000), stream(42000, 3);
  CHECK(zero.next() == 0x99ec5f36cb75f2b4ULL);  // xoshiro256** after SplitMix64 from 0
  CHECK(zero.next() == 0xbf6e1f784956452aULL);
  CHECK(zero.next() == 0x1a5f849d4933e6e0ULL);
  CHECK(seeded.next() == 0x8f52eeec30bfd667ULL);
  CHECK(seeded.next() == 0x2f8cb87ce3d35ff2ULL);
  CHECK(stream.next() == 0x078db965d494b0a2ULL);
  CHECK(stream.next() == 0xe3c4e530b7e7ad87ULL);
}

TEST_CASE("samples are equal to the last bit everywhere") {
  BitGenerator bits(1);
  CHECK(bits.uniform() == 0x1.67e55eda1f8e2p-1);
  CHECK(bits.exponential() == 0x1.7842169c87864p-1);
  CHECK(bits.normal() == 0x1.4d55c9633557cp+0);
  CHECK(bits.normal() == -0x1.e8d0b0399ee9cp+0);
  CHECK(bits.gamma(1.9) == 0x1.174640e31eb25p+1);
  CHECK(bits.gamma(0.5) == 0x1.22ec13dc8a6fdp-7);
  CHECK(bits.truncated_normal(2.3) == 0x1.68e74fcb565e1p-4);
  CHECK(portable_exp(1) == 0x1.5bf0a8b14576ap+1);
  CHECK(portable_log(10) == 0x1.26bb1bbb55516p+1);
  CHECK(portable_pow(8, -1.1) == 0x1.9fdf8bcce533ep-4);
  CHECK(lognormal_scale_for_mean(260, 1.7, 2.3, {4, 4000}) == 0x1.4a989d170e2eep+6);
  CHECK(gamma_scale_for_mean(243, 1.9, {4, 1024}) == 0x1.0029d19140b48p+7);
}

TEST_CASE("exp and log agree with the C library to 2 ulp") {
  BitGenerator bits(7);
  double worst_exp = 0, worst_log = 0, worst_pow = 0;
  for (int i = 0; i < 300'000; ++i) {
    double const wide = (bits.uniform() - 0.5) * 1400;
    double const narrow = (bits.uniform() - 0.5) * 2;
    worst_exp = std::max({worst_exp, ulps(portable_exp(wide), std::exp(wide)),
                          ulps(portable_exp(narrow), std::exp(narrow))});
    double const any = std::ldexp(1 + bits.uniform(), static_cast<int>(bits.below(2000)) - 1000);
    double const near_one = 0.5 + 1.5 * bits.uniform();
    worst_log = std::max({worst_log, ulps(portable_log(any), std::log(any)),
                          ulps(portable_log(near_one), std::log(near_one))});
    double const base = bits.uniform() * 10 + 0.01;
    double const power = (bits.uniform() - 0.5) * 6;
    double const expected = std::pow(base, power);
    worst_pow = std::max(worst_pow, std::fabs(portable_pow(base, power) - expected) / expected);
  }
  CHECK(worst_exp <= 2);
  CHECK(worst_log <= 2);
  CHECK(worst_pow < 1e-14);
}

TEST_CASE("exp, log and pow at the ends of their range") {
  double const infinity = std::numeric_limits<double>::infinity();
  double const tiny = std::numeric_limits<double>::denorm_min();
  CHECK(portable_exp(0) == 1);
  CHECK(portable_exp(1000) == infinity);
  CHECK(portable_exp(infinity) == infinity);
  CHECK(portable_exp(-1000) == 0);
  CHECK(portable_exp(-infinity) == 0);
  CHECK(portable_exp(709.78) < infinity);
  CHECK(std::fabs(portable_exp(-740) - std::exp(-740.0)) <= 2 * tiny);
  CHECK(portable_log(1) == 0);
  CHECK(portable_log(0) == -infinity);
  CHECK(portable_log(infinity) == infinity);
  CHECK(portable_log(tiny) == doctest::Approx(std::log(tiny)).epsilon(1e-15));
  CHECK(std::isnan(portable_log(-1)));
  CHECK(std::isnan(portable_exp(std::numeric_limits<double>::quiet_NaN())));
  CHECK(portable_pow(3, 0) == 1);
  CHECK(portable_pow(0, 2) == 0);
}

TEST_CASE("distributions have their moments") {
  BitGenerator bits(11);
  constexpr int n = 400'000;
  // Tolerances are about five standard errors.
  Moments const uniform = moments(n, [&] { return bits.uniform(); });
  CHECK(std::fabs(uniform.mean - 0.5) < 0.0025);
  CHECK(std::fabs(uniform.variance - 1.0 / 12) < 0.001);
  Moments const exponential = moments(n, [&] { return bits.exponential(); });
  CHECK(std::fabs(exponential.mean - 1) < 0.008);
  CHECK(std::fabs(exponential.variance - 1) < 0.025);
  Moments const normal = moments(n, [&] { return bits.normal(); });
  CHECK(std::fabs(normal.mean) < 0.008);
  CHECK(std::fabs(normal.variance - 1) < 0.012);
  for (double const shape : {0.3, 1.0, 1.9, 20.0}) {
    Moments const gamma = moments(n, [&] { return bits.gamma(shape); });
    CHECK(std::fabs(gamma.mean - shape) < 5 * std::sqrt(shape / n));
    CHECK(std::fabs(gamma.variance / shape - 1) < 5 * std::sqrt((2 + 6 / shape) / n));
  }
  double largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(bits.truncated_normal(2.3)));
  CHECK(largest <= 2.3);
  CHECK(largest > 2.29);
}

TEST_CASE("bounded integers are even-handed") {
  BitGenerator bits(3);
  std::vector<int> count(10);
  for (int i = 0; i < 100'000; ++i) ++count[bits.below(10)];
  for (int const c : count) CHECK(std::abs(c - 10'000) < 500);
  CHECK(bits.below(1) == 0);
  CHECK(bits.below(1ULL << 63) < 1ULL << 63);
}

TEST_CASE("Zipf draws follow their probabilities") {
  ZipfTable const table(8, 1.1);
  double sum = 0;
  for (std::uint32_t k = 0; k < 8; ++k) {
    sum += table.probability(k);
    if (k > 0) {
      CHECK(table.probability(k) / table.probability(0) ==
            doctest::Approx(std::pow(k + 1.0, -1.1)).epsilon(1e-12));
    }
  }
  CHECK(sum == doctest::Approx(1).epsilon(1e-14));
  BitGenerator bits(5);
  std::vector<int> count(8);
  constexpr int n = 400'000;
  for (int i = 0; i < n; ++i) ++count[table.draw(bits)];
  for (std::uint32_t k = 0; k < 8; ++k) {
    double const p = table.probability(k);
    CHECK(std::fabs(count[k] - n * p) < 5 * std::sqrt(n * p));
  }
}

TEST_CASE("clipped population means agree with plain summation") {
  // Midpoint sums over the density, without a split at the kinks.
  constexpr int n = 400'000;
  double weights = 0, values = 0;
  for (int i = 0; i < n; ++i) {
    double const z = -2.3 + 4.6 * (i + 0.5) / n;
    double const w = std::exp(-0.5 * z * z);
    weights += w;
    values += w * std::clamp(82.0 * std::exp(1.7 * z), 4.0, 4000.0);
  }
  CHECK(clipped_lognormal_mean(82, 1.7, 2.3, {4, 4000}) ==
        doctest::Approx(values / weights).epsilon(1e-8));
  weights = values = 0;
  for (int i = 0; i < n; ++i) {
    double const g = 40.0 * (i + 0.5) / n;
    double const w = std::pow(g, 0.9) * std::exp(-g);
    weights += w;
    values += w * std::clamp(300.0 * g, 4.0, 1024.0);
  }
  CHECK(clipped_gamma_mean(300, 1.9, {4, 1024}) == doctest::Approx(values / weights).epsilon(1e-7));
  for (double const shape : {0.05, 0.5, 1.9, 50.0, 5000.0})
    CHECK(clipped_gamma_mean(1, shape, {0, 1e9}) == doctest::Approx(shape).epsilon(1e-9));
}

TEST_CASE("scales reach the wanted mean") {
  for (double const mean : {4.5, 20.0, 260.0, 293.0, 2000.0, 3990.0}) {
    double const scale = lognormal_scale_for_mean(mean, 1.7, 2.3, {4, 4000});
    CHECK(clipped_lognormal_mean(scale, 1.7, 2.3, {4, 4000}) ==
          doctest::Approx(mean).epsilon(1e-10));
  }
  for (double const mean : {5.0, 243.0, 261.5, 1000.0}) {
    double const scale = gamma_scale_for_mean(mean, 1.9, {4, 1024});
    CHECK(clipped_gamma_mean(scale, 1.9, {4, 1024}) == doctest::Approx(mean).epsilon(1e-10));
  }
  std::vector<double> const sample = {0.1, 1, 1, 3, 50};
  for (double const mean : {4.5, 100.0, 700.0}) {
    double const scale = sample_scale_for_mean(mean, sample, {4, 1024});
    CHECK(clipped_sample_mean(scale, sample, {4, 1024}) == doctest::Approx(mean).epsilon(1e-10));
  }
}
