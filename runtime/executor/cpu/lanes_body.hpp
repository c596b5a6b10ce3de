// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Sixteen lanes of float and what every kernel does with them. Part of kernel_body.hpp and of
// kernels_avx512_bf16.cpp, which set the target before. No include guard and no includes.

#if !defined(HYBRIDSTATE_CPU_ISA) || !defined(HYBRIDSTATE_CPU_WIDTH)
#error "include this from kernels_*.cpp only"
#endif
#if defined(__FAST_MATH__)
#error "the kernels must not be compiled with -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define HYBRIDSTATE_CPU_INLINE __attribute__((always_inline)) inline
// In front of every loop over registers: an array that is indexed by a loop lives in memory.
#if HYBRIDSTATE_CPU_WIDTH == 1
#define HYBRIDSTATE_CPU_UNROLL
#elif defined(__clang__)
#define HYBRIDSTATE_CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HYBRIDSTATE_CPU_UNROLL _Pragma("GCC unroll 16")
#endif

namespace hybridstate::runtime::cpu::HYBRIDSTATE_CPU_ISA {
namespace {

namespace nd = ::hybridstate::numeric::detail;

// --- 16 lanes of float in registers of `width` ------------------------------------------------

constexpr std::size_t lanes = 16;
constexpr std::size_t width = HYBRIDSTATE_CPU_WIDTH;
constexpr std::size_t pieces = lanes / width;

#if HYBRIDSTATE_CPU_WIDTH == 1
using F = float;
using U = std::uint32_t;
using H = std::uint16_t;
HYBRIDSTATE_CPU_INLINE U as_bits(F f) { return numeric::bits_of(f); }
HYBRIDSTATE_CPU_INLINE F as_float(U u) { return numeric::float_of(u); }
HYBRIDSTATE_CPU_INLINE U widen(H h) { return h; }
HYBRIDSTATE_CPU_INLINE H narrow(U u) { return static_cast<H>(u); }
HYBRIDSTATE_CPU_INLINE F broadcast(float f) { return f; }
HYBRIDSTATE_CPU_INLINE F fused_piece(F a, F b, F c) { return numeric::fused(a, b, c); }
#else
using F = float __attribute__((vector_size(4 * HYBRIDSTATE_CPU_WIDTH)));
using U = std::uint32_t __attribute__((vector_size(4 * HYBRIDSTATE_CPU_WIDTH)));
using H = std::uint16_t __attribute__((vector_size(2 * HYBRIDSTATE_CPU_WIDTH)));
using F8 = float __attribute__((vector_size(32)));
using F4 = float __attribute__((vector_size(16)));
HYBRIDSTATE_CPU_INLINE U as_bits(F f) { return (U)f; }
HYBRIDSTATE_CPU_INLINE F as_float(U u) { return (F)u; }
HYBRIDSTATE_CPU_INLINE F broadcast(float f) { return F{} + f; }
// Conversions by name: some compilers take the generic ones apart into halves.
#if HYBRIDSTATE_CPU_WIDTH == 16
constexpr __mmask16 every_lane = 0xffff;  // the forms without a mask warn in some compilers
HYBRIDSTATE_CPU_INLINE U widen(H h) {
  return (U)_mm512_maskz_cvtepu16_epi32(every_lane, (__m256i)h);
}
HYBRIDSTATE_CPU_INLINE H narrow(U u) {
  return (H)_mm512_maskz_cvtepi32_epi16(every_lane, (__m512i)u);
}
HYBRIDSTATE_CPU_INLINE F fused_piece(F a, F b, F c) { return (F)_mm512_fmadd_ps(a, b, c); }
#else
HYBRIDSTATE_CPU_INLINE U widen(H h) { return (U)_mm256_cvtepu16_epi32((__m128i)h); }
HYBRIDSTATE_CPU_INLINE H narrow(U u) { return __builtin_convertvector(u, H); }
HYBRIDSTATE_CPU_INLINE F fused_piece(F a, F b, F c) { return (F)_mm256_fmadd_ps(a, b, c); }
#endif
#endif

struct V {
  F p[pieces];
};
struct VU {
  U p[pieces];
};

// NOLINTBEGIN(modernize-loop-convert): the unroll pragma wants counted loops
HYBRIDSTATE_CPU_INLINE V zero() {
  V v;
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) v.p[i] = F{};
  return v;
}
HYBRIDSTATE_CPU_INLINE V all(float f) {
  V v;
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) v.p[i] = broadcast(f);
  return v;
}
HYBRIDSTATE_CPU_INLINE V operator+(V a, V b) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) a.p[i] = a.p[i] + b.p[i];
  return a;
}
HYBRIDSTATE_CPU_INLINE V operator-(V a, V b) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) a.p[i] = a.p[i] - b.p[i];
  return a;
}
HYBRIDSTATE_CPU_INLINE V operator*(V a, V b) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) a.p[i] = a.p[i] * b.p[i];
  return a;
}
HYBRIDSTATE_CPU_INLINE V operator/(V a, V b) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) a.p[i] = a.p[i] / b.p[i];
  return a;
}
HYBRIDSTATE_CPU_INLINE V fused(V a, V b, V c) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) a.p[i] = fused_piece(a.p[i], b.p[i], c.p[i]);
  return a;
}
/// a where a < b is false: keeps a NaN of a.
HYBRIDSTATE_CPU_INLINE V at_least(V a, V b) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) a.p[i] = a.p[i] < b.p[i] ? b.p[i] : a.p[i];
  return a;
}
HYBRIDSTATE_CPU_INLINE V at_most(V a, V b) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) a.p[i] = a.p[i] > b.p[i] ? b.p[i] : a.p[i];
  return a;
}

