// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// The preset `best` by hand: scores on a small tree, the priced gate's arithmetic, states at
// junctions and at the newest boundary of decode.
#include <map>

#include "support.hpp"

using namespace cache_test;

namespace {

constexpr double second = 1e9;

/// A tree of bare nodes, and states of `members` units on them.
struct Tree {
  static constexpr int pools = 1;
  static constexpr hs::Units members = 3;
  std::vector<hs::PrefixNode> nodes;
  std::map<std::int32_t, hs::NodeIndex> states;
  std::map<std::int32_t, bool> cached;
  hs::UnitPool units{64};
  std::vector<std::int32_t> gone;
  hs::GreedyDual order;

  explicit Tree(const std::vector<std::int32_t>& parents, hs::ScoreRule rule = {}) : order(rule) {
    for (std::int32_t const parent : parents) {
      hs::PrefixNode n;
      n.parent = parent;
      n.depth = parent < 0 ? 0 : nodes[static_cast<std::size_t>(parent)].depth + 1;
      nodes.push_back(n);
    }
    order.resize({64, 64, static_cast<hs::Units>(parents.size()), members});
    for (std::int32_t u = 0; u < 64; ++u) units.assign(units.take_front(), hs::UnitOwner::state, u);
  }

  hs::NodeIndex node_of(hs::ObjectRef o) const noexcept { return states.at(o.handle); }
  const hs::PrefixNode& node(hs::NodeIndex n) const noexcept { return nodes[n.at()]; }
  hs::ObjectRef next_on_node(hs::ObjectRef) const noexcept { return {}; }
  bool reclaimable(hs::ObjectRef o) const noexcept { return cached.at(o.handle); }
  const hs::UnitPool& pool(int) const noexcept { return units; }
  hs::Tokens block_tokens() const noexcept { return 512; }
  void add_units(double (&to)[hs::max_pools], double of_states, double blocks) const noexcept {
    to[0] += of_states * members + blocks;
  }
  void reclaim_owner(int, hs::UnitIndex) noexcept {}
  void reclaim(hs::ObjectRef o) noexcept {
    gone.push_back(o.handle);
    lose(o.handle);
    for (std::int32_t u = 0; u < 3; ++u) units.release_keyless({o.handle * 3 + u});
  }

  void publish(std::int32_t s, std::int32_t n) {
    states[s] = {n};
    cached[s] = false;
    hs::PrefixNode& node = nodes[static_cast<std::size_t>(n)];
    if (node.oldest_state < 0) node.oldest_state = s;
    for (; n >= 0; n = nodes[static_cast<std::size_t>(n)].parent)
      ++nodes[static_cast<std::size_t>(n)].states_below;
    order.published(*this, {hs::ObjectKind::checkpoint, s});
    cached[s] = true;
    order.released(*this, {hs::ObjectKind::checkpoint, s});
  }
  void lose(std::int32_t s) {
    hs::ObjectRef const object{hs::ObjectKind::checkpoint, s};
    order.referenced(*this, object);
    hs::NodeIndex const at = states.at(s);
    states.erase(s);
    std::int32_t oldest = -1;
    for (auto const& [other, n] : states)
      if (n == at && oldest < 0) oldest = other;
    nodes[at.at()].oldest_state = oldest;
    for (hs::NodeIndex n = at; n; n = {nodes[n.at()].parent}) --nodes[n.at()].states_below;
    order.lost(*this, object, at);
  }
  void exit(std::int32_t n) {
    ++nodes[static_cast<std::size_t>(n)].exits;
    order.demand_changed(*this, {n});
  }
  double score(std::int32_t s) const { return order.score({s}); }
};

}  // namespace

TEST_CASE("scores by hand: publications, exits and losses around a state") {
  // 0 - 1 - 2 - 3 and 2 - 4; a state is as large as three blocks.
  Tree t({-1, 0, 1, 2, 2});
  t.publish(0, 2);  // two blocks of replay, which it alone needs
  CHECK(t.score(0) == doctest::Approx(2.0 / 5));
  t.publish(1, 3);  // one block to node 2, whose path the two now share
  CHECK(t.score(0) == doctest::Approx(2.0 / 3));
  CHECK(t.score(1) == doctest::Approx(1.0 / 4));
  t.publish(2, 4);
  CHECK(t.score(2) == doctest::Approx(1.0 / 4));
  for (int i = 0; i < 3; ++i) t.exit(3);
  CHECK(t.score(1) == doctest::Approx(13.0 / 4));  // 1 + 4 * 3
  t.lose(0);                                       // replay from the root again
  CHECK(t.score(1) == doctest::Approx(13 * 3.0 / 4));
  CHECK(t.score(2) == doctest::Approx(3.0 / 4));
  t.lose(2);  // and the whole path for itself
  CHECK(t.score(1) == doctest::Approx(13 * 3.0 / 6));
  t.publish(0, 2);  // a new state above shortens the replay at once
  CHECK(t.score(1) == doctest::Approx(13 * 1.0 / 4));
}

