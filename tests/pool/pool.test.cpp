// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <hybridstate/pool/slot_slab.hpp>
#include <hybridstate/pool/tail_slabs.hpp>
#include <hybridstate/pool/unit_pool.hpp>
#include <list>
#include <map>
#include <vector>

namespace hs = hybridstate;

namespace {
std::vector<std::int32_t> order(const hs::UnitPool& pool) {
  std::vector<std::int32_t> units;
  for (hs::UnitIndex u = pool.front(); u; u = pool.next(u)) units.push_back(u.value);
  return units;
}
using Units = std::vector<std::int32_t>;
struct Random {
  std::uint64_t state;
  std::uint32_t operator()(std::uint32_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state >> 33) % n);
  }
};
}  // namespace

TEST_CASE("keyless units leave last in first out, cached ones in the order of their release") {
  hs::UnitPool pool(5);
  CHECK(order(pool) == Units{0, 1, 2, 3, 4});
  CHECK(pool.keyless() == 5);
  for (int i = 0; i < 4; ++i) pool.assign(pool.take_front(), hs::UnitOwner::attention, i);
  CHECK(pool.available() == 1);
  CHECK(pool.keyless() == 1);
  pool.push_back({2});
  pool.push_back({0});
  pool.release_keyless({1});
  pool.release_keyless({3});
  CHECK(order(pool) == Units{3, 1, 4, 2, 0});
  CHECK(pool.keyless() == 3);
  CHECK(pool.owner({2}) == hs::UnitOwner::attention);
  CHECK(pool.owner_handle({2}) == 2);
  pool.unlist({2});  // adopted
  CHECK(pool.keyless() == 3);
  CHECK(order(pool) == Units{3, 1, 4, 0});
  pool.release_keyless({0});  // cached and now keyless: to the front from where it is
  CHECK(order(pool) == Units{0, 3, 1, 4});
  CHECK(pool.keyless() == 4);
  // A unit in hand only loses its owner.
  pool.release_keyless({2});
  hs::UnitIndex const u = pool.take_front();
  CHECK(u.value == 2);
  pool.assign(u, hs::UnitOwner::state, 7);
  pool.push_front(u);
  hs::UnitIndex const again = pool.take_front();
  CHECK(again == u);
  pool.release_keyless(again);
  CHECK_FALSE(pool.listed(again));
  pool.assign(again, hs::UnitOwner::carrier, 2);
  CHECK(pool.owner(again) == hs::UnitOwner::carrier);
}

TEST_CASE("the pool's list equals std::list under random operations") {
  constexpr std::int32_t capacity = 40;
  hs::UnitPool pool(capacity);
  std::list<std::int32_t> list;
  std::vector<int> owned(capacity, 0);
  for (std::int32_t i = 0; i < capacity; ++i) list.push_back(i);
  Random random{7};
  for (int i = 0; i < 20000; ++i) {
    std::int32_t const u = static_cast<std::int32_t>(random(capacity));
    bool const listed = std::find(list.begin(), list.end(), u) != list.end();
    REQUIRE(pool.listed({u}) == listed);
    switch (random(4)) {
      case 0:
        if (list.empty()) break;
        REQUIRE(pool.take_front().value == list.front());
        pool.assign({list.front()}, hs::UnitOwner::attention, u);
        owned[static_cast<std::size_t>(list.front())] = 1;
        list.pop_front();
        break;
      case 1:
        if (listed) break;
        if (random(2) == 0) {
          pool.push_back({u});
          list.push_back(u);
        } else {
          pool.push_front({u});
          list.push_front(u);
        }
        break;
      case 2:
        if (owned[static_cast<std::size_t>(u)] == 0) break;
        pool.release_keyless({u});
        list.remove(u);
        list.push_front(u);
        owned[static_cast<std::size_t>(u)] = 0;
        break;
      default:
        if (!listed || owned[static_cast<std::size_t>(u)] == 0) break;
        pool.unlist({u});
        list.remove(u);
        break;
    }
    REQUIRE(order(pool) == Units(list.begin(), list.end()));
    REQUIRE(pool.available() == list.size());
    auto const keyless = std::count_if(list.begin(), list.end(), [&](std::int32_t v) {
      return owned[static_cast<std::size_t>(v)] == 0;
    });
    REQUIRE(pool.keyless() == static_cast<hs::Units>(keyless));
  }
}

