// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/thread.hpp>

// Neighbouring elements in the widest accesses that their number allows.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// N elements as floats, exactly. Addresses are multiples of N elements, or of 16 bytes where those
/// are more.
template <class E, unsigned N, class T>
HYBRIDSTATE_HD void load_elements(T& t, const void* from, float* to) {
  if constexpr (N % per_vector<E> == 0) {
    for (unsigned i = 0; i < N; i += per_vector<E>)
      unpack<E>(t.template load<Vector16>(static_cast<const E*>(from) + i), to + i);
  } else if constexpr (sizeof(E) == 2 && N == 4) {
    auto const pair = t.template load<std::uint64_t>(from);
    for (unsigned i = 0; i < N; ++i)
      to[i] = to_float(E{static_cast<std::uint16_t>(pair >> 16 * i)});
  } else {
    for (unsigned i = 0; i < N; ++i)
      to[i] = to_float(t.template load<E>(static_cast<const E*>(from) + i));
  }
}

/// The reverse: to nearest, ties to even.
template <class E, unsigned N, class T>
HYBRIDSTATE_HD void store_elements(T& t, void* to, const float* from) {
  if constexpr (N % per_vector<E> == 0) {
    for (unsigned i = 0; i < N; i += per_vector<E>)
      t.store(static_cast<E*>(to) + i, packed<E>(from + i));
  } else if constexpr (sizeof(E) == 2 && N == 4) {
    std::uint64_t pair = 0;
    for (unsigned i = 0; i < N; ++i) pair |= std::uint64_t{numeric::to_bf16(from[i])} << 16 * i;
    t.store(to, pair);
  } else {
    for (unsigned i = 0; i < N; ++i) t.store(static_cast<E*>(to) + i, from_float<E>(from[i]));
  }
}

/// Rows of elements, `stride` elements apart.
template <class E>
struct Rows {
  E* data = nullptr;
  std::int64_t stride = 0;

  HYBRIDSTATE_HD constexpr explicit operator bool() const noexcept { return data != nullptr; }
  HYBRIDSTATE_HD constexpr E* row(std::int64_t i) const noexcept { return data + i * stride; }
};

/// Elements [k, k + 4) of a row of n as floats; zeros past its end. With Vectors, rows are whole
/// groups of four, as load_elements() takes them.
template <class E, bool Vectors, class T>
HYBRIDSTATE_HD void load_four(T& t, const E* row, std::uint32_t k, std::uint32_t n,
                              float (&to)[4]) {
  for (float& f : to) f = 0.0F;
  if constexpr (Vectors) {
    if (k < n) load_elements<E, 4>(t, row + k, to);
  } else {
    for (unsigned i = 0; i < 4; ++i)
      if (k + i < n) load_elements<E, 1>(t, row + k + i, to + i);
  }
}

/// The reverse; elements past the end are dropped.
template <class E, bool Vectors, class T>
HYBRIDSTATE_HD void store_four(T& t, E* row, std::uint32_t k, std::uint32_t n,
                               const float (&from)[4]) {
  if constexpr (Vectors) {
    if (k < n) store_elements<E, 4>(t, row + k, from);
  } else {
    for (unsigned i = 0; i < 4; ++i)
      if (k + i < n) store_elements<E, 1>(t, row + k + i, from + i);
  }
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
