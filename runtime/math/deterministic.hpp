// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

// Random numbers and elementary functions whose bits do not depend on the compiler, the C library
// or the machine: only IEEE double +, -, *, / and sqrt, in a fixed order. The build has to switch
// off contraction into fused multiply-adds (-ffp-contract=off) and must not use -ffast-math.

namespace hybridstate::runtime {

/// e to the power x, within 1 ulp; 0 and infinity where the result leaves the range of a double.
double portable_exp(double x) noexcept;

/// The natural logarithm, within 1 ulp; -infinity at 0, NaN below.
double portable_log(double x) noexcept;

/// x to the power y for x >= 0 as exp(y log x): relative error about (1 + |y log x|) ulp.
double portable_pow(double x, double y) noexcept;

/// The finalizer of SplitMix64: a bijection of 64-bit numbers that scatters neighbours.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// xoshiro256** (Blackman and Vigna), its four state words filled by SplitMix64. `stream` selects
/// one of many independent sequences of the same seed: one per purpose, so that drawing more
/// numbers for one purpose leaves the others as they were. Stream 0 is the plain seeding.
class BitGenerator {
 public:
  explicit BitGenerator(std::uint64_t seed, std::uint64_t stream = 0) noexcept;

  /// The next 64 bits.
  std::uint64_t next() noexcept;

  /// Uniform in [0, 1): the upper 53 bits of one word.
  double uniform() noexcept;

  /// Uniform in {0, ..., n - 1} without bias, for n >= 1.
  std::uint64_t below(std::uint64_t n) noexcept;

  /// Exponential with mean 1.
  double exponential() noexcept;

  /// Standard normal by the polar method; of a pair, the second value is kept for the next call.
  double normal() noexcept;

  /// Standard normal, drawn again until it lies in [-bound, bound], for bound > 0.
  double truncated_normal(double bound) noexcept;

  /// Gamma with the given shape > 0 and scale 1 (Marsaglia and Tsang; below shape 1 a draw of
  /// shape + 1 times a power of a uniform number).
  double gamma(double shape) noexcept;

 private:
  std::uint64_t state_[4];
  double spare_ = 0;
  bool has_spare_ = false;
};

/// Draws from {0, ..., n - 1} with probability proportional to (k + 1) to the power -exponent.
class ZipfTable {
 public:
  ZipfTable(std::uint32_t n, double exponent);

  std::uint32_t draw(BitGenerator& bits) const noexcept;
  double probability(std::uint32_t k) const noexcept;

 private:
  std::vector<double> cumulative_;  ///< unnormalized, ascending
};

/// Populations that are cut to a range after scaling: clip(scale * X, low, high).
struct ClippedRange {
  double low = 0;
  double high = 0;
};

/// Mean of clip(scale * exp(sigma * z), range) for a standard normal z conditioned on |z| <= bound.
double clipped_lognormal_mean(double scale, double sigma, double bound,
                              ClippedRange range) noexcept;

/// Mean of clip(scale * g, range) for a gamma variable g of the given shape and scale 1.
double clipped_gamma_mean(double scale, double shape, ClippedRange range) noexcept;

/// Mean of clip(scale * x, range) over the given positive values.
double clipped_sample_mean(double scale, std::span<const double> values,
                           ClippedRange range) noexcept;

/// The scale at which the matching function above has the wanted mean, which must lie strictly
/// inside the range (of the sample: below the range's end, if some value is positive).
double lognormal_scale_for_mean(double mean, double sigma, double bound,
                                ClippedRange range) noexcept;
double gamma_scale_for_mean(double mean, double shape, ClippedRange range) noexcept;
double sample_scale_for_mean(double mean, std::span<const double> values,
                             ClippedRange range) noexcept;

}  // namespace hybridstate::runtime