template <class T>
HYBRIDSTATE_CPU_INLINE T read(const void* from) {
  T t;
  std::memcpy(&t, from, sizeof t);
  return t;
}

/// 16 elements of a storage type as floats, exactly.
template <Dtype D>
struct Element;
template <>
struct Element<Dtype::f32> {
  static constexpr std::size_t bytes = 4;
  static HYBRIDSTATE_CPU_INLINE F piece(const unsigned char* from) { return read<F>(from); }
};
template <>
struct Element<Dtype::bf16> {
  static constexpr std::size_t bytes = 2;
  static HYBRIDSTATE_CPU_INLINE F piece(H h) { return as_float(widen(h) << 16); }
  static HYBRIDSTATE_CPU_INLINE F piece(const unsigned char* from) { return piece(read<H>(from)); }
};
template <>
struct Element<Dtype::f16> {
  static constexpr std::size_t bytes = 2;
  static HYBRIDSTATE_CPU_INLINE F from_bits(U h) {
    U const magnitude = (h & 0x7fffU) << 13;
    // Scaling by 2^112 moves the exponent, normal or not; all ones become infinity or a NaN.
    U const bits = as_bits(as_float(magnitude) * 0x1p112F);
    U const special = magnitude >= (0x7c00U << 13) ? U{} + 0x7f800000U : U{};
    return as_float(bits | special | (h & 0x8000U) << 16);
  }
  static HYBRIDSTATE_CPU_INLINE F piece(H h) { return from_bits(widen(h)); }
  static HYBRIDSTATE_CPU_INLINE F piece(const unsigned char* from) { return piece(read<H>(from)); }
};

template <Dtype D>
HYBRIDSTATE_CPU_INLINE V load(const void* from) {
  const auto* const bytes = static_cast<const unsigned char*>(from);
  V v;
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i)
    v.p[i] = Element<D>::piece(bytes + i * width * Element<D>::bytes);
  return v;
}
HYBRIDSTATE_CPU_INLINE V load(const float* from) { return load<Dtype::f32>(from); }
/// The first n < 16 elements, then zeros.
template <Dtype D>
HYBRIDSTATE_CPU_INLINE V load_part(const void* from, std::size_t n) {
#if HYBRIDSTATE_CPU_WIDTH == 16
  auto const some = static_cast<__mmask16>((1U << n) - 1U);
  if constexpr (D == Dtype::f32)
    return {(F)_mm512_maskz_loadu_ps(some, from)};
  else
    return {Element<D>::piece((H)_mm256_maskz_loadu_epi16(some, from))};
#else
  alignas(64) unsigned char buffer[lanes * 4] = {};
  std::memcpy(buffer, from, n * Element<D>::bytes);
  return load<D>(buffer);
#endif
}
HYBRIDSTATE_CPU_INLINE void store(float* to, V v) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) std::memcpy(to + i * width, &v.p[i], sizeof(F));
}

HYBRIDSTATE_CPU_INLINE V load_v(const unsigned char* from, Dtype dtype) {
  if (dtype == Dtype::f32) return load<Dtype::f32>(from);
  return dtype == Dtype::bf16 ? load<Dtype::bf16>(from) : load<Dtype::f16>(from);
}

/// The upper half is f rounded to BF16; fewer operations where f is not a NaN.
template <bool MayBeNan = true>
HYBRIDSTATE_CPU_INLINE U bf16_bits_piece(F f) {
  U const bits = as_bits(f);
  U const rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  if constexpr (!MayBeNan) return rounded;
  U const quiet = bits | 0x400000U;
  return (bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded;
}
template <bool MayBeNan = true>
HYBRIDSTATE_CPU_INLINE V rounded_to_bf16(V v) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i)
    v.p[i] = as_float(bf16_bits_piece<MayBeNan>(v.p[i]) & 0xffff0000U);
  return v;
}
template <bool MayBeNan = true>
HYBRIDSTATE_CPU_INLINE void store_bf16(void* to, V v) {
  auto* const bytes = static_cast<unsigned char*>(to);
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) {
    H const h = narrow(bf16_bits_piece<MayBeNan>(v.p[i]) >> 16);
    std::memcpy(bytes + i * width * 2, &h, sizeof h);
  }
}

/// Halving: a[i] + a[i + 8], then + 4, + 2, + 1.
HYBRIDSTATE_CPU_INLINE float halve(V v) {
#if HYBRIDSTATE_CPU_WIDTH == 1
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t step = 8; step > 0; step /= 2) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < step; ++i) v.p[i] = v.p[i] + v.p[i + step];
  return v.p[0];
