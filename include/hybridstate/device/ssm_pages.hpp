// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <hybridstate/core/types.hpp>
#include <hybridstate/device/address.hpp>
#include <hybridstate/geometry/layout.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// How the heads of one SSM state spread over its member pages. `at` says where byte `byte` of head
/// `head` lies; `run` is the number of bytes of a head that lie together from there on.
template <class M>
concept member_map = requires(const M& m, Units head, Bytes byte) {
  { m.at(head, byte) } noexcept -> std::same_as<MemberOffset>;
  { m.run(byte) } noexcept -> std::same_as<Bytes>;
  { m.members() } noexcept -> std::same_as<Units>;
};

/// Run-time numbers: whole heads share a page (heads_per_page > 0: the fast path), or one head
/// takes several pages of split_bytes each.
struct MemberMap {
  Bytes head_bytes = 0;
  Bytes split_bytes = 0;
  Units heads_per_page = 0;
  Units pages_per_head = 1;
  Units member_count = 1;

  HYBRIDSTATE_HD constexpr MemberOffset at(Units head, Bytes byte) const noexcept {
    if (heads_per_page != 0)
      return {head / heads_per_page, head % heads_per_page * head_bytes + byte};
    return {head * pages_per_head + static_cast<Units>(byte / split_bytes), byte % split_bytes};
  }
  HYBRIDSTATE_HD constexpr Bytes run(Bytes byte) const noexcept {
    Bytes const left = head_bytes - byte;
    if (heads_per_page != 0) return left;
    Bytes const part = split_bytes - byte % split_bytes;
    return part < left ? part : left;
  }
  HYBRIDSTATE_HD constexpr Units members() const noexcept { return member_count; }
  /// The fast path: no page boundary inside a head, so that a kernel looks a page up once per head.
  HYBRIDSTATE_HD constexpr bool whole_heads() const noexcept { return heads_per_page != 0; }

  friend constexpr bool operator==(const MemberMap&, const MemberMap&) = default;
};

/// Member pages of attention-page size (S1, S2).
template <class Layout>
HYBRIDSTATE_HD constexpr MemberMap paged_members(const Layout& layout) noexcept {
  return {layout.head_bytes(), layout.split_bytes(), layout.heads_per_page(),
          layout.pages_per_head(), layout.members()};
}
/// One composite that holds every head (S0, D0).
template <class Layout>
HYBRIDSTATE_HD constexpr MemberMap composite_members(const Layout& layout) noexcept {
  return {layout.head_bytes(), layout.head_bytes(), layout.ssm_heads(), 1, 1};
}

/// The same numbers as compile-time constants, for a StaticLayout.
template <class Layout>
struct StaticPagedMembers {
  HYBRIDSTATE_HD static constexpr MemberOffset at(Units head, Bytes byte) noexcept {
    if constexpr (Layout::heads_per_page() != 0)
      return {head / Layout::heads_per_page(),
              head % Layout::heads_per_page() * Layout::head_bytes() + byte};
    else
      return {head * Layout::pages_per_head() + static_cast<Units>(byte / Layout::split_bytes()),
              byte % Layout::split_bytes()};
  }
  HYBRIDSTATE_HD static constexpr Bytes run(Bytes byte) noexcept {
    return paged_members(Layout{}).run(byte);
  }
  HYBRIDSTATE_HD static constexpr Units members() noexcept { return Layout::members(); }
  HYBRIDSTATE_HD static constexpr bool whole_heads() noexcept {
    return Layout::heads_per_page() != 0;
  }
};
template <class Layout>
struct StaticCompositeMembers {
  HYBRIDSTATE_HD static constexpr MemberOffset at(Units head, Bytes byte) noexcept {
    return {0, head * Layout::head_bytes() + byte};
  }
  HYBRIDSTATE_HD static constexpr Bytes run(Bytes byte) noexcept {
    return Layout::head_bytes() - byte;
  }
  HYBRIDSTATE_HD static constexpr Units members() noexcept { return 1; }
  HYBRIDSTATE_HD static constexpr bool whole_heads() noexcept { return true; }
};

static_assert(member_map<MemberMap>);

/// The member-page map of a batch, for one layer. `pages[row * row_stride + member]` is a page (or,
/// with composite members, a composite). A kernel that resumes takes two of these, a source and a
/// destination; equal ones mean in place.
template <member_map Map = MemberMap>
struct SsmPages {
  std::byte* base = nullptr;            ///< page 0 of this layer
  const std::int32_t* pages = nullptr;  ///< negative: absent
  std::int64_t row_stride = 0;          ///< table entries from one row to the next
  std::int64_t page_stride = 0;         ///< bytes from one page to the next
  [[no_unique_address]] Map map{};

  /// The same rows under a map of another type that spreads heads the same way.
  template <member_map Other>
  HYBRIDSTATE_HD constexpr SsmPages<Other> with(Other same) const noexcept {
    return {base, pages, row_stride, page_stride, same};
  }

  /// base + page(j) * stride + offset(j, u): byte `byte` of head `head` of the state in row `row`.
  HYBRIDSTATE_HD constexpr ByteOffset offset(std::int32_t row, std::int32_t head,
                                             std::int64_t byte = 0) const noexcept {
    if (row < 0 || head < 0 || byte < 0) return {};
    MemberOffset const m = map.at(static_cast<Units>(head), static_cast<Bytes>(byte));
    std::int32_t const page =
        table_entry(pages, row_stride, row, static_cast<std::int32_t>(m.member));
    if (page < 0) return {};
    return {std::int64_t{page} * page_stride + static_cast<std::int64_t>(m.offset)};
  }
  HYBRIDSTATE_HD constexpr std::byte* addr_ssm(std::int32_t row, std::int32_t head,
                                               std::int64_t byte = 0) const noexcept {
    return address(base, offset(row, head, byte));
  }
};

HYBRIDSTATE_NAMESPACE_END