TEST_CASE("victims: duplicates first, then the least score; the clock rises and ages the rest") {
  Tree t({-1, 0, 0, 0, 0});
  t.publish(0, 1);
  t.publish(1, 2);
  t.publish(2, 2);  // a duplicate
  t.exit(1);
  CHECK(t.score(0) == doctest::Approx(5.0 / 4));
  CHECK(t.score(1) == doctest::Approx(1.0 / 3));  // its path is the duplicate's as well
  t.order.make_keyless(t, 0, 3);
  CHECK(t.gone == std::vector<std::int32_t>{2});
  CHECK(t.order.clock() == 0);
  CHECK(t.score(1) == doctest::Approx(1.0 / 4));
  t.order.make_keyless(t, 0, 6);
  CHECK(t.gone == std::vector<std::int32_t>{2, 1});
  CHECK(t.order.clock() == doctest::Approx(1.0 / 4));
  t.publish(3, 3);  // younger: it starts at the clock
  CHECK(t.score(3) == doctest::Approx(1.0 / 4 + 1.0 / 4));
  t.publish(4, 4);
  t.order.make_keyless(t, 0, 9);  // equal scores: the earlier release goes
  CHECK(t.gone.back() == 3);
  CHECK(t.order.clock() == doctest::Approx(1.0 / 2));
  t.order.make_keyless(t, 0, 12);
  CHECK(t.gone.back() == 4);
  t.publish(5, 3);
  CHECK(t.score(5) == doctest::Approx(1.0 / 2 + 1.0 / 4));  // still below what was asked for once
  CHECK(t.score(0) == doctest::Approx(5.0 / 4));
}

TEST_CASE("the Marconi-like score by hand: uses of the memory's states, and FLOPs per byte") {
  // 64 blocks hold 64 / 3 states: one more use is worth 3 / 64.
  double const use = 3.0 / 64;
  hs::ScoreRule const rule{hs::StateScore::marconi, 0.5, 1.0 / 512, nullptr};
  Tree t({-1, 0, 1, 2, 0}, rule);
  t.publish(0, 2);  // two blocks from the root: a token's mean context is one block
  CHECK(t.score(0) == doctest::Approx(use + 0.5 * 2 * (1 + 1.0) / 5));
  t.publish(1, 3);  // one block, two and a half of context
  CHECK(t.score(1) == doctest::Approx(2 * use + 0.5 * 1 * (1 + 2.5) / 4));
  for (int i = 0; i < 9; ++i) t.exit(3);  // demand is no part of it
  CHECK(t.score(1) == doctest::Approx(2 * use + 0.5 * 1 * (1 + 2.5) / 4));
  t.publish(2, 4);
  t.order.make_keyless(t, 0, 3);  // and victims age nobody
  CHECK(t.gone == std::vector<std::int32_t>{2});
  CHECK(t.order.clock() == doctest::Approx(3 * use));
  t.order.admitted(t, 9, {0});
  t.exit(2);
  CHECK(t.score(0) == doctest::Approx(4 * use + 0.5 * 2 * (1 + 1.0) / 3));
}

TEST_CASE("the clairvoyant order: never, then the latest use goes; admissions move it on") {
  struct Uses : hs::NextUses {
    std::uint64_t next(std::uint64_t path, std::uint64_t from) const noexcept override {
      std::uint64_t const period = path;  // a multiple of it; 0: never
      return period == 0 ? never : (from + period - 1) / period * period;
    }
  } const uses;
  Tree t({-1, 0, 0, 0, 0}, {hs::StateScore::clairvoyant, 1, 0, &uses});
  for (std::size_t n = 1; n <= 3; ++n) t.nodes[n].path = 5 * n;
  t.order.admitted(t, 0, {});
  for (std::int32_t s = 0; s < 4; ++s) t.publish(s, s + 1);  // next used by 5, 10, 15 and nobody
  t.order.make_keyless(t, 0, 3);
  CHECK(t.gone == std::vector<std::int32_t>{3});
  t.order.admitted(t, 5, {});
  t.exit(1);  // 10 as well now; the earlier release goes
  t.order.make_keyless(t, 0, 6);
  CHECK(t.gone == std::vector<std::int32_t>{3, 2});
  t.order.admitted(t, 10, {});
  t.exit(1);  // 15, before 20
  t.exit(2);
  t.order.make_keyless(t, 0, 9);
  CHECK(t.gone == std::vector<std::int32_t>{3, 2, 1});
}

