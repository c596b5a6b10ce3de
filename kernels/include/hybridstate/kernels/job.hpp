// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/access.hpp>
#include <type_traits>

// A job is what a kernel does, with everything that is known at run time only: the arguments of the
// kernel and, where there is a choice of storage types, an ElementType `type`. Beside each kernel,
//
//   template <class Run> bool with_kernel(const Job&, Run&& run);
//
// calls run(kernel) with the body that takes the job, or with several one after another, each of
// which needs the results of those before; false, without a call, for a job that none takes. CUDA
// launches (shell/cuda.cuh) and interpreters choose alike, as both ask it.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels::detail {

inline constexpr std::uint64_t most_grid_x = 0x7fffffff;
inline constexpr std::uint32_t most_grid_y = 65535;  // and z
/// Elements of a row whose indices are 32 bits wide, with room to look past its end.
inline constexpr std::uint32_t most_elements = 0x7fffffff;

/// Whether addresses, and distances in bytes, are multiples of `bytes`.
template <class... Values>
bool multiples_of(std::int64_t bytes, Values... values) noexcept {
  auto const whole = [n = static_cast<std::uint64_t>(bytes)](auto v) {
    if constexpr (std::is_pointer_v<decltype(v)>)
      return reinterpret_cast<std::uintptr_t>(v) % n == 0;
    else
      return static_cast<std::uint64_t>(v) % n == 0;
  };
  return (whole(values) && ...);
}
template <class... Values>
bool vectors(Values... values) noexcept {
  return multiples_of(sizeof(Vector16), values...);
}
/// The same of the begins of all rows.
template <class... E>
bool row_vectors(const Rows<E>&... rows) noexcept {
  return vectors(rows.data..., rows.stride * static_cast<std::int64_t>(sizeof(E))...);
}
/// Of rows of a type chosen at run time.
inline bool row_vectors(const void* data, std::int64_t stride, ElementType type) noexcept {
  return vectors(data, stride * bytes_of(type));
}

/// What f.operator()<E>() returns for the type that `type` stands for.
template <class F>
bool with_element(ElementType type, F&& f) {
  return type == ElementType::bf16 ? f.template operator()<Bf16>() : f.template operator()<float>();
}

}  // namespace kernels::detail
HYBRIDSTATE_NAMESPACE_END
