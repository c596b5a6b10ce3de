// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/thread.hpp>

// The reduction order of the numeric contract over chains that a group of lanes holds: chain i is
// added to chain i - L/2, then L/4, ... 1. The order is part of the result, so it does not follow
// from where the chains lie.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// The sum, in every lane, of V x Lanes x G chains: chain (v * Lanes + lane) * G + i is
/// a[v * G + i] of that lane. Lanes: neighbours of a warp that begin at a multiple of Lanes.
template <unsigned V, unsigned Lanes, unsigned G, class T>
HYBRIDSTATE_HD float halve(T& t, float (&a)[V * G]) {
  static_assert((V & (V - 1)) == 0 && (Lanes & (Lanes - 1)) == 0 && (G & (G - 1)) == 0);
  static_assert(G <= Lanes && Lanes <= warp_lanes);
  HYBRIDSTATE_UNROLL
  for (unsigned step = V / 2; step > 0; step /= 2) HYBRIDSTATE_UNROLL
  for (unsigned i = 0; i < step * G; ++i) a[i] = a[i] + a[i + step * G];
  // While a lane has several chains, the two lanes of a pair share them out, which costs half the
  // shuffles of adding every chain in both.
  unsigned bit = Lanes / 2;
  HYBRIDSTATE_UNROLL
  for (unsigned half = G / 2; half > 0; half /= 2, bit /= 2) {
    bool const upper = (t.thread() & bit) != 0;
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < half; ++i) {
      float const kept = upper ? a[half + i] : a[i];
      float const given = upper ? a[i] : a[half + i];
      a[i] = kept + t.shuffle_xor(given, bit);
    }
  }
  float sum = a[0];
  HYBRIDSTATE_UNROLL
  for (; bit > 0; bit /= 2) sum = sum + t.shuffle_xor(sum, bit);
  // Last the G chains that were neighbours: they lie along the lanes' high bits now.
  bit = Lanes / 2;
  HYBRIDSTATE_UNROLL
  for (unsigned half = G / 2; half > 0; half /= 2, bit /= 2) sum = sum + t.shuffle_xor(sum, bit);
  return sum;
}

/// The wide sum of a[k] * b[k] over n <= Elements x 32 elements, in every lane of a warp that holds
/// element i * 32 + lane in a[i] and b[i], zeros past the end.
template <unsigned Elements, class T>
HYBRIDSTATE_HD float strided_dot(T& t, std::uint32_t n, const float (&a)[Elements],
                                 const float (&b)[Elements]) {
  constexpr unsigned held = Elements < 8 ? Elements : 8;  // chains of a lane
  std::uint32_t const padded = quotient_up<std::uint32_t>(n, 16) * 16;
  std::uint32_t all = 16;  // chains of the row
  while (all < 256 && all < n) all *= 2;
  float chain[held];
  HYBRIDSTATE_UNROLL
  for (unsigned i = 0; i < Elements; ++i) {
    bool const inside = i * warp_lanes + t.thread() % warp_lanes < padded;
    if (i < held)
      chain[i] = a[i] * b[i];
    else if (inside)
      chain[i % held] = numeric::fused(a[i], b[i], chain[i % held]);
  }
  HYBRIDSTATE_UNROLL
  for (unsigned half = held / 2; half > 0; half /= 2)
    if (all >= 2 * half * warp_lanes) {
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < half; ++i) chain[i] = chain[i] + chain[i + half];
    }
  float sum = chain[0];
  HYBRIDSTATE_UNROLL
  for (unsigned bit = warp_lanes / 2; bit > 0; bit /= 2)
    if (all >= 2 * bit) sum = sum + t.shuffle_xor(sum, bit);
  return sum;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
