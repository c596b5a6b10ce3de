// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/first_set.hpp>
#include <hybridstate/core/hash.hpp>
#include <hybridstate/core/indexed_heap.hpp>
#include <hybridstate/core/list.hpp>
#include <hybridstate/core/types.hpp>
#include <list>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hs = hybridstate;

namespace {
struct Random {
  std::uint64_t state;
  std::uint32_t operator()(std::uint32_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state >> 33) % n);
  }
};
}  // namespace

TEST_CASE("indices: 0 is valid, negative is absent, tags do not mix") {
  static_assert(!std::is_convertible_v<hs::UnitIndex, hs::NodeIndex>);
  static_assert(!std::is_convertible_v<hs::AttentionHandle, hs::StateHandle>);
  static_assert(!std::is_convertible_v<int, hs::UnitIndex>);
  static_assert(!std::is_convertible_v<hs::UnitIndex, bool>);
  static_assert(std::is_trivially_copyable_v<hs::StateHandle>);
  CHECK_FALSE(hs::UnitIndex{});
  CHECK(hs::UnitIndex{0});
  CHECK_FALSE(hs::UnitIndex{-7});
  CHECK(hs::UnitIndex{3} == hs::UnitIndex{3});
  CHECK(hs::UnitIndex{3} != hs::UnitIndex{4});
  static_assert(hs::ceil_div(7U, 3U) == 3 && hs::ceil_div(6U, 3U) == 2 &&
                hs::ceil_div(0U, 3U) == 0);
  static_assert(hs::ceil_div(0xffffffffU, 2U) == 0x80000000U);  // no overflow on the way
  static_assert(hs::round_up(13U, 4U) == 16 && hs::round_up(16U, 4U) == 16);
  CHECK(hs::PoolUnits{{1, 2}} == hs::PoolUnits{{1, 2}});
}

TEST_CASE("two intrusive lists over one array equal std::list") {
  hs::IndexLinks links(50);
  hs::IndexLinks::List lists[2];
  std::list<std::int32_t> naive[2];
  Random random{3};
  for (int i = 0; i < 20000; ++i) {
    auto const n = static_cast<std::int32_t>(random(50));
    int where = -1;
    for (int l = 0; l < 2; ++l)
      for (std::int32_t x : naive[l])
        if (x == n) where = l;
    REQUIRE(links.linked(n) == (where >= 0));
    if (where >= 0) {
      links.unlink(lists[where], n);
      naive[where].remove(n);
    } else {
      auto const l = random(2);
      switch (random(3)) {
        case 0:
          links.push_front(lists[l], n);
          naive[l].push_front(n);
          break;
        case 1:
          links.push_back(lists[l], n);
          naive[l].push_back(n);
          break;
        default: {
          if (naive[l].empty()) break;
          auto at =
              std::next(naive[l].begin(), random(static_cast<std::uint32_t>(naive[l].size())));
          links.insert_after(lists[l], *at, n);
          naive[l].insert(std::next(at), n);
        }
      }
    }
    for (int l = 0; l < 2; ++l) {
      std::vector<std::int32_t> forward, backward;
      for (std::int32_t x = lists[l].head; x != hs::IndexLinks::end; x = links.next(x))
        forward.push_back(x);
      for (std::int32_t x = lists[l].tail; x != hs::IndexLinks::end; x = links.previous(x))
        backward.insert(backward.begin(), x);
      REQUIRE(forward == std::vector<std::int32_t>(naive[l].begin(), naive[l].end()));
      REQUIRE(backward == forward);
      REQUIRE(lists[l].size == forward.size());
    }
  }
}

TEST_CASE("FirstSet equals std::set, across word and level edges") {
  CHECK(hs::FirstSet().first() == hs::FirstSet::none);
  for (std::uint32_t const capacity : {1U, 63U, 64U, 65U, 4096U, 4097U, 300000U}) {
    hs::FirstSet set(capacity);
    std::set<std::int32_t> naive;
    Random random{capacity};
    for (int i = 0; i < 4000; ++i) {
      auto const n = static_cast<std::int32_t>(random(capacity));
      if (naive.count(n) == 0) {
        set.insert(n);
        naive.insert(n);
      } else if (random(4) != 0) {
        set.erase(n);
        naive.erase(n);
      }
      if (naive.size() > 40) {
        set.erase(*naive.begin());
        naive.erase(naive.begin());
      }
      REQUIRE(set.contains(n) == (naive.count(n) == 1));
      REQUIRE(set.first() == (naive.empty() ? -1 : *naive.begin()));
      auto const from = static_cast<std::int32_t>(random(capacity + 70));
      auto const it = naive.lower_bound(from);
      REQUIRE(set.first_from(from) == (it == naive.end() ? -1 : *it));
    }
  }
}

