// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <hybridstate/core/config.hpp>

// Address helpers for kernels: plain structs, passed by value, that host and device code read the
// same way. Rows, units, pages and lines are 32-bit signed table entries and 0 is a valid one; a
// negative entry or argument is a sentinel and yields no address. It is tested before any
// arithmetic, and every product is formed in 64 bits.

HYBRIDSTATE_NAMESPACE_BEGIN

/// A number of bytes as a type: where a view has a std::int64_t, this takes its place and is folded
/// into the address arithmetic at compile time.
template <std::int64_t Value>
struct StaticBytes {
  HYBRIDSTATE_HD constexpr operator std::int64_t() const noexcept { return Value; }
};

/// Whether 32-bit table entries and 64-bit offsets reach every byte of a pool of `units` units of
/// `unit_bytes` bytes that hold `lines_per_unit` lines each (S2: slots; 0 or 1: the unit is the
/// line).
HYBRIDSTATE_HD constexpr bool addressable(std::int64_t units, std::int64_t unit_bytes,
                                          std::int64_t lines_per_unit = 1) noexcept {
  constexpr std::int64_t most_lines = 0x7fffffff, most_bytes = 0x7fffffffffffffff;
  if (units < 0 || unit_bytes < 0 || lines_per_unit < 0) return false;
  return units <= most_lines / (lines_per_unit > 1 ? lines_per_unit : 1) &&
         (unit_bytes == 0 || units <= most_bytes / unit_bytes);
}

/// A distance in bytes from a base, or none.
struct ByteOffset {
  std::int64_t value = -1;

  HYBRIDSTATE_HD constexpr explicit operator bool() const noexcept { return value >= 0; }
  friend constexpr bool operator==(ByteOffset, ByteOffset) = default;
};

/// The address at that distance, or null.
HYBRIDSTATE_HD constexpr std::byte* address(std::byte* base, ByteOffset offset) noexcept {
  return offset.value < 0 ? nullptr : base + offset.value;
}

/// Entry `column` of row `row` of a table whose rows are `row_stride` entries apart; negative when
/// the row or the column is.
HYBRIDSTATE_HD constexpr std::int32_t table_entry(const std::int32_t* table,
                                                  std::int64_t row_stride, std::int32_t row,
                                                  std::int32_t column) noexcept {
  if (row < 0 || column < 0) return -1;
  return table[std::int64_t{row} * row_stride + column];
}

HYBRIDSTATE_NAMESPACE_END