TEST_CASE("the market: what costs nothing is a sum, what requests came back to is an offer") {
  Tree t({-1, 0, 1, 0});
  t.publish(0, 2);
  t.publish(1, 3);
  hs::Market market;
  t.order.offer(t, {}, market);
  CHECK(market.offers.empty());
  CHECK(market.unasked[0] == doctest::Approx(2 * 3 + 2 + 1));
  t.exit(2);
  t.exit(2);
  market = {};
  t.order.offer(t, {}, market);
  REQUIRE(market.offers.size() == 1);
  CHECK(market.unasked[0] == doctest::Approx(3 + 1));
  CHECK(market.offers[0].units[0] == doctest::Approx(3 + 2));
  CHECK(market.offers[0].replay == 1024);
  CHECK(market.offers[0].exits == 2);
  market = {};
  t.order.offer(t, {0}, market);  // what is to be adopted stays
  CHECK(market.offers.empty());
  market = {};
  t.order.offer(t, {1}, market);
  CHECK(market.unasked[0] == 0);
}

TEST_CASE("the gate's price and losses by hand") {
  hs::PricedGate gate(0.016, 1e-4);
  CHECK(gate.price(4) == doctest::Approx(0.016 / (4 * 0.05)));
  gate.observe_step(82'000'000);  // a thirty-second of the way from 50 to 82 ms
  CHECK(gate.price(4) == doctest::Approx(0.016 / (4 * 0.051)));
  gate.set_time(static_cast<std::int64_t>(10 * second));
  hs::Offer o;
  o.replay = 512;
  o.last_exit_ns = static_cast<std::int64_t>(8 * second);
  o.exits = 1;
  CHECK(gate.loss(o) == 0);
  o.exits = 3;  // two returns in ten seconds are rarer than one in the last two
  CHECK(gate.loss(o) == doctest::Approx(0.2 * 512 * 1e-4));
  o.exits = 30;
  CHECK(gate.loss(o) == doctest::Approx(0.5 * 512 * 1e-4));
  o.first_seen_ns = o.last_exit_ns = static_cast<std::int64_t>(10 * second);
  o.exits = 2;  // never less than a millisecond
  CHECK(gate.loss(o) == doctest::Approx(1000 * 512 * 1e-4));
}

TEST_CASE("the gate's decisions: worthless units, what costs nothing, then the cheapest per byte") {
  hs::UnitPool const pool(100);
  hs::AdmissionView view;
  view.running = 4;
  view.need = {{10, 0}};
  view.crossing = {{4, 0}};
  view.available = {{100, 0}};
  view.pools[0] = &pool;
  auto const decide = [&](double worthless, double unasked, std::vector<hs::Offer> offers,
                          hs::PriceRecord* record = nullptr) {
    hs::PricedGate gate(0.016, 1e-4);  // the price is 0.08
    gate.set_time(static_cast<std::int64_t>(10 * second));
    hs::Market market{{worthless, 0}, {unasked, 0}, offers};
    int const pool_short = gate.refusing_pool(view, market);
    if (record != nullptr) *record = gate.record();
    return pool_short;
  };
  auto const offer = [](double units, double loss) {  // exits at a rate of one a second
    return hs::Offer{{units, 0}, units, static_cast<hs::Tokens>(loss * 1e4),
                     11,         0,     static_cast<std::int64_t>(9 * second)};
  };
  CHECK(decide(26, 0, {}) == -1);  // 10 + 4 * 4
  CHECK(decide(20, 6, {}) == -1);
  CHECK(decide(20, 0, {offer(6, 0.08)}) == -1);
  CHECK(decide(20, 0, {offer(6, 0.09)}) == 0);
  CHECK(decide(20, 0, {offer(6, 0.09), offer(3, 0.03), offer(3, 0.04)}) == -1);
  CHECK(decide(20, 0, {offer(12, 0.09), offer(3, 0.03), offer(3, 0.04)}) == 0);
  CHECK(decide(20, 0, {}) == -1);  // nothing is lost by what is not there
  hs::PriceRecord record;
  CHECK(decide(20, 3, {offer(2, 0.05), offer(2, 0.06)}, &record) == 0);
  CHECK(record.weighed == 1);
  CHECK(record.blocked == 1);
  CHECK(record.price == doctest::Approx(0.08));
  CHECK(record.loss == doctest::Approx(0.11));
  view.adopting = {{6, 0}};  // those units are its own already
  CHECK(decide(20, 0, {offer(6, 0.09)}) == -1);
  view.available = {{13, 0}};
  CHECK(decide(100, 0, {}, &record) == 0);
  CHECK(record.weighed == 0);
  CHECK(record.unaffordable == 1);
}

