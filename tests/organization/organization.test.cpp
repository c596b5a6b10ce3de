// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <hybridstate/hybridstate.hpp>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace hs = hybridstate;

namespace {

hs::ModelGeometry model(std::uint32_t attention, std::uint32_t recurrent, std::uint32_t heads) {
  hs::ModelGeometry m;
  m.attention_layers = attention;
  m.recurrent_layers = recurrent;
  m.kv_heads = 1;
  m.head_dim = 16;
  m.ssm_heads = heads;
  m.ssm_head_dim = 4;
  m.ssm_state = 16;
  m.d_conv = 2;
  return m;
}
hs::StateLayout small(const hs::ModelGeometry& m) {
  hs::LayoutOptions o;
  o.block_tokens = o.checkpoint_tokens = 4;
  o.native_block_tokens = 4;
  o.native_checkpoint_tokens = 8;
  return hs::make_layout(m, o);
}
constexpr auto ignore = [](int, hs::UnitIndex) {};
constexpr auto no_carrier = [](hs::CarrierHandle, bool) {};

template <class O>
O make(const hs::StateLayout& l, hs::Units units) {
  if constexpr (O::pools == 2)
    return O(l, {{units, units}}, {4, 8});
  else
    return O(l, units);
}

/// Random takes and returns, with no cache above: the units of live objects never overlap, need()
/// says what a take consumes, and what came back can be taken again.
template <class O>
void random_takes(const hs::StateLayout& layout, hs::Units units, std::uint64_t seed) {
  O o = make<O>(layout, units);
  std::map<std::int32_t, hs::AttentionHandle> blocks;
  std::map<std::int32_t, hs::StateHandle> states;
  auto random = [&](std::uint32_t n) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((seed >> 33) % n);
  };
  for (int i = 0; i < 3000; ++i) {
    auto free = [&](int pool) { return o.pool(pool).available(); };
    hs::Units const before[2] = {free(0), free(O::pools - 1)};
    std::uint32_t const dice = random(4);
    if (dice == 0) {
      hs::PoolUnits const need = o.need({1, 0, {}});
      hs::AttentionHandle const a = o.take_attention(ignore);
      REQUIRE(static_cast<bool>(a) == (need[0] <= before[0]));
      if (a) {
        REQUIRE(blocks.emplace(a.value, a).second);
        REQUIRE(before[0] - free(0) == need[0]);
      } else {
        REQUIRE(free(0) == before[0]);
      }
    } else if (dice == 1) {
      hs::PoolUnits const need = o.need({0, 1, {}});
      hs::PoolUnits const most = o.need({0, 1, {}}, hs::SlabUse::each);
      REQUIRE(need[O::state_pool] <= most[O::state_pool]);
      hs::StateHandle const s = o.take_state(ignore);
      REQUIRE(static_cast<bool>(s) == (need[O::state_pool] <= before[1]));
      if (s) {
        REQUIRE(states.emplace(s.value, s).second);
        REQUIRE(before[1] - free(O::state_pool) == need[O::state_pool]);
      } else {
        REQUIRE(free(O::state_pool) == before[1]);
      }
    } else if (dice == 2 && !blocks.empty()) {
      auto it = std::next(blocks.begin(), random(static_cast<std::uint32_t>(blocks.size())));
      o.give_back(it->second);
      blocks.erase(it);
    } else if (dice == 3 && !states.empty()) {
      auto it = std::next(states.begin(), random(static_cast<std::uint32_t>(states.size())));
      o.give_back(it->second, no_carrier);
      states.erase(it);
    }
    std::set<std::pair<int, std::int32_t>> used, carriers;
    std::set<std::int64_t> lines;
    auto own = [&](int pool, hs::UnitIndex u) {
      REQUIRE(u);
      REQUIRE_FALSE(o.pool(pool).listed(u));
      REQUIRE(used.emplace(pool, u.value).second);
    };
    for (auto const& [h, a] : blocks) {
      o.for_each_own_unit(a, own);
      REQUIRE(o.attention_unit(a, 0) == a.value);
    }
    for (auto const& [h, s] : states) {
      o.for_each_own_unit(s, own);
      o.for_each_carrier(s, [&](hs::CarrierHandle c) {
        carriers.emplace(O::state_pool, o.carrier_unit(c).value);
        bool found = false;
        o.for_each_state_on(c, [&](hs::StateHandle on) { found = found || on == s; });
        REQUIRE(found);
      });
      for (int g = 0; g < static_cast<int>(layout.recurrent_groups()); ++g)
        REQUIRE(lines.insert(o.conv_line(s, g)).second);  // no two states share a line
    }
    for (auto const& c : carriers) REQUIRE(used.insert(c).second);
    REQUIRE(o.carriers() == carriers.size());
    hs::Units total = 0;
    for (int p = 0; p < O::pools; ++p) total += o.pool(p).capacity() - o.pool(p).available();
    REQUIRE(total == used.size());
    for (int p = 0; p < O::pools; ++p) REQUIRE(o.pool(p).keyless() == o.pool(p).available());
  }
}

