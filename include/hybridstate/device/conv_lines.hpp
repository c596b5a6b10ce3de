// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/core/types.hpp>
#include <hybridstate/device/address.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// The convolution lines of a batch, for one layer: tap-major, [d_conv - 1][channels], oldest tap
/// first. A line is a slot (S2), a page (S1) or a composite (S0, D0, whose base lies behind the SSM
/// bytes). A state wider than a page continues in further pages: `parts` lines a row, `part_bytes`
/// of the state in each.
struct ConvLines {
  std::byte* base = nullptr;            ///< line 0 of this layer
  const std::int32_t* lines = nullptr;  ///< negative: absent
  std::int64_t row_stride = 1;          ///< table entries from one row to the next
  std::int64_t line_stride = 0;         ///< bytes from one line to the next
  std::int64_t part_bytes = 0;          ///< 0: the whole state lies in one line

  /// base + line * stride + o.
  HYBRIDSTATE_HD constexpr ByteOffset offset(std::int32_t line, std::int64_t o) const noexcept {
    if (line < 0 || o < 0) return {};
    return {std::int64_t{line} * line_stride + o};
  }
  HYBRIDSTATE_HD constexpr std::byte* addr_conv(std::int32_t line, std::int64_t o) const noexcept {
    return address(base, offset(line, o));
  }

  /// Byte `o` of the state in row `row`.
  HYBRIDSTATE_HD constexpr ByteOffset row_offset(std::int32_t row, std::int64_t o) const noexcept {
    if (row < 0 || o < 0) return {};
    if (part_bytes == 0) return offset(table_entry(lines, row_stride, row, 0), o);
    return offset(table_entry(lines, row_stride, row, static_cast<std::int32_t>(o / part_bytes)),
                  o % part_bytes);
  }
  HYBRIDSTATE_HD constexpr std::byte* addr_row(std::int32_t row, std::int64_t o) const noexcept {
    return address(base, row_offset(row, o));
  }
  /// Bytes that lie together from byte `o` of a state of `state_bytes` on.
  HYBRIDSTATE_HD constexpr std::int64_t run(std::int64_t o,
                                            std::int64_t state_bytes) const noexcept {
    std::int64_t const left = state_bytes - o;
    if (part_bytes == 0) return left;
    std::int64_t const part = part_bytes - o % part_bytes;
    return part < left ? part : left;
  }
};

HYBRIDSTATE_NAMESPACE_END