#else
#if HYBRIDSTATE_CPU_WIDTH == 16
  F8 const eight = __builtin_shufflevector(v.p[0], v.p[0], 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(v.p[0], v.p[0], 8, 9, 10, 11, 12, 13, 14, 15);
#else
  F8 const eight = v.p[0] + v.p[1];
#endif
  F4 const four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                  __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  F4 const two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
#endif
}

/// The accumulators of a wide sum as one.
template <std::size_t P>
HYBRIDSTATE_CPU_INLINE V joined(V (&a)[P]) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t step = P / 2; step > 0; step /= 2) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < step; ++i) a[i] = a[i] + a[i + step];
  return a[0];
}
template <std::size_t P>
HYBRIDSTATE_CPU_INLINE float halve_all(V (&a)[P]) {
  return halve(joined(a));
}

/// Lane i: halve(a[i]).
HYBRIDSTATE_CPU_INLINE V halve_each(V (&a)[lanes]) {
#if HYBRIDSTATE_CPU_WIDTH == 16
  // What is left of two lies in one register after each step.
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < 8; ++i) {
    F const l = a[2 * i].p[0], r = a[2 * i + 1].p[0];
    a[i].p[0] = __builtin_shufflevector(l, r, 0, 1, 2, 3, 4, 5, 6, 7,  //
                                        16, 17, 18, 19, 20, 21, 22, 23) +
                __builtin_shufflevector(l, r, 8, 9, 10, 11, 12, 13, 14, 15,  //
                                        24, 25, 26, 27, 28, 29, 30, 31);
  }
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < 4; ++i) {
    F const l = a[2 * i].p[0], r = a[2 * i + 1].p[0];
    a[i].p[0] = __builtin_shufflevector(l, r, 0, 1, 2, 3, 8, 9, 10, 11,  //
                                        16, 17, 18, 19, 24, 25, 26, 27) +
                __builtin_shufflevector(l, r, 4, 5, 6, 7, 12, 13, 14, 15,  //
                                        20, 21, 22, 23, 28, 29, 30, 31);
  }
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < 2; ++i) {
    F const l = a[2 * i].p[0], r = a[2 * i + 1].p[0];
    a[i].p[0] = __builtin_shufflevector(l, r, 0, 1, 16, 17, 4, 5, 20, 21,  //
                                        8, 9, 24, 25, 12, 13, 28, 29) +
                __builtin_shufflevector(l, r, 2, 3, 18, 19, 6, 7, 22, 23,  //
                                        10, 11, 26, 27, 14, 15, 30, 31);
  }
  F const l = a[0].p[0], r = a[1].p[0];
  F const sums = __builtin_shufflevector(l, r, 0, 2, 16, 18, 4, 6, 20, 22,  //
                                         8, 10, 24, 26, 12, 14, 28, 30) +
                 __builtin_shufflevector(l, r, 1, 3, 17, 19, 5, 7, 21, 23,  //
                                         9, 11, 25, 27, 13, 15, 29, 31);
  return {
      __builtin_shufflevector(sums, sums, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)};
#else
  alignas(64) float sums[lanes];
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < lanes; ++i) sums[i] = halve(a[i]);
  return load(sums);
#endif
}

HYBRIDSTATE_CPU_INLINE bool has_nan(V v) {
#if HYBRIDSTATE_CPU_WIDTH == 16
  return _mm512_cmp_ps_mask(v.p[0], v.p[0], _CMP_UNORD_Q) != 0;
#elif HYBRIDSTATE_CPU_WIDTH == 8
  return _mm256_movemask_ps(_mm256_cmp_ps(v.p[0], v.p[1], _CMP_UNORD_Q)) != 0;
#else
  bool found = false;
  for (F const f : v.p) found = found || std::isnan(f);
  return found;
#endif
}

HYBRIDSTATE_CPU_INLINE V exp_v(V x) {
  x = at_most(at_least(x, all(nd::exp_low)), all(nd::exp_high));
  V const t = fused(x, all(nd::inverse_ln2), all(nd::round_magic));
  V const n = t - all(nd::round_magic);
  V const r = fused(n, all(-nd::ln2_low), fused(n, all(-nd::ln2_high), x));
  V p = fused(all(nd::exp_7), r, all(nd::exp_6));
  p = fused(p, r, all(nd::exp_5));
  p = fused(p, r, all(nd::exp_4));
  p = fused(p, r, all(nd::exp_3));
  p = fused(p, r, all(nd::exp_2));
  p = fused(p, r, all(1.0F));
  p = fused(p, r, all(1.0F));
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) {
    U const k = as_bits(t.p[i]) - nd::round_magic_bits;
    U const half = (k >> 1) | (k & 0x80000000U);
    p.p[i] = p.p[i] * as_float((half + 127U) << 23) * as_float((k - half + 127U) << 23);
  }
  return p;
}
HYBRIDSTATE_CPU_INLINE V silu_v(V v) { return v / (all(1.0F) + exp_v(zero() - v)); }

}  // namespace
// NOLINTEND(modernize-loop-convert)
}  // namespace hybridstate::runtime::cpu::HYBRIDSTATE_CPU_ISA
