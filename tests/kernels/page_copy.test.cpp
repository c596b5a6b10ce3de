// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <hybridstate/kernels/page_copy.hpp>
#include <numeric>
#include <random>

#include "kernels/recording.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;

namespace {

/// Bytes from the begin of a line on.
struct Memory {
  explicit Memory(std::int64_t size)
      : bytes(size), lines(static_cast<std::size_t>(size) / 128 + 1) {}

  std::byte* data() { return lines.data()->byte; }
  void draw(std::mt19937_64& random) {
    for (auto i = 0; i < bytes; ++i) data()[i] = static_cast<std::byte>(random());
  }
  bool same(Memory& other) {
    return std::memcmp(data(), other.data(), static_cast<std::size_t>(bytes)) == 0;
  }

  struct alignas(line_bytes) Line {
    std::byte byte[line_bytes];
  };
  std::int64_t bytes;
  std::vector<Line> lines;
};

template <class Items>
void run_in_every_order(const Items& items, Memory& destination, Memory& want) {
  Memory const before = destination;
  for (ThreadOrder const order :
       {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    destination.lines = before.lines;
    Interpreter(order).run(PageCopy<Items>{items});
    CHECK(destination.same(want));
  }
}

}  // namespace

TEST_CASE("copies of any size between any addresses") {
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
    run_in_every_order(CopyList{items.data(), 12, 100'000}, destination, want);
  }
  CHECK(PageCopy<CopyList>{{nullptr, 0, 100}}.grid().ctas() == 0);
}

TEST_CASE("odd ends are read and written once too") {
  constexpr std::int64_t bytes = 70'001;
  Memory source(2 * bytes), destination(2 * bytes);
  for (std::int64_t const skip : {53, 57, 60}) {  // equal modulo 16, modulo 4, neither
    CopyItem const item{source.data() + skip, destination.data() + 37, bytes};
    auto const recording = record(PageCopy<CopyList>{{&item, 1, bytes}},
                                  {{"source", item.source, bytes, bytes, 0},
                                   {"destination", item.destination, bytes, 0, bytes},
                                   {"item", &item, sizeof item, -1, 0}});
    for (std::string const& violation : recording.violations) FAIL_CHECK(violation);
  }
}

TEST_CASE("pages are gathered, scattered and moved between pools of other strides") {
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
      run_in_every_order(items, destination, want);
    }
}

TEST_CASE("pages lie more than 2^32 bytes apart") {
  constexpr std::int64_t stride = std::int64_t{5} << 30, bytes = 4096;
  constexpr std::size_t reserved = 2 * stride + bytes;
  void* const pool = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(pool != MAP_FAILED);
  auto* const base = static_cast<std::byte*>(pool);
  std::fill_n(base + stride, bytes, std::byte{1});
  std::int32_t const from[] = {1}, to[] = {2};
  Interpreter().run(PageCopy<CopyPages>{{base, base, stride, stride, from, to, 1, bytes}});
  CHECK(std::memcmp(base + 2 * stride, base + stride, bytes) == 0);
  munmap(pool, reserved);
}

TEST_CASE("Falcon-H1-7B pages and composites move with the least traffic, in whole lines") {
  for (std::int64_t const bytes : {std::int64_t{512} << 10, std::int64_t{1'594'368}}) {
    constexpr std::uint32_t units = 3;
    Memory source(units * bytes), destination(units * bytes);
    std::int32_t const from[] = {2, -1, 0}, to[] = {1, 2, 0};
    CopyPages const items{source.data(), destination.data(), bytes, bytes, from, to, units, bytes};
    auto const size = static_cast<std::uint64_t>(units * bytes);
    auto const recording = record(PageCopy<CopyPages>{items},
                                  {{"source", source.data(), size, 2 * bytes, 0, true},
                                   {"destination", destination.data(), size, 0, 2 * bytes, true},
                                   {"tables", from, sizeof from, -1, 0},
                                   {"tables", to, sizeof to, -1, 0}});
    check_traffic("page copy", recording, static_cast<std::uint64_t>(2 * 2 * bytes));
  }
}
