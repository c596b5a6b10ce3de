// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu/kernels.hpp"

namespace hybridstate::runtime::cpu {

bool available([[maybe_unused]] Isa isa) noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == Isa::avx512_bf16) {
    static bool const has = available(Isa::avx512) && __builtin_cpu_supports("avx512bf16") &&
                            detail::dot_keeps_rules_avx512_bf16();
    return has;
  }
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
  if (isa == Isa::avx512_bf16 && available(isa)) {
    static Kernels const with_dot = [] {
      Kernels k = detail::avx512_kernels;
      k.name = "avx512-bf16";
      k.linear = [](const Linear& job, std::uint32_t tokens, std::uint32_t first,
                    std::uint32_t end) {
        (job.input == LinearInput::bf16 ? detail::linear_avx512_bf16
                                        : detail::avx512_kernels.linear)(job, tokens, first, end);
      };
      return k;
    }();
    return with_dot;
  }
  if (isa == Isa::avx512 && available(isa)) return detail::avx512_kernels;
  if (isa == Isa::avx2 && available(isa)) return detail::avx2_kernels;
#endif
  return detail::scalar_kernels;
}

const Kernels& best_kernels() noexcept {
  for (Isa const isa : {Isa::avx512_bf16, Isa::avx512})
    if (available(isa)) return kernels(isa);
  return kernels(Isa::avx2);
}

}  // namespace hybridstate::runtime::cpu
