// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "math/deterministic.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#if defined(__FAST_MATH__)
#error "deterministic.cpp must not be compiled with -ffast-math: equal seeds give equal bits"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace hybridstate::runtime {

static_assert(std::numeric_limits<double>::is_iec559, "double must be IEEE 754 binary64");
static_assert(FLT_EVAL_METHOD == 0, "double arithmetic must not keep extra precision (use SSE2)");

namespace {

// log 2 in two parts; the first has 21 trailing zero bits, so that its product with any exponent
// of a double is exact.
constexpr double ln2_high = 0x1.62e42feep-1;
constexpr double ln2_low = 0x1.a39ef35793c76p-33;
constexpr double inverse_ln2 = 0x1.71547652b82fep+0;

/// 2 to the power k for a normal result.
double power_of_two(int k) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

constexpr auto inverse_factorials = [] {
  std::array<double, 15> a{};
  double f = 1;
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (n > 0) f *= static_cast<double>(n);
    a[n] = 1.0 / f;  // every factorial up to 14! is exact
  }
  return a;
}();

}  // namespace

double portable_exp(double x) noexcept {
  if (x != x) return x;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  if (x < -745.1332191019412) return 0;
  // x = k log 2 + r with |r| <= 0.35; exp r by its series, whose terms past 14 are below 2^-58.
  double const scaled = x * inverse_ln2;
  int const k = static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  double const kd = static_cast<double>(k);
  double const high = x - kd * ln2_high;
  double const low = kd * ln2_low;
  double const r = high - low;
  double const rounding = (high - r) - low;
  double p = inverse_factorials[14];
  for (std::size_t n = 13; n >= 2; --n) p = p * r + inverse_factorials[n];
  double const e = 1.0 + (r + (r * r * p + rounding));
  if (k >= -1021 && k <= 1023) return e * power_of_two(k);
  if (k > 1023) return e * power_of_two(k - 1) * 2.0;
  return e * power_of_two(k + 64) * 0x1p-64;
}

double portable_log(double x) noexcept {
  if (x != x || x == std::numeric_limits<double>::infinity()) return x;
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  int k = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    k = -54;
  }
  // x = 2^k m with m in [sqrt 1/2, sqrt 2); f = m - 1; s = f / (2 + f);
  // log m = 2 artanh s = f - (f^2/2 - s (f^2/2 + R)), R = 2 (s^2/3 + s^4/5 + ...).
  std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  k += static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double m = std::bit_cast<double>(bits);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++k;
  }
  double const f = m - 1.0;
  double const s = f / (2.0 + f);
  double const z = s * s;
  double series = 2.0 / 25.0;
  for (int n = 23; n >= 3; n -= 2) series = series * z + 2.0 / static_cast<double>(n);
  double const r = series * z;
  double const half = 0.5 * f * f;
  double const kd = static_cast<double>(k);
  return kd * ln2_high - ((half - (s * (half + r) + kd * ln2_low)) - f);
}

double portable_pow(double x, double y) noexcept {
  if (y == 0) return 1;
  return portable_exp(y * portable_log(x));
}

BitGenerator::BitGenerator(std::uint64_t seed, std::uint64_t stream) noexcept {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  std::uint64_t counter = stream == 0 ? seed : mix64(seed + golden) ^ mix64(stream * golden);
  for (std::uint64_t& word : state_) word = mix64(counter += golden);
}

std::uint64_t BitGenerator::next() noexcept {
  std::uint64_t const result = std::rotl(state_[1] * 5, 7) * 9;
  std::uint64_t const t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double BitGenerator::uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }

std::uint64_t BitGenerator::below(std::uint64_t n) noexcept {
  // Words at or above the largest multiple of n would favour small results: draw again.
  std::uint64_t const rest = (std::numeric_limits<std::uint64_t>::max() % n + 1) % n;
  std::uint64_t const last = std::numeric_limits<std::uint64_t>::max() - rest;
  std::uint64_t word = next();
  while (word > last) word = next();
  return word % n;
}

