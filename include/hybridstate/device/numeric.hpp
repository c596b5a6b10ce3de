// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/config.hpp>

// Elementary functions whose bits are the same on every compiler, C library, CPU and GPU: IEEE
// float +, -, *, / and explicit fused multiply-adds, in a fixed order. Compile with
// -ffp-contract=off (nvcc: -fmad=false -prec-div=true) and without -ffast-math; subnormals count.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace numeric {

HYBRIDSTATE_HD constexpr std::uint32_t bits_of(float value) noexcept {
  return __builtin_bit_cast(std::uint32_t, value);
}
HYBRIDSTATE_HD constexpr float float_of(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

/// a * b + c, rounded once.
HYBRIDSTATE_HD inline float fused(float a, float b, float c) noexcept {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// A subnormal number as a zero of its sign.
HYBRIDSTATE_HD constexpr float flushed(float v) noexcept {
  return (bits_of(v) & 0x7f800000U) != 0 ? v : float_of(bits_of(v) & 0x80000000U);
}

/// fused() of BF16 values a and b and a sum c, none of them subnormal, whose result is a zero of
/// its sign where it would be below the smallest normal number if exponents had no bounds: what
/// x86's flush-to-zero mode and its dot products of BF16 do.
HYBRIDSTATE_HD inline float fused_flushed(float a, float b, float c) noexcept {
  float const r = fused(a, b, c);
  constexpr std::uint32_t least_normal = 0x00800000U;
  if ((bits_of(r) & 0x7fffffffU) - 1U >= least_normal) return r;  // zero, too
  // Rounded 2^60 times larger, where no result is subnormal. Then |a b| < 2^-100 and a < 2^26, or b
  // is zero and the comparison false, be it with a NaN.
  float const larger = fused(a * 0x1p60F, b, c * 0x1p60F);
  return (larger < 0.0F ? -larger : larger) < 0x1p-66F ? float_of(bits_of(r) & 0x80000000U) : r;
}

/// Rounded to nearest.
HYBRIDSTATE_HD inline float sqrt(float v) noexcept {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(v);
#else
  return __builtin_sqrtf(v);
#endif
}

/// BF16 bits of a float: to nearest, ties to even; a NaN stays a quiet NaN of its sign.
HYBRIDSTATE_HD constexpr std::uint16_t to_bf16(float value) noexcept {
  std::uint32_t const bits = bits_of(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
HYBRIDSTATE_HD constexpr float from_bf16(std::uint16_t bits) noexcept {
  return float_of(std::uint32_t{bits} << 16);
}
HYBRIDSTATE_HD constexpr float round_to_bf16(float value) noexcept {
  return from_bf16(to_bf16(value));
}

namespace detail {
// exp x = 2^n e^r with n = round(x / log 2): log 2 in two parts, Taylor's series of e^r to r^7.
inline constexpr float exp_low = -104.0F;  // the result is 0 below
inline constexpr float exp_high = 89.0F;   // and infinite above
inline constexpr float inverse_ln2 = 0x1.715476p+0F;
inline constexpr float round_magic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr std::uint32_t round_magic_bits = 0x4b400000U;
inline constexpr float ln2_high = 0x1.62e4p-1F;
inline constexpr float ln2_low = 0x1.7f7d1cp-20F;
inline constexpr float exp_7 = 1.0F / 5040.0F;
inline constexpr float exp_6 = 1.0F / 720.0F;
inline constexpr float exp_5 = 1.0F / 120.0F;
inline constexpr float exp_4 = 1.0F / 24.0F;
inline constexpr float exp_3 = 1.0F / 6.0F;
inline constexpr float exp_2 = 0.5F;
}  // namespace detail

/// e to the power x, within 2 ulp; subnormal results included.
HYBRIDSTATE_HD inline float exp(float x) noexcept {
  x = x < detail::exp_low ? detail::exp_low : x;
  x = x > detail::exp_high ? detail::exp_high : x;
  float const t = fused(x, detail::inverse_ln2, detail::round_magic);
  float const n = t - detail::round_magic;
  float const r = fused(n, -detail::ln2_low, fused(n, -detail::ln2_high, x));
  float p = fused(detail::exp_7, r, detail::exp_6);
  p = fused(p, r, detail::exp_5);
  p = fused(p, r, detail::exp_4);
  p = fused(p, r, detail::exp_3);
  p = fused(p, r, detail::exp_2);
  p = fused(p, r, 1.0F);
  p = fused(p, r, 1.0F);
  // 2^n in two factors, so that each is a normal number. Unsigned arithmetic: t may be a NaN.
  std::uint32_t const k = bits_of(t) - detail::round_magic_bits;
  std::uint32_t const half = (k >> 1) | (k & 0x80000000U);
  return p * float_of((half + 127U) << 23) * float_of((k - half + 127U) << 23);
}

/// v times the logistic function of v.
HYBRIDSTATE_HD inline float silu(float v) noexcept { return v / (1.0F + exp(-v)); }

/// log(1 + exp v) = max(v, 0) + log(1 + exp(-|v|)), the logarithm as 2 artanh(y / (2 + y)).
HYBRIDSTATE_HD inline float softplus(float v) noexcept {
  float const magnitude = v < 0.0F ? -v : v;
  float const y = exp(-magnitude);
  float const s = y / (2.0F + y);
  float const z = s * s;
  float p = 1.0F / 15.0F;
  p = fused(p, z, 1.0F / 13.0F);
  p = fused(p, z, 1.0F / 11.0F);
  p = fused(p, z, 1.0F / 9.0F);
  p = fused(p, z, 1.0F / 7.0F);
  p = fused(p, z, 1.0F / 5.0F);
  p = fused(p, z, 1.0F / 3.0F);
  p = fused(p, z, 1.0F);
  return fused(2.0F * s, p, v > 0.0F ? v : 0.0F);
}

}  // namespace numeric
HYBRIDSTATE_NAMESPACE_END