template <class O>
void sentinels(const O& o, hs::AttentionHandle a, hs::StateHandle s) {
  CHECK(o.attention_unit({}, 0) == -1);
  CHECK(o.ssm_page({}, 0, 0) == -1);
  CHECK(o.conv_line({}, 0) == -1);
  CHECK(o.attention_unit(a, 0) >= 0);
  CHECK(o.ssm_page(s, 0, 0) >= 0);
  CHECK(o.ssm_page(s, 0, 99) == -1);
  CHECK(o.ssm_page(s, 0, -1) == -1);
}

}  // namespace

TEST_CASE_TEMPLATE("takes are whole, disjoint and as large as need() says", O, hs::CoarsePage<>,
                   hs::RecurrentPaged<>, hs::ConvSlabPacked<>, hs::NativeDualPool<>) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    random_takes<O>(small(model(2, 2, 6)), 29, seed);   // Falcon's groups
    random_takes<O>(small(model(1, 9, 2)), 64, seed);   // Granite's
    random_takes<O>(small(model(3, 2, 6)), 29, seed);   // two attention groups
    random_takes<O>(small(model(2, 2, 80)), 99, seed);  // a convolution state wider than a page
    random_takes<O>(small(model(2, 2, 6)), 3, seed);    // smaller than one state
  }
}

TEST_CASE("S0 and D0: a state is a row of whole composites, its line is its page") {
  hs::CoarsePage<> s0(small(model(1, 3, 6)), 20);
  hs::AttentionHandle const a = s0.take_attention(ignore);
  hs::StateHandle const s = s0.take_state(ignore);
  sentinels(s0, a, s);
  CHECK(a.value == 0);  // page 0 is a page
  for (int g = 0; g < 3; ++g) {
    CHECK(s0.ssm_page(s, g, 0) == 1 + g);
    CHECK(s0.conv_line(s, g) == s0.ssm_page(s, g, 0));
    CHECK(s0.ssm_page(s, g, 1) == -1);
  }
  hs::StateLayout const l = s0.layout();
  CHECK(s0.conv_address().base == l.ssm_bytes());
  CHECK(s0.conv_address().stride == l.coarse_page_bytes());
  CHECK(s0.ssm_address().stride == l.coarse_page_bytes());
  hs::NativeDualPool<> d0(l, {{5, 7}}, {4, 8});
  hs::AttentionHandle const b = d0.take_attention(ignore);
  hs::StateHandle const t = d0.take_state(ignore);
  sentinels(d0, b, t);
  CHECK(b.value == 0);
  CHECK(t.value == 0);
  CHECK(d0.conv_line(t, 0) == 0);  // line 0 is a line
  CHECK(d0.pool(0).available() == 4);
  CHECK(d0.pool(1).available() == 4);
  CHECK(d0.conv_address().base == l.ssm_bytes());
  CHECK(d0.conv_address().stride == l.composite_bytes());
  CHECK(d0.unit_bytes(0) == 4 * l.kv_bytes_per_token());
  CHECK(d0.unit_bytes(1) == l.composite_bytes());
}

TEST_CASE("S1: dedicated convolution pages, then members; line = page") {
  hs::RecurrentPaged<> s1(small(model(1, 2, 6)), 30);
  hs::StateHandle const s = s1.take_state(ignore);
  sentinels(s1, s1.take_attention(ignore), s);
  CHECK(s1.layout().members() == 3);
  CHECK(s1.conv_line(s, 0) == 0);
  CHECK(s1.ssm_page(s, 0, 0) == 1);
  CHECK(s1.ssm_page(s, 0, 2) == 3);
  CHECK(s1.conv_line(s, 1) == 4);
  CHECK(s1.ssm_page(s, 1, 2) == 7);
  CHECK(s1.ssm_page(s, 1, 3) == -1);
  CHECK(s1.conv_page(s, 1, 1) == -1);
  CHECK(s1.conv_address().stride == s1.layout().page_bytes());
}