TEST_CASE("a refusal stands until a unit is freed, somebody leaves or another request asks") {
  hs::PricedGate const gate(0.016, 1e-4);
  hs::AdmissionView view;
  view.running = 2;
  view.need = {{5, 0}};
  view.request = 7;
  CHECK_FALSE(gate.stands_by_refusal(view));
  CHECK(gate.refusing_pool(view) == 0);
  CHECK(gate.stands_by_refusal(view));
  for (int changed = 0; changed < 3; ++changed) {
    hs::AdmissionView other = view;
    (changed == 0 ? other.request : changed == 1 ? other.freed : other.freed) += 1;
    if (changed == 2) --other.freed, ++other.running;
    CHECK_FALSE(gate.stands_by_refusal(other));
  }
}

TEST_CASE("junction placement keeps the junction, the prompt's last boundary and those of decode") {
  hs::Placement const p{hs::PlacementKind::junction, 1};
  hs::RequestBoundaries const of{26, 11};
  std::vector<hs::Tokens> kept;
  for (hs::Tokens b = 0; b <= 40; ++b)
    if (p.keeps(b, 4, of)) kept.push_back(b);
  CHECK(kept == std::vector<hs::Tokens>{8, 24, 28, 32, 36, 40});
  int wrong = 0;
  for (hs::Tokens junction : {0U, 3U, 11U, 24U, 25U, 40U})
    for (hs::Tokens prompt : {1U, 24U, 26U})
      for (hs::Tokens begin = 0; begin <= 40; ++begin)
        for (hs::Tokens end = begin; end <= 41; ++end) {
          hs::Units inside = 0;
          for (hs::Tokens b = begin + 1; b < end; ++b)
            inside += p.keeps(b, 4, {prompt, junction}) ? 1U : 0U;
          wrong += p.inside(begin, end, 4, {prompt, junction}) == inside ? 0 : 1;
        }
  CHECK(wrong == 0);
}

TEST_CASE(
    "states stay at the junction and at the newest boundary of decode, unless others branch") {
  hs::CacheOptions options;
  options.placement = {hs::PlacementKind::junction, 1};
  hs::JointCache<hs::RecurrentPaged<>, hs::GreedyDual> cache(
      hs::RecurrentPaged<>(small_layout(), 60), options);
  auto const states_on = [&](const Ids& t) {
    std::vector<hs::Tokens> at;
    hs::NodeIndex n = cache.index().find_root(0, {});
    for (hs::Tokens b = 0; n && b + 4 <= t.size(); b += 4) {
      n = cache.index().find_child(n, {hs::block_key({&t[b], 4}), &t[b]});
      if (n && cache.index()[n].oldest_state >= 0) at.push_back(b + 4);
    }
    return at;
  };
  auto const serve = [&](const Ids& t, hs::Tokens of_prompt, std::uint64_t requester) {
    cache.begin_step();
    Ids const head(t.begin(), t.begin() + of_prompt);
    hs::Entry const e = cache.enter(prompt(head), requester);
    hs::Admission const a = cache.admit(prompt(head), {requester, 0, e.split ? e.known : 0});
    REQUIRE(a);
    while (cache.position(a.sequence) < t.size()) {
      hs::Tokens const at = cache.position(a.sequence);
      REQUIRE(advance(cache, a.sequence, t, at < of_prompt ? of_prompt - at : 1));
      cache.begin_step();
      CHECK(cache.check_invariants() == "");
    }
    cache.release(a.sequence);
    CHECK(cache.check_invariants() == "");
  };
  Ids first = ids(34);
  serve(first, 18, 1);  // the prompt's end 16; decode at 20, 24, 28 and 32 leaves the last
  CHECK(states_on(first) == std::vector<hs::Tokens>{16, 32});
  Ids branching = ids(34);
  std::fill(branching.begin() + 8, branching.end(), 99U);
  serve(branching, 18, 2);  // leaves the known path at 8, which others follow
  CHECK(states_on(branching) == std::vector<hs::Tokens>{8, 16, 32});
  Ids third = first;
  std::fill(third.begin() + 20, third.end(), 77U);
  cache.enter(prompt(third), 3);  // a branch at 20: a decode boundary there would not give way
  Ids fourth = first;
  cache.clear();
  serve(fourth, 18, 4);
  CHECK(states_on(fourth) == std::vector<hs::Tokens>{16, 20, 32});
  CHECK(cache.cached_checkpoints().all == 3);
  CHECK(cache.cached_checkpoints().orphaned == 0);
  hs::NodeIndex n = cache.index().find_root(0, {});
  n = cache.index().find_child(n, {hs::block_key({fourth.data(), 4}), fourth.data()});
  cache.invalidate(hs::AttentionHandle{cache.index()[n].oldest_unit});
  CHECK(cache.cached_checkpoints().orphaned == 3);
}
