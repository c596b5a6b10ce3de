// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <hybridstate/kernels/element.hpp>

// A kernel is a plain struct of its arguments with
//
//   static constexpr unsigned threads;                       // of a CTA: whole warps
//   Grid grid() const;                                       // CTAs
//   template <cta_thread T> HYBRIDSTATE_HD void operator()(T& t) const;   // what one thread does
//
// and everything that depends on the machine behind `t`. Three shells supply it: a CUDA launch
// (shell/cuda.cuh), an interpreter on the CPU (shell/interpreter.hpp), and the interpreter with a
// recorder of every access (shell/recorder.hpp). One source runs in all of them.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

inline constexpr unsigned warp_lanes = 32;

/// CTAs of a launch.
struct Grid {
  std::uint32_t x = 1, y = 1, z = 1;

  HYBRIDSTATE_HD constexpr std::uint64_t ctas() const noexcept { return std::uint64_t{x} * y * z; }
  friend constexpr bool operator==(const Grid&, const Grid&) = default;
};

/// One thread of a CTA. Every access to global memory goes through load and store, aligned to the
/// type's size. sync() and the shuffles must be reached by all threads of the CTA, or of the warp.
/// shared<S>() is the CTA's shared memory, the same in every call: a kernel has one S.
template <class T>
concept cta_thread = requires(T& t, const void* from, void* to, float f, unsigned lane) {
  { t.thread() } -> std::convertible_to<unsigned>;
  { t.block_x() } -> std::convertible_to<unsigned>;
  { t.block_y() } -> std::convertible_to<unsigned>;
  { t.block_z() } -> std::convertible_to<unsigned>;
  { t.template load<Vector16>(from) } -> std::same_as<Vector16>;
  t.store(to, f);
  t.sync();
  { t.shuffle_xor(f, lane) } -> std::same_as<float>;
  { t.template shared<float>() } -> std::same_as<float&>;
};

/// Integer quotient rounded up.
template <std::unsigned_integral N>
HYBRIDSTATE_HD constexpr N quotient_up(N a, N b) noexcept {
  return (a + b - 1) / b;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