TEST_CASE("slots equal a naive table under random operations") {
  constexpr hs::Units units = 12;
  constexpr std::uint32_t slots = 3;
  hs::SlotSlab slabs(units, slots);
  struct Slab {
    bool active = true;
    std::vector<std::int32_t> holders = std::vector<std::int32_t>(slots, -1);
    std::uint32_t room() const {
      return static_cast<std::uint32_t>(std::count(holders.begin(), holders.end(), -1));
    }
  };
  std::map<std::int32_t, Slab> naive;
  std::uint64_t created = 0;
  Random random{11};
  for (int i = 0; i < 20000; ++i) {
    std::int32_t const u = static_cast<std::int32_t>(random(units));
    auto const it = naive.find(u);
    switch (random(4)) {
      case 0:
        if (it != naive.end()) break;
        slabs.create({u});
        ++created;
        naive[u].holders[0] = i;
        REQUIRE(slabs.take({u}, {i}) == 0);
        break;
      case 1: {
        if (it == naive.end() || it->second.room() == 0) break;
        auto const at = std::find(it->second.holders.begin(), it->second.holders.end(), -1);
        *at = i;
        REQUIRE(slabs.take({u}, {i}) ==
                static_cast<std::uint32_t>(at - it->second.holders.begin()));
        break;
      }
      case 2: {
        if (it == naive.end()) break;
        std::uint32_t const slot = random(slots);
        if (it->second.holders[slot] < 0) break;
        it->second.holders[slot] = -1;
        bool const empty = it->second.room() == slots;
        REQUIRE(slabs.give_back({u}, slot) == empty);
        if (empty) naive.erase(it);
        break;
      }
      default: {
        if (it == naive.end()) break;
        bool const active = random(2) == 0;
        it->second.active = active;
        slabs.set_active({u}, active);
        break;
      }
    }
    std::int32_t first_active = -1, first_idle = -1;
    hs::Units free = 0, used = 0;
    hs::Units by_used[slots + 1] = {};
    for (auto const& [unit, slab] : naive) {
      ++by_used[slots - slab.room()];
      REQUIRE(slabs.is_slab({unit}));
      REQUIRE(slabs.active({unit}) == slab.active);
      REQUIRE(slabs.free_slots({unit}) == slab.room());
      for (std::uint32_t s = 0; s < slots; ++s)
        REQUIRE(slabs.holder({unit}, s).value == slab.holders[s]);
      used += slots - slab.room();
      if (slab.active) free += slab.room();
      if (slab.room() == 0) continue;
      if (slab.active && first_active < 0) first_active = unit;
      if (!slab.active && first_idle < 0) first_idle = unit;
    }
    REQUIRE(slabs.first_active_with_room().value == first_active);
    REQUIRE(slabs.first_idle_with_room().value == first_idle);
    REQUIRE(slabs.slabs() == naive.size());
    REQUIRE(slabs.used_slots() == used);
    REQUIRE(slabs.free_in_active() == free);
    for (std::uint32_t s = 0; s <= slots; ++s) REQUIRE(slabs.slabs_with(s) == by_used[s]);
    REQUIRE(slabs.created() == created);
  }
}

// --- tail slabs ----------------------------------------------------------------------------------

