// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/rotation.hpp"

#include "math/deterministic.hpp"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace hybridstate::runtime {

SineCosine sine_cosine(float angle) noexcept {
  // angle = k pi/2 + r with |r| <= pi/4. pi/2 in two parts of 33 bits, so that k times the first
  // is exact, and a rest.
  double const x = static_cast<double>(angle);
  auto const k = static_cast<std::int64_t>(x * 0x1.45f306dc9c883p-1 + 0.5);
  auto const kd = static_cast<double>(k);
  double const r =
      ((x - kd * 0x1.921fb544p+0) - kd * 0x1.0b4611a6p-34) - kd * 0x1.3198a2e037073p-69;
  double const z = r * r;
  // Taylor to r^13 and r^14: the rest is below 2^-45.
  double s = 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  double const sine = r + r * (z * s);
  double c = -1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  double const cosine = 1.0 + z * c;
  auto const a = static_cast<float>(sine);
  auto const b = static_cast<float>(cosine);
  switch (k & 3) {
    case 0:
      return {a, b};
    case 1:
      return {b, -a};
    case 2:
      return {-a, -b};
    default:
      return {-b, a};
  }
}

Rotation::Rotation(double theta, std::uint32_t head_dim) {
  for (std::uint32_t i = 0; i < head_dim / 2; ++i)
    frequencies_.push_back(static_cast<float>(
        1.0 / portable_pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim))));
}

void Rotation::fill(std::uint32_t position, float* cosines, float* sines) const noexcept {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    SineCosine const a = sine_cosine(static_cast<float>(position) * frequencies_[i]);
    cosines[i] = a.cosine;
    sines[i] = a.sine;
  }
}

}  // namespace hybridstate::runtime
