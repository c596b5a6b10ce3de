// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <hybridstate/kernels/job.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// One copy: where from, where to, how much. A null address or no bytes: nothing is copied.
struct CopyItem {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::int64_t bytes = 0;
};

/// Copies of any sizes between any addresses: a list in device memory.
struct CopyList {
  const CopyItem* items = nullptr;
  std::uint32_t count = 0;
  std::int64_t most_bytes = 0;  ///< of one item: none has more

  template <cta_thread T>
  HYBRIDSTATE_HD CopyItem item(T& t, std::uint32_t i) const {
    return {t.template load<const std::byte*>(static_cast<const void*>(&items[i].source)),
            t.template load<std::byte*>(static_cast<const void*>(&items[i].destination)),
            t.template load<std::int64_t>(&items[i].bytes)};
  }
};

/// Pages of one pool to pages of another (or the same), `most_bytes` of each: unit sources[i] to
/// unit destinations[i]. A null table counts 0, 1, ...: one side of a gather or a scatter. A
/// negative entry on either side: nothing is copied. Bases may lie inside a unit, as where a
/// convolution line begins behind the SSM bytes of its composite.
struct CopyPages {
  const std::byte* from = nullptr;  ///< unit 0
  std::byte* to = nullptr;
  std::int64_t from_stride = 0;  ///< bytes from one unit to the next
  std::int64_t to_stride = 0;
  const std::int32_t* sources = nullptr;
  const std::int32_t* destinations = nullptr;
  std::uint32_t count = 0;
  std::int64_t most_bytes = 0;

  template <cta_thread T>
  HYBRIDSTATE_HD CopyItem item(T& t, std::uint32_t i) const {
    auto const entry = [&](const std::int32_t* table) {
      return table == nullptr ? std::int64_t{i} : t.template load<std::int32_t>(table + i);
    };
    std::int64_t const source = entry(sources);
    std::int64_t const destination = entry(destinations);
    if (source < 0 || destination < 0) return {};
    return {from + source * from_stride, to + destination * to_stride, most_bytes};
  }
};

/// Many copies in one launch: gather, scatter, migration between organizations, compaction of a
/// slab. Nothing that is written may overlap anything else that is read or written. Sixteen-byte
/// accesses where source and destination are equal modulo 16, odd ends byte by byte; four-byte or
/// single bytes where they are not.
template <class Items>
struct PageCopy {
  static constexpr unsigned threads = 256;
  static constexpr unsigned unroll = 4;              ///< accesses of a thread in flight
  static constexpr std::int64_t tile_bytes = 32768;  ///< of one CTA
  static constexpr std::int64_t line_bytes = 128;

  Items items{};

  /// CTAs of one item.
  HYBRIDSTATE_HD constexpr std::uint32_t tiles() const noexcept { return tiles(items.most_bytes); }
  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {tiles() * items.count, 1, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    CopyItem const item = items.item(t, t.block_x() / tiles());
    std::uint32_t const tile = t.block_x() % tiles();
    if (item.source == nullptr || item.destination == nullptr || item.bytes <= 0) return;
    std::uint32_t const last = tiles(item.bytes) - 1;
    if (tile > last) return;
    // Tiles other than the first begin with a line of the destination.
    std::int64_t const lead = static_cast<std::int64_t>(address_of(item.destination) % line_bytes);
    std::int64_t const begin = tile == 0 ? 0 : tile * tile_bytes - lead;
    std::int64_t const end = tile == last ? item.bytes : (tile + 1) * tile_bytes - lead;
    const std::byte* const from = item.source + begin;
    std::byte* const to = item.destination + begin;
    std::uint64_t const apart = address_of(from) - address_of(to);
    if (apart % sizeof(Vector16) == 0)
      copy<Vector16>(t, from, to, end - begin);
    else if (apart % sizeof(std::uint32_t) == 0)
      copy<std::uint32_t>(t, from, to, end - begin);
    else
      copy<std::uint8_t>(t, from, to, end - begin);
  }

 private:
  HYBRIDSTATE_HD static constexpr std::uint32_t tiles(std::int64_t bytes) noexcept {
    return static_cast<std::uint32_t>((bytes + tile_bytes - 1) / tile_bytes);
  }
  HYBRIDSTATE_HD static std::uint64_t address_of(const void* p) noexcept {
    return reinterpret_cast<std::uintptr_t>(p);
  }

  /// Addresses that are equal modulo the size of V.
  template <class V, class T>
  HYBRIDSTATE_HD static void copy(T& t, const std::byte* from, std::byte* to, std::int64_t bytes) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(V));
    std::int64_t const first = static_cast<std::int64_t>((0 - address_of(to)) % sizeof(V));
    std::int64_t const head = first < bytes ? first : bytes;
    std::int64_t const vectors = (bytes - head) / size;
    std::int64_t const tail = head + vectors * size;
    for (std::int64_t base = 0; base < vectors; base += threads * unroll) {
      V loaded[unroll];
      for (unsigned u = 0; u < unroll; ++u) {
        std::int64_t const i = base + u * threads + t.thread();
        loaded[u] = i < vectors ? t.template load<V>(from + head + i * size) : V{};
      }
      for (unsigned u = 0; u < unroll; ++u) {
        std::int64_t const i = base + u * threads + t.thread();
        if (i < vectors) t.store(to + head + i * size, loaded[u]);
      }
    }
    std::int64_t const i = t.thread();
    if (i < head) t.store(to + i, t.template load<std::uint8_t>(from + i));
    if (i < bytes - tail) t.store(to + tail + i, t.template load<std::uint8_t>(from + tail + i));
  }
};

/// False: negative bytes, or more than 2^31 - 1 tiles of 32 KiB.
template <class Items, class Run>
  requires std::same_as<Items, CopyList> || std::same_as<Items, CopyPages>
bool with_kernel(const Items& items, Run&& run) {
  constexpr auto most_ctas = static_cast<std::int64_t>(detail::most_grid_x);
  if (items.most_bytes < 0 ||
      (items.count != 0 &&
       items.most_bytes > most_ctas / items.count * PageCopy<Items>::tile_bytes))
    return false;
  run(PageCopy<Items>{items});
  return true;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