TEST_CASE("IndexedHeap equals an ordered set; ties go to the smaller index") {
  hs::IndexedHeap<std::uint64_t> heap(60);
  std::set<std::pair<std::uint64_t, std::int32_t>> naive;
  std::map<std::int32_t, std::uint64_t> keys;
  Random random{9};
  for (int i = 0; i < 30000; ++i) {
    auto const n = static_cast<std::int32_t>(random(60));
    REQUIRE(heap.contains(n) == (keys.count(n) == 1));
    if (keys.count(n) == 1) {
      REQUIRE(heap.key(n) == keys[n]);
      heap.erase(n);
      naive.erase({keys[n], n});
      keys.erase(n);
    } else {
      std::uint64_t const key = random(20);
      heap.insert(n, key);
      naive.insert({key, n});
      keys[n] = key;
    }
    REQUIRE(heap.size() == naive.size());
    REQUIRE(heap.empty() == naive.empty());
    if (naive.empty()) continue;
    REQUIRE(heap.top() == naive.begin()->second);
    REQUIRE(heap.top_key() == naive.begin()->first);
  }
}

TEST_CASE("keys are the same everywhere and depend on every token and the length") {
  // Golden values: a key may be stored beside a trace, so it must not change by accident.
  std::vector<hs::TokenId> t(512);
  for (std::uint32_t i = 0; i < 512; ++i) t[i] = i * 2654435761U;
  auto key = [&](std::size_t n) { return hs::block_key(std::span(t).first(n)); };
  CHECK(key(0) == 0x7dd65660db1a0e6eULL);
  CHECK(key(1) == 0x8ae425d4cdac9d8cULL);
  CHECK(key(16) == 0x87a15ecc5c4791fULL);
  CHECK(key(512) == 0xe32f4d4b769a3664ULL);
  std::set<hs::BlockKey> seen;
  for (std::size_t n = 0; n <= 512; ++n) seen.insert(key(n));
  CHECK(seen.size() == 513);
  for (std::size_t i = 0; i < 512; ++i) {
    t[i] ^= 1U << (i % 32);
    seen.insert(key(512));
    t[i] ^= 1U << (i % 32);
  }
  CHECK(seen.size() == 513 + 512);
  // Exchanged tokens are other tokens.
  std::swap(t[0], t[64]);
  CHECK(seen.insert(key(512)).second);
  // Zeros of different number too, and a seed changes everything.
  std::uint32_t const zeros[32] = {};
  std::set<std::uint64_t> of_zeros;
  for (std::size_t n = 0; n <= 128; ++n) of_zeros.insert(hs::detail::hash_bytes(zeros, n, 0));
  CHECK(of_zeros.size() == 129);
  CHECK(hs::detail::hash_bytes(zeros, 8, 0) != hs::detail::hash_bytes(zeros, 8, 1));
}

TEST_CASE("short blocks compare as memcmp does") {
  Random random{5};
  std::vector<hs::TokenId> a(160), b(160);
  for (std::size_t n = 0; n <= 160; ++n) {
    for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = random(1000);
    CHECK(hs::detail::equal_tokens(a.data(), b.data(), n));
    for (std::size_t i = 0; i < n; ++i) {
      b[i] ^= 0x80000000U >> (i % 32);
      REQUIRE_FALSE(hs::detail::equal_tokens(a.data(), b.data(), n));
      b[i] = a[i];
    }
  }
}

TEST_CASE("a result holds a value or one sentence") {
  hs::Result<int> good(5), bad(hs::Failure{"too small"});
  CHECK(good);
  CHECK(good.value() == 5);
  CHECK(good.sentence() == "");
  CHECK_FALSE(bad);
  CHECK(bad.sentence() == "too small");
  CHECK_THROWS_AS(bad.value(), hs::ConfigurationError);
  CHECK_THROWS_WITH(bad.value(), "too small");
}
