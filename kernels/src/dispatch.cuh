// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/kernels/access.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>

// What launchers ask of their arguments.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels::detail {

inline constexpr std::uint32_t most_grid_y = 65535;  // and z; x takes 2^31 - 1
inline constexpr std::uint64_t most_grid_x = 0x7fffffff;

/// Whether addresses, and distances in bytes, are multiples of 16 bytes.
template <class... Values>
bool vectors(Values... values) {
  auto const whole = [](auto v) {
    if constexpr (std::is_pointer_v<decltype(v)>)
      return reinterpret_cast<std::uintptr_t>(v) % sizeof(Vector16) == 0;
    else
      return static_cast<std::uint64_t>(v) % sizeof(Vector16) == 0;
  };
  return (whole(values) && ...);
}

/// The same of the begins of rows.
template <class E>
bool row_vectors(const Rows<E>& rows) {
  return vectors(rows.data, rows.stride * static_cast<std::int64_t>(sizeof(E)));
}

}  // namespace kernels::detail
HYBRIDSTATE_NAMESPACE_END