double BitGenerator::exponential() noexcept { return -portable_log(1.0 - uniform()); }

double BitGenerator::normal() noexcept {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  for (;;) {
    double const x = 2.0 * uniform() - 1.0;
    double const y = 2.0 * uniform() - 1.0;
    double const r = x * x + y * y;
    if (r >= 1.0 || r == 0.0) continue;
    double const scale = std::sqrt(-2.0 * portable_log(r) / r);
    spare_ = y * scale;
    has_spare_ = true;
    return x * scale;
  }
}

double BitGenerator::truncated_normal(double bound) noexcept {
  for (;;) {
    double const z = normal();
    if (z >= -bound && z <= bound) return z;
  }
}

double BitGenerator::gamma(double shape) noexcept {
  if (shape < 1.0) {
    double const larger = gamma(shape + 1.0);
    return larger * portable_pow(1.0 - uniform(), 1.0 / shape);
  }
  double const d = shape - 1.0 / 3.0;
  double const c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    double const x = normal();
    double const root = 1.0 + c * x;
    if (root <= 0.0) continue;
    double const v = root * root * root;
    double const u = 1.0 - uniform();
    double const square = x * x;
    if (u < 1.0 - 0.0331 * square * square) return d * v;
    if (portable_log(u) < 0.5 * square + d * (1.0 - v + portable_log(v))) return d * v;
  }
}

ZipfTable::ZipfTable(std::uint32_t n, double exponent) {
  cumulative_.reserve(n);
  double sum = 0;
  for (std::uint32_t k = 0; k < n; ++k) {
    sum += portable_pow(static_cast<double>(k) + 1.0, -exponent);
    cumulative_.push_back(sum);
  }
}

std::uint32_t ZipfTable::draw(BitGenerator& bits) const noexcept {
  double const at = bits.uniform() * cumulative_.back();
  auto const found = std::upper_bound(cumulative_.begin(), cumulative_.end(), at);
  auto const k = static_cast<std::size_t>(found - cumulative_.begin());
  return static_cast<std::uint32_t>(std::min(k, cumulative_.size() - 1));
}

double ZipfTable::probability(std::uint32_t k) const noexcept {
  double const before = k == 0 ? 0.0 : cumulative_[k - 1];
  return (cumulative_[k] - before) / cumulative_.back();
}

