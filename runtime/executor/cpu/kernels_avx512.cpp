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
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
#define HYBRIDSTATE_CPU_ISA avx512
#define HYBRIDSTATE_CPU_WIDTH 16
#include "executor/cpu/kernel_body.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace hybridstate::runtime::cpu::detail {
constinit const Kernels avx512_kernels = avx512::table("avx512");
}
#endif
