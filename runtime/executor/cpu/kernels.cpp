// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu/kernels.hpp"

namespace hybridstate::runtime::cpu {

bool available([[maybe_unused]] Isa isa) noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == Isa::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == Isa::scalar;
}

const Kernels& kernels([[maybe_unused]] Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::avx512 && available(isa)) return detail::avx512_kernels;
  if (isa == Isa::avx2 && available(isa)) return detail::avx2_kernels;
#endif
  return detail::scalar_kernels;
}

const Kernels& best_kernels() noexcept {
  return kernels(available(Isa::avx512) ? Isa::avx512 : Isa::avx2);
}

}  // namespace hybridstate::runtime::cpu
