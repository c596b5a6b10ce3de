// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/state_case.hpp"
#include "kernels/target.hpp"

namespace page_copy_test {

using namespace hybridstate;
using namespace hybridstate::kernels;

/// Bytes from the begin of a line on.
struct Memory {
  explicit Memory(std::int64_t size)
      : bytes(size), lines(static_cast<std::size_t>(size) / sizeof(Line) + 1) {}

  std::byte* data() { return lines.data()->bytes; }
  void draw(std::mt19937_64& random) {
    for (auto i = 0; i < bytes; ++i) data()[i] = static_cast<std::byte>(random());
  }
  bool same(Memory& other) {
    return std::memcmp(data(), other.data(), static_cast<std::size_t>(bytes)) == 0;
  }

  std::int64_t bytes;
  std::vector<Line> lines;
};

/// Lists of copies of any size between any addresses.
template <class Targets>
void check_lists(Targets& targets) {
  std::mt19937_64 random(3);
  auto const up_to = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  constexpr std::int64_t room = 120'000;
  constexpr std::int64_t sizes[] = {0, 1, 15, 16, 17, 127, 128, 4096, 32767, 32768, 32769, 99'999};
  Memory source(12 * room);
  source.draw(random);
  for (int round = 0; round < 6; ++round) {
    Memory destination(12 * room);
    destination.draw(random);
    Memory want = destination;
    std::vector<CopyItem> items;
    for (std::int64_t i = 0; i < 12; ++i) {
      std::int64_t const align = std::int64_t{1} << up_to(8);
      std::byte* const to = destination.data() + i * room + up_to(300) / align * align;
      const std::byte* const from = source.data() + i * room + up_to(300) / align * align;
      std::int64_t const bytes = up_to(2) == 0 ? sizes[i] : up_to(100'000);
      items.push_back({from, to, bytes});
      if (i == 4) items.back().source = nullptr;
      if (i == 7) items.back().destination = nullptr;
      if (i == 4 || i == 7) continue;
      std::memcpy(want.data() + (to - destination.data()), from, static_cast<std::size_t>(bytes));
    }
    Memory const before = destination;
    for (auto& target : targets) {
      destination.lines = before.lines;
      Copies<std::decay_t<decltype(target)>> copies;
      copies.add(source.lines);
      copies.add(destination.lines);
      std::vector<CopyItem> there = items;
      for (CopyItem& item : there)
        item = {copies.of(item.source), copies.of(item.destination), item.bytes};
      copies.add(there);
      CHECK(target.run(CopyList{copies.of(there.data()), 12, 100'000}));
      copies.download();
      CHECK(destination.same(want));
    }
  }
}

/// Pages between pools of other strides, by tables of either side, some entries absent.
template <class Targets>
void check_pages(Targets& targets) {
  std::mt19937_64 random(4);
  constexpr std::uint32_t units = 9;
  constexpr std::int64_t bytes = 40'000, from_stride = bytes + 160, to_stride = bytes + 16;
  Memory source(units * from_stride);
  source.draw(random);
  std::vector<std::int32_t> from(units), to(units);
  for (bool const lists_sources : {true, false})
    for (bool const lists_destinations : {true, false}) {
      std::iota(from.begin(), from.end(), 0);
      std::iota(to.begin(), to.end(), 0);
      if (lists_sources) std::shuffle(from.begin(), from.end(), random);
      if (lists_destinations) std::shuffle(to.begin(), to.end(), random);
      CopyPages items{
          source.data() + 32, nullptr, from_stride, to_stride, nullptr, nullptr, units, bytes};
      if (lists_sources) from[3] = -1, items.sources = from.data();
      if (lists_destinations) to[5] = -5, items.destinations = to.data();
      Memory destination(units * to_stride);
      destination.draw(random);
      items.to = destination.data();
      Memory want = destination;
      for (std::size_t i = 0; i < units; ++i)
        if (from[i] >= 0 && to[i] >= 0)
          std::memcpy(want.data() + to[i] * to_stride, source.data() + 32 + from[i] * from_stride,
                      bytes);
      Memory const before = destination;
      for (auto& target : targets) {
        destination.lines = before.lines;
        run_on(target, items, source.lines, destination.lines, from, to);
        CHECK(destination.same(want));
      }
    }
}

}  // namespace page_copy_test
