// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "executor/cpu/kernels.hpp"

// Only what follows is compiled for the instruction set: nothing that another file may also define.
#if defined(__clang__)
#pragma clang attribute push(                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#endif
#define HYBRIDSTATE_CPU_ISA avx512_bf16
#define HYBRIDSTATE_CPU_WIDTH 16
#define HYBRIDSTATE_CPU_DOT
#include "executor/cpu/lanes_body.hpp"
#include "executor/cpu/linear_body.hpp"

namespace hybridstate::runtime::cpu::detail {

void linear_avx512_bf16(const Linear& job, std::uint32_t tokens, std::uint32_t first,
                        std::uint32_t end) {
  if (tokens > 0) avx512_bf16::linear_rows<Dtype::bf16, LinearInput::bf16>(job, tokens, first, end);
}

bool dot_keeps_rules_avx512_bf16() noexcept {
  // A sum, its even and its odd product: orders, roundings and borders that differ.
  struct Case {
    float sum, a_even, b_even, a_odd, b_odd;
  };
  constexpr Case cases[] = {
      {0x1p24F, 1, 1, 1, -1},                               // the order
      {1, 0x1.02p0F, 0x1p-24F, 0x1.02p0F, 0x1p-24F},        // each product is added by itself
      {-0x1.04p0F, 0x1.02p0F, 0x1.02p0F, 0, 0},             // and not rounded before
      {0x1p-126F, -0x1p-75F, 0x1p-75F, 0, 0},               // just below the smallest normal number
      {0x1p-126F, -0x1p-75F, 0x1p-76F, 0, 0},               // rounds up to it
      {0x1.8p-126F, -0x1p-63F, 0x1p-63F, 0x1p-126F, 0.5F},  // flushed between
      {0, 0x1p-127F, 0x1p100F, -0x1p-100F, 0x1p-100F},      // subnormal element and result
  };
  for (const Case& c : cases) {
    auto const pair = [](float even, float odd) {
      return static_cast<int>(std::uint32_t{numeric::to_bf16(odd)} << 16 | numeric::to_bf16(even));
    };
    __m512 const got = _mm512_dpbf16_ps(_mm512_set1_ps(c.sum),
                                        (__m512bh)_mm512_set1_epi32(pair(c.a_even, c.a_odd)),
                                        (__m512bh)_mm512_set1_epi32(pair(c.b_even, c.b_odd)));
    float const odd =
        numeric::fused_flushed(numeric::flushed(c.a_odd), numeric::flushed(c.b_odd), c.sum);
    float const want =
        numeric::fused_flushed(numeric::flushed(c.a_even), numeric::flushed(c.b_even), odd);
    if (numeric::bits_of(got[0]) != numeric::bits_of(want)) return false;
  }
  return true;
}

}  // namespace hybridstate::runtime::cpu::detail
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
