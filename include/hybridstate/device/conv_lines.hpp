// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/core/types.hpp>
#include <hybridstate/device/address.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <type_traits>

HYBRIDSTATE_NAMESPACE_BEGIN

/// The convolution lines of a batch, for one layer: tap-major, [d_conv - 1][channels], oldest tap
/// first. A line is a slot (S2), a page (S1) or a composite (S0, D0, whose base lies behind the SSM
/// bytes). A state wider than a page continues in further pages: `parts` lines a row, `part_bytes`
/// of the state in each.
template <class LineStride = std::int64_t, class PartBytes = std::int64_t>
struct ConvLinesOf {
  std::byte* base = nullptr;            ///< line 0 of this layer
  const std::int32_t* lines = nullptr;  ///< negative: absent
  std::int64_t row_stride = 1;          ///< table entries from one row to the next
  /// Bytes from one line to the next.
  [[no_unique_address]] LineStride line_stride{};
  /// Bytes of the state in one line; 0: all of them.
  [[no_unique_address]] PartBytes part_bytes{};

  /// The same rows as a view whose strides are constants of the same values.
  template <class Other>
    requires std::is_empty_v<decltype(Other::line_stride)> &&
             std::is_empty_v<decltype(Other::part_bytes)>
  HYBRIDSTATE_HD constexpr Other with() const noexcept {
    return {base, lines, row_stride, {}, {}};
  }

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

using ConvLines = ConvLinesOf<>;

/// Slots of slab pages (S2), as compile-time constants of a StaticLayout.
template <class Layout>
using StaticSlotLines = ConvLinesOf<
    StaticBytes<static_cast<std::int64_t>(Layout::page_bytes() / Layout::slots_per_slab())>,
    StaticBytes<0>>;
/// Dedicated pages (S1; S2 where a state is wider than a page).
template <class Layout>
using StaticPageLines = ConvLinesOf<
    StaticBytes<static_cast<std::int64_t>(Layout::page_bytes())>,
    StaticBytes<Layout::conv_pages() == 1 ? 0 : static_cast<std::int64_t>(Layout::page_bytes())>>;
/// Whole composites: coarse pages (S0) or units of exactly one composite (D0).
template <class Layout>
using StaticCoarseLines =
    ConvLinesOf<StaticBytes<static_cast<std::int64_t>(Layout::coarse_page_bytes())>,
                StaticBytes<0>>;
template <class Layout>
using StaticCompositeLines =
    ConvLinesOf<StaticBytes<static_cast<std::int64_t>(Layout::composite_bytes())>, StaticBytes<0>>;

HYBRIDSTATE_NAMESPACE_END
