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
