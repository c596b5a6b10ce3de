// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hybridstate::runtime {

/// How one element of a tensor is stored, little-endian.
enum class Dtype : std::uint8_t { bf16, f16, f32 };

constexpr std::size_t dtype_bytes(Dtype dtype) noexcept { return dtype == Dtype::f32 ? 4 : 2; }

/// As safetensors spells it.
constexpr std::string_view dtype_name(Dtype dtype) noexcept {
  return dtype == Dtype::bf16 ? "BF16" : dtype == Dtype::f16 ? "F16" : "F32";
}

constexpr float bf16_to_float(std::uint16_t value) noexcept {
  return std::bit_cast<float>(std::uint32_t{value} << 16);
}

/// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
constexpr std::uint16_t float_to_bf16(float value) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float f16_to_float(std::uint16_t value) noexcept {
  std::uint32_t const sign = std::uint32_t{value & 0x8000U} << 16;
  std::uint32_t const exponent = (value >> 10) & 31U;
  std::uint32_t const fraction = value & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | fraction << 13);
  float const magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

/// Round to nearest, ties to even, subnormals included; infinity from 65,520 on.
constexpr std::uint16_t float_to_f16(float value) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const sign = (bits >> 16) & 0x8000U;
  std::uint32_t const magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude >= 0x38800000U) {
    std::uint32_t const shifted = magnitude - (112U << 23);
    return static_cast<std::uint16_t>(sign | (shifted + 0xfffU + ((shifted >> 13) & 1U)) >> 13);
  }
  // Below 2^-14: in units of 2^-24, rounded by the addition of 2^23.
  float const units = std::bit_cast<float>(magnitude) * 0x1p24F + 0x1p23F;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(units) & 0x7fffffU));
}

/// Element `index` of packed elements, exactly.
inline float element_as_float(const void* data, Dtype dtype, std::size_t index) noexcept {
  const auto* const bytes = static_cast<const unsigned char*>(data) + index * dtype_bytes(dtype);
  if (dtype == Dtype::f32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  std::uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return dtype == Dtype::bf16 ? bf16_to_float(value) : f16_to_float(value);
}

}  // namespace hybridstate::runtime
