// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/device/numeric.hpp>

// What kernels read and write: elements of a storage type, sixteen bytes at a time.

// In front of loops over a thread's registers, which nvcc may find too long to unroll by itself: an
// array that is indexed by a loop lives in memory.
#if defined(__CUDA_ARCH__)
#define HYBRIDSTATE_UNROLL _Pragma("unroll")
#else
#define HYBRIDSTATE_UNROLL
#endif

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

struct Bf16 {
  std::uint16_t bits;

  friend constexpr bool operator==(Bf16, Bf16) = default;
};

/// A storage type where it is chosen at run time.
enum class ElementType : std::uint8_t { f32, bf16 };

/// Of one element.
constexpr std::int64_t bytes_of(ElementType type) noexcept {
  return type == ElementType::bf16 ? 2 : 4;
}

/// Sixteen bytes in one access.
struct alignas(16) Vector16 {
  std::uint32_t word[4];
};

/// Four BF16 elements in one access, beside FP32 ones that take a Vector16.
struct alignas(8) Vector8 {
  std::uint32_t word[2];
};

HYBRIDSTATE_HD constexpr float to_float(float f) noexcept { return f; }
HYBRIDSTATE_HD constexpr float to_float(Bf16 b) noexcept { return numeric::from_bf16(b.bits); }

template <class E>
HYBRIDSTATE_HD constexpr E from_float(float f) noexcept {
  if constexpr (sizeof(E) == 2)
    return {numeric::to_bf16(f)};
  else
    return f;
}

/// Elements of a vector.
template <class E>
inline constexpr unsigned per_vector = 16 / sizeof(E);

/// The elements of a vector as floats, exactly.
template <class E>
HYBRIDSTATE_HD constexpr void unpack(const Vector16& v, float* to) noexcept {
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (sizeof(E) == 2) {
      to[2 * i] = numeric::float_of(v.word[i] << 16);
      to[2 * i + 1] = numeric::float_of(v.word[i] & 0xffff0000U);
    } else {
      to[i] = numeric::float_of(v.word[i]);
    }
  }
}
/// Two floats as neighbouring BF16 elements.
HYBRIDSTATE_HD constexpr std::uint32_t bf16_pair(const float* from) noexcept {
  return std::uint32_t{numeric::to_bf16(from[0])} | std::uint32_t{numeric::to_bf16(from[1])} << 16;
}
/// Floats as the elements of a vector: to nearest, ties to even.
template <class E>
HYBRIDSTATE_HD constexpr Vector16 packed(const float* from) noexcept {
  Vector16 v{};
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (sizeof(E) == 2)
      v.word[i] = bf16_pair(from + 2 * i);
    else
      v.word[i] = numeric::bits_of(from[i]);
  }
  return v;
}

/// BF16 elements as FP32 ones, exactly.
HYBRIDSTATE_HD constexpr Vector16 widened(const Vector8& v) noexcept {
  return {{v.word[0] << 16, v.word[0] & 0xffff0000U, v.word[1] << 16, v.word[1] & 0xffff0000U}};
}
/// Four floats as BF16 elements.
HYBRIDSTATE_HD constexpr Vector8 narrowed(const float* from) noexcept {
  return {{bf16_pair(from), bf16_pair(from + 2)}};
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