TEST_CASE("tail slabs equal a list of parts over random operations") {
  for (std::uint32_t parts : {2U, 4U, 7U, 64U}) {
    constexpr std::int32_t blocks = 70;
    hs::TailSlabs slabs(blocks, parts);
    std::vector<std::vector<std::int32_t>> holder(blocks, std::vector<std::int32_t>(parts, -1));
    std::map<std::int32_t, std::uint32_t> tails;
    Random random{parts};
    auto const free_from = [&](std::int32_t b, std::uint32_t from, std::uint32_t n) {
      for (std::uint32_t i = from; i < from + n; ++i)
        if (i >= parts || holder[static_cast<std::size_t>(b)][i] >= 0) return false;
      return true;
    };
    auto const used = [&](std::int32_t b) {
      return !std::all_of(holder[static_cast<std::size_t>(b)].begin(),
                          holder[static_cast<std::size_t>(b)].end(), [](auto h) { return h < 0; });
    };
    auto const find = [&](std::uint32_t n, std::int32_t except, std::int32_t or_this) {
      for (std::int32_t b = 0; b < blocks; ++b)
        for (std::uint32_t i = 0; b != except && b != or_this && used(b) && i < parts; ++i)
          if (free_from(b, i, n))
            return b * static_cast<std::int32_t>(parts) + static_cast<std::int32_t>(i);
      return hs::TailSlabs::none;
    };
    auto const write = [&](std::int32_t tail, std::uint32_t n, std::int32_t what) {
      for (std::uint32_t i = 0; i < n; ++i)
        holder[static_cast<std::size_t>(slabs.block(tail))][slabs.part(tail) + i] = what;
    };
    for (int step = 0; step < 3000; ++step) {
      std::uint32_t const n = 1 + random(parts);
      auto it = tails.begin();
      if (!tails.empty()) std::advance(it, random(static_cast<std::uint32_t>(tails.size())));
      std::uint32_t const dice = random(10);
      if (dice < 4) {
        std::int32_t const except = random(3) == 0 ? static_cast<std::int32_t>(random(9)) : -1;
        std::int32_t const or_this = except < 0 ? -1 : static_cast<std::int32_t>(random(9));
        std::int32_t tail = slabs.find(n, except, or_this);
        REQUIRE(tail == find(n, except, or_this));
        for (std::int32_t b = 0; tail < 0 && b < blocks; ++b)
          if (!used(b)) tail = b * static_cast<std::int32_t>(parts);
        if (tail < 0) continue;
        slabs.take(tail, n);
        write(tail, n, tail);
        tails[tail] = n;
      } else if (dice < 7 && it != tails.end()) {
        auto const [tail, had] = *it;
        bool const can = n <= had || free_from(slabs.block(tail), slabs.part(tail) + had, n - had);
        if (n >= had) REQUIRE(slabs.can_grow(tail, n) == can);
        if (!can) continue;
        write(tail, had, -1);
        slabs.resize(tail, n);
        write(tail, n, tail);
        it->second = n;
      } else if (it != tails.end()) {
        write(it->first, it->second, -1);
        CHECK(slabs.give_back(it->first) == !used(slabs.block(it->first)));
        CHECK(slabs.size(it->first) == 0);
        tails.erase(it);
      }
      hs::Units all = 0;
      std::uint32_t sum = 0;
      bool same = true;
      for (std::int32_t b = 0; b < blocks; ++b) {
        all += used(b) ? 1U : 0U;
        same = same && slabs.is_slab(b) == used(b);
      }
      std::map<std::int32_t, std::uint32_t> seen;
      slabs.for_each_slab([&](std::int32_t b) {
        slabs.for_each_tail(b, [&](std::int32_t t) { seen[t] = slabs.size(t); });
      });
      for (auto const& [tail, size] : tails) {
        sum += size;
        auto const& on = holder[static_cast<std::size_t>(slabs.block(tail))];
        same = same && slabs.alone(tail) == std::all_of(on.begin(), on.end(), [t = tail](auto h) {
                         return h < 0 || h == t;
                       });
      }
      REQUIRE(same);
      REQUIRE(seen == tails);
      REQUIRE(slabs.slabs() == all);
      REQUIRE(slabs.used_parts() == sum);
    }
  }
}