TEST_CASE("S2: line = slots * page + slot; first fit; a state's groups fill a slab") {
  hs::ConvSlabPacked<> s2(small(model(2, 2, 6)), 40);
  hs::Units const slots = s2.layout().slots_per_slab();
  REQUIRE(slots == 4);
  std::vector<hs::StateHandle> states;
  for (int i = 0; i < 6; ++i) states.push_back(s2.take_state(ignore));
  sentinels(s2, s2.take_attention(ignore), states[0]);
  CHECK(s2.conv_line(states[0], 0) == 0);  // line 0 is a line: slot 0 of page 0
  CHECK(s2.conv_line(states[3], 0) == 3);
  std::int64_t const second = s2.conv_line(states[4], 0);
  CHECK(second % 4 == 0);
  CHECK(s2.conv_line(states[5], 0) == second + 1);
  CHECK(s2.carriers() == 2);
  CHECK(s2.conv_address().stride == s2.layout().slot_bytes());
  CHECK(s2.conv_address().stride * slots == s2.layout().page_bytes());
  // First fit: the lowest free slot of the lowest active slab with room.
  s2.give_back(states[5], no_carrier);
  s2.give_back(states[1], no_carrier);
  CHECK(s2.conv_line(s2.take_state(ignore), 0) == 1);
  CHECK(s2.conv_line(s2.take_state(ignore), 0) == second + 1);
  // Idle slabs come after active ones, and are need()'s business.
  hs::UnitIndex const first{0};
  s2.give_back(states[2], no_carrier);
  s2.set_active(hs::CarrierHandle{0}, false);
  s2.pool(0).push_back(first);
  CHECK(s2.need({0, 1, {}})[0] == 3);                           // room in the active one
  CHECK(s2.need({0, 3, {}})[0] == 9 + 1);                       // two there, one in the idle one
  CHECK(s2.need({0, 3, {}}, hs::SlabUse::active)[0] == 9 + 1);  // or in a new one
  CHECK(s2.need({0, 4, {}})[0] == 12 + 2);                      // and then a new one as well
  CHECK(s2.need({0, 4, {}}, hs::SlabUse::each)[0] == 12 + 2);
  CHECK(s2.need({0, 4, {}}, hs::SlabUse::none)[0] == 12 + 1);
  CHECK(s2.need({0, 5, {}}, hs::SlabUse::none)[0] == 15 + 2);
  // Adopting wakes the idle slab: one unit, and its free slot counts once.
  CHECK(s2.need({0, 3, states[0]})[0] == 9 + 1);
  CHECK(s2.need({0, 0, states[0]})[0] == 1);
  CHECK(s2.need({0, 0, states[4]})[0] == 0);
  CHECK(s2.need({2, 4, states[0]})[0] == 2 + 12 + 1 + 1);
  std::set<std::int32_t> on;
  s2.for_each_state_on(hs::CarrierHandle{0}, [&](hs::StateHandle s) { on.insert(s.value); });
  CHECK(on.size() == 3);

  // Granite: nine slots for one state, in consecutive slots here.
  hs::ConvSlabPacked<> granite(small(model(1, 9, 2)), 64);
  hs::StateHandle const g = granite.take_state(ignore);
  for (int i = 0; i < 9; ++i) CHECK(granite.conv_line(g, i) == i);
  CHECK(granite.unit_use(0).ssm == 9);
  CHECK(granite.carriers() == 1);
}

TEST_CASE("S2 with a convolution state wider than a page: dedicated pages, no slots") {
  hs::ConvSlabPacked<> s2(small(model(2, 2, 80)), 99);
  REQUIRE(s2.layout().slots_per_slab() == 0);
  hs::StateHandle const s = s2.take_state(ignore);
  CHECK(s2.carriers() == 0);
  CHECK(s2.conv_line(s, 0) == s2.conv_page(s, 0, 0));
  CHECK(s2.conv_page(s, 0, 1) >= 0);
  CHECK(s2.conv_address().stride == s2.layout().page_bytes());
  CHECK(s2.need({0, 1, {}})[0] == s2.layout().members() + s2.layout().conv_pages());
}

TEST_CASE("the first member of a handle is never the unit of another") {
  // before_reassign is told of every unit that still holds something, and of no other.
  hs::RecurrentPaged<> o(small(model(2, 2, 6)), 8);
  hs::StateHandle const s = o.take_state(ignore);
  std::vector<hs::UnitIndex> units;
  o.for_each_own_unit(s, [&](int, hs::UnitIndex u) { units.push_back(u); });
  for (hs::UnitIndex u : units) o.pool(0).push_back(u);  // as the cache does when it is cached
  int asked = 0;
  std::vector<hs::AttentionHandle> taken;
  for (int i = 0; i < 8; ++i)
    taken.push_back(o.take_attention([&](int pool, hs::UnitIndex u) {
      ++asked;
      CHECK(pool == 0);
      CHECK(o.pool(0).owner(u) == hs::UnitOwner::state);
      o.give_back(s, no_carrier);  // the other members go to the front
    }));
  CHECK(asked == 1);
  CHECK(taken[4].value == units[0].value);
  CHECK(taken[5].value == units[3].value);  // last in, first out
  CHECK(taken[7].value == units[1].value);
  CHECK_FALSE(o.take_attention(ignore));
}