namespace {

double clip(double x, ClippedRange range) noexcept {
  return x < range.low ? range.low : x > range.high ? range.high : x;
}

/// The integral of f over [a, b] by Simpson's rule on steps of at most h and of twice the size,
/// extrapolated: the error falls with the sixth power of h.
template <class Function>
double integrate(double a, double b, double h, Function f) noexcept {
  if (!(b > a)) return 0;
  int const intervals = 4 * (1 + static_cast<int>(std::min((b - a) / (4.0 * h), 1e5)));
  double const step = (b - a) / intervals;
  double odd = 0, even_odd = 0, even_even = 0;
  for (int i = 1; i < intervals; ++i) {
    double const y = f(a + step * i);
    if (i % 2 == 1)
      odd += y;
    else if (i % 4 == 2)
      even_odd += y;
    else
      even_even += y;
  }
  double const ends = f(a) + f(b);
  double const fine = step / 3.0 * (ends + 4.0 * odd + 2.0 * (even_odd + even_even));
  double const coarse = 2.0 * step / 3.0 * (ends + 4.0 * even_odd + 2.0 * even_even);
  return fine + (fine - coarse) / 15.0;
}

/// Mean of clip(scale * exp(slope * u), range) under the unnormalized density exp(weight(u)) on
/// [from, to]; the integral is split where the clipping begins and takes steps of at most h.
template <class Weight>
double clipped_mean(double scale, double slope, ClippedRange range, double from, double to,
                    double h, Weight weight) noexcept {
  double const log_scale = portable_log(scale);
  auto const kink = [&](double value) {
    if (value <= 0) return from;
    return std::clamp((portable_log(value) - log_scale) / slope, from, to);
  };
  double const low = kink(range.low);
  double const high = kink(range.high);
  auto const density = [&](double u) { return portable_exp(weight(u)); };
  double const below = integrate(from, low, h, density);
  double const inside = integrate(low, high, h, density);
  double const above = integrate(high, to, h, density);
  double const scaled =
      integrate(low, high, h, [&](double u) { return portable_exp(weight(u) + slope * u); });
  return (range.low * below + scale * scaled + range.high * above) / (below + inside + above);
}

/// The scale at which the rising function `mean_at` reaches `mean`: false position on the logarithm
/// of the scale, halving the weight of an end that stays twice (Illinois).
template <class MeanAt>
double solve_scale(double mean, double guess, MeanAt mean_at) noexcept {
  double low = portable_log(guess), high = low;
  double at_low = mean_at(guess) - mean, at_high = at_low;
  for (int i = 0; i < 200 && at_low > 0; ++i) {
    high = low;
    at_high = at_low;
    low -= 1.0;
    at_low = mean_at(portable_exp(low)) - mean;
  }
  for (int i = 0; i < 200 && at_high < 0; ++i) {
    low = high;
    at_low = at_high;
    high += 1.0;
    at_high = mean_at(portable_exp(high)) - mean;
  }
  if (at_low >= 0) return portable_exp(low);
  int stayed = 0;
  for (int i = 0; i < 200 && high - low > 1e-14; ++i) {
    double middle = (low * at_high - high * at_low) / (at_high - at_low);
    if (!(middle > low && middle < high)) middle = 0.5 * (low + high);
    if (!(middle > low && middle < high)) break;
    double const at_middle = mean_at(portable_exp(middle)) - mean;
    double const size = at_middle < 0 ? -at_middle : at_middle;
    if (size <= 1e-13 * mean) return portable_exp(middle);
    if (at_middle < 0) {
      low = middle;
      at_low = at_middle;
      if (stayed == 1) at_high *= 0.5;
      stayed = 1;
    } else {
      high = middle;
      at_high = at_middle;
      if (stayed == 2) at_low *= 0.5;
      stayed = 2;
    }
  }
  return portable_exp(0.5 * (low + high));
}

}  // namespace

double clipped_lognormal_mean(double scale, double sigma, double bound,
                              ClippedRange range) noexcept {
  return clipped_mean(scale, sigma, range, -bound, bound, 1.0 / (32.0 * (1.0 + sigma)),
                      [](double z) { return -0.5 * z * z; });
}

double clipped_gamma_mean(double scale, double shape, ClippedRange range) noexcept {
  // Over u = log g the density is exp(shape u - e^u), smooth also where that over g is not.
  double const width = 1.0 / std::sqrt(1.0 + shape);
  double const from = portable_log(shape) - 12.0 * width - 40.0 / shape;
  double const to = portable_log(shape + 12.0 * std::sqrt(shape) + 45.0);
  // Its largest value, at u = log shape, is taken out: large shapes would overflow.
  double const peak = shape * portable_log(shape) - shape;
  return clipped_mean(scale, 1.0, range, from, to, width / 16.0,
                      [shape, peak](double u) { return shape * u - portable_exp(u) - peak; });
}

double clipped_sample_mean(double scale, std::span<const double> values,
                           ClippedRange range) noexcept {
  double sum = 0;
  for (double const x : values) sum += clip(scale * x, range);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double lognormal_scale_for_mean(double mean, double sigma, double bound,
                                ClippedRange range) noexcept {
  return solve_scale(
      mean, mean, [&](double scale) { return clipped_lognormal_mean(scale, sigma, bound, range); });
}

double gamma_scale_for_mean(double mean, double shape, ClippedRange range) noexcept {
  return solve_scale(mean, mean / shape,
                     [&](double scale) { return clipped_gamma_mean(scale, shape, range); });
}

double sample_scale_for_mean(double mean, std::span<const double> values,
                             ClippedRange range) noexcept {
  if (values.empty()) return 1;
  return solve_scale(mean, 1.0,
                     [&](double scale) { return clipped_sample_mean(scale, values, range); });
}

}  // namespace hybridstate::runtime
