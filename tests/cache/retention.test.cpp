// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Retention while a holder runs, and pinning at preemption.

#include "support.hpp"

using namespace cache_test;

namespace {

using Cache = hs::JointCache<hs::CoarsePage<>>;

Cache coarse(hs::Units units, const hs::CacheOptions& options) {
  return Cache(hs::CoarsePage<>(small_layout(), units), options);
}

/// Enters and admits; the step is opened before.
hs::SequenceHandle admit(Cache& cache, const Ids& t, std::uint64_t requester) {
  cache.begin_step();
  cache.enter(prompt(t), requester);
  hs::Admission const a = cache.admit(prompt(t), {requester, 0});
  REQUIRE(a);
  return a.sequence;
}
/// Computes everything known, then one more token of output after another.
void decode(Cache& cache, hs::SequenceHandle s, const Ids& t, hs::Tokens until) {
  while (cache.position(s) < until) {
    hs::Tokens const left = static_cast<hs::Tokens>(t.size()) - cache.position(s);
    REQUIRE(advance(cache, s, t, cache.position(s) < t.size() ? std::min(left, until) : 1));
    cache.begin_step();
    REQUIRE(cache.check_invariants() == "");
  }
}
hs::StateHandle checkpoint_at(Cache& cache, const Ids& t, hs::Tokens boundary) {
  Ids const prefix(t.begin(), t.begin() + boundary + 1);
  hs::Match const m = cache.lookup(prompt(prefix));
  REQUIRE(m.joint == boundary);
  return cache.checkpoint(m);
}

}  // namespace

TEST_CASE("holders keep a boundary that two requesters asked for; one requester is not enough") {
  for (auto mode :
       {hs::RetentionMode::none, hs::RetentionMode::producer, hs::RetentionMode::holders}) {
    CAPTURE(static_cast<int>(mode));
    hs::CacheOptions o;
    o.retention.mode = mode;
    Cache cache = coarse(60, o);
    Ids const t = ids(14);

    hs::SequenceHandle const first = admit(cache, t, 1);
    decode(cache, first, t, 10);
    REQUIRE(advance(cache, first, t, 2));
    hs::StateHandle const at_8 = checkpoint_at(cache, t, 8);
    CHECK(cache.references(at_8) == 0);  // superseded, and only one requester so far
    CHECK(cache.retained(first).empty());

    hs::SequenceHandle const second = admit(cache, t, 2);
    CHECK(cache.position(second) == 12);
    hs::StateHandle const at_12 = checkpoint_at(cache, t, 12);
    REQUIRE(advance(cache, second, t, 2));
    REQUIRE(advance(cache, first, t, 2));
    cache.begin_step();
    CHECK(cache.references(at_12) == 2);  // each one's source until its next step
    Ids const longer = ids(20);
    REQUIRE(advance(cache, first, longer, 1));
    REQUIRE(advance(cache, second, longer, 1));
    // The first one computed it, the second one adopted it.
    std::uint32_t const kept = mode == hs::RetentionMode::none       ? 0
                               : mode == hs::RetentionMode::producer ? 1
                                                                     : 2;
    CHECK(cache.references(at_12) == kept);
    CHECK(cache.counters().retained == kept);
    CHECK(cache.retained(first).size() == (kept > 0 ? 1 : 0));
    CHECK(cache.retained(second).size() == (kept > 1 ? 1 : 0));
    CHECK(cache.check_invariants() == "");
    cache.release(first);
    CHECK(cache.references(at_12) == (kept > 1 ? 1 : 0));
    cache.release(second);
    CHECK(cache.references(at_12) == 0);
    CHECK(cache.published(at_12));
    CHECK(cache.check_invariants() == "");
  }
}

TEST_CASE("the same requester twice is one requester") {
  hs::CacheOptions o;
  o.retention.mode = hs::RetentionMode::holders;
  Cache cache = coarse(60, o);
  Ids const t = ids(14);
  for (int i = 0; i < 3; ++i) {
    hs::SequenceHandle const s = admit(cache, t, 7);
    decode(cache, s, t, 14);
    cache.release(s);
  }
  CHECK(cache.counters().retained == 0);
  CHECK(cache.counters().eligible_boundaries == 0);
  hs::SequenceHandle const s = admit(cache, t, 8);
  CHECK(cache.counters().eligible_boundaries == 3);  // 4, 8 and 12
  cache.release(s);
}

TEST_CASE("retained boundaries yield before a preemption if told so, and always to a lone runner") {
  for (auto yield : {hs::RetentionYield::never, hs::RetentionYield::before_preemption}) {
    CAPTURE(static_cast<int>(yield));
    hs::CacheOptions o;
    o.retention = {hs::RetentionMode::holders, 1, yield};  // K = 1: every boundary is kept
    Cache cache = coarse(14, o);
    Ids const t = ids(17);
    Ids const other = ids(8, 500);
    hs::SequenceHandle const first = admit(cache, t, 1);
    for (hs::Tokens n = 0; n < 16; n += 4) {
      REQUIRE(advance(cache, first, t, 4));
      cache.begin_step();
    }
    REQUIRE(advance(cache, first, t, 1));
    CHECK(cache.retained(first).size() == 3);  // at 4, 8 and 12; the one at 16 is still the source
    // 5 blocks, 3 retained states, a source and a working one: 4 of 14 units are left.
    CHECK(cache.available()[0] == 4);
    hs::SequenceHandle const second = admit(cache, other, 2);
    REQUIRE(advance(cache, second, other, 8));  // 2 blocks, the state at 4, the one at 8
    cache.begin_step();
    CHECK(cache.available()[0] == 0);
    Ids const longer = ids(30, 500);
    hs::Shortage const why = cache.reserve(second, 1);
    if (yield == hs::RetentionYield::never) {
      CHECK(why.refusal == hs::Refusal::wait_units);
      CHECK(cache.retained(first).size() == 3);  // a refusal changes nothing
      CHECK(cache.counters().retained_yielded == 0);
      cache.preempt(second);
    } else {
      CHECK(why);
      CHECK(cache.retained(first).size() < 3);
      CHECK(cache.counters().retained_yielded > 0);
      CHECK(cache.retained(first).back().boundary == 12);  // the shallowest went first
      cache.abort(second);
      cache.release(second);
    }
    CHECK(cache.check_invariants() == "");
    // Alone it may have everything, whatever the rule.
    Ids const mine = ids(48);
    hs::Tokens at = cache.position(first);
    while (at < 40) {
      cache.begin_step();
      REQUIRE(advance(cache, first, mine, 4));
      at = cache.position(first);
      REQUIRE(cache.check_invariants() == "");
    }
  }
}

TEST_CASE("an invalidated boundary is not retained any longer") {
  hs::CacheOptions o;
  o.retention = {hs::RetentionMode::holders, 1, hs::RetentionYield::never};
  o.pinning = {1, 1.0};
  Cache cache = coarse(30, o);
  Ids const t = ids(13);
  hs::SequenceHandle const s = admit(cache, t, 1);
  decode(cache, s, t, 13);
  REQUIRE(advance(cache, s, ids(20), 1));
  CHECK(cache.retained(s).size() == 3);
  cache.invalidate(prompt(t), 9);
  CHECK(cache.retained(s).size() == 2);
  cache.preempt(s);
  REQUIRE(cache.pinned(s));
  cache.clear();
  CHECK_FALSE(cache.pinned(s));
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a preempted sequence pins its rightmost boundary until it is back") {
  hs::CacheOptions o;
  o.pinning = {1, 0.5};
  Cache cache = coarse(12, o);
  Ids const t = ids(11);
  hs::SequenceHandle const s = admit(cache, t, 1);
  decode(cache, s, t, 11);
  hs::StateHandle const at_8 = checkpoint_at(cache, t, 8);
  cache.preempt(s);
  CHECK(cache.pinned(s) == at_8);
  CHECK(cache.references(at_8) == 1);
  CHECK(cache.references(checkpoint_at(cache, t, 4)) == 0);
  CHECK(cache.counters().pins == 1);
  CHECK(cache.check_invariants() == "");
  cache.begin_step();
  hs::Admission const back = cache.resume(s, prompt(t), {1, 0});
  REQUIRE(back);
  CHECK(back.match.joint == 8);
  CHECK_FALSE(cache.pinned(s));
  CHECK(cache.references(at_8) == 1);  // adopted, and the pin is gone
  CHECK(cache.counters().pins_yielded == 0);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("pins need demand and room in the protection budget") {
  Ids const t = ids(11);
  for (std::uint32_t k : {1U, 2U, 3U}) {
    hs::CacheOptions o;
    o.pinning = {k, 0.5};
    Cache cache = coarse(20, o);
    serve(cache, t);
    cache.enter(prompt(t), 1);
    hs::SequenceHandle const s = admit(cache, t, 2);
    cache.preempt(s);
    CHECK(static_cast<bool>(cache.pinned(s)) == (k <= 2));
    cache.release(s);
    CHECK(cache.check_invariants() == "");
  }
  hs::CacheOptions o;
  o.pinning = {1, 0.05};  // one of 20 units; the second pin has no room
  Cache cache = coarse(20, o);
  Ids const u = ids(11, 300);
  hs::SequenceHandle const a = admit(cache, t, 1);
  decode(cache, a, t, 11);
  hs::SequenceHandle const b = admit(cache, u, 2);
  decode(cache, b, u, 11);
  cache.preempt(b);
  cache.preempt(a);
  CHECK(cache.pinned(b));
  CHECK_FALSE(cache.pinned(a));
  CHECK(cache.counters().pins_over_budget == 1);
  cache.release(b);
  CHECK(cache.usage().pool[0].referenced == 0);
}

TEST_CASE("pins never keep the head of the line out while nothing runs, the oldest going first") {
  hs::CacheOptions o;
  o.pinning = {1, 1.0};
  Cache cache = coarse(14, o);
  Ids const t = ids(9), u = ids(9, 300);
  hs::SequenceHandle const a = admit(cache, t, 1);
  decode(cache, a, t, 9);
  cache.preempt(a);
  hs::SequenceHandle const b = admit(cache, u, 2);
  decode(cache, b, u, 9);
  cache.preempt(b);
  REQUIRE(cache.pinned(a));
  REQUIRE(cache.pinned(b));
  Ids const big = ids(43, 700);  // 11 blocks and two states: one pin has to go
  hs::SequenceHandle const c = admit(cache, big, 3);
  CHECK_FALSE(cache.pinned(a));
  CHECK(cache.pinned(b));
  CHECK(cache.counters().pins_yielded == 1);
  CHECK(cache.check_invariants() == "");
  // The lone runner takes the other one too when it must.
  while (cache.position(c) < 43) {
    REQUIRE(advance(cache, c, big, std::min<hs::Tokens>(4, 43 - cache.position(c))));
    cache.begin_step();
  }
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("retention and pinning refuse what they cannot count") {
  hs::CacheOptions o;
  o.retention.distinct = 5;
  CHECK(Cache::problem(hs::CoarsePage<>(small_layout(), 9), o).find("retention.distinct is 5") !=
        std::string::npos);
  o.retention.distinct = 0;
  CHECK(Cache::problem(hs::CoarsePage<>(small_layout(), 9), o).find("retention.distinct is 0") !=
        std::string::npos);
  o = {};
  o.pinning.distinct = 9;
  CHECK(Cache::problem(hs::CoarsePage<>(small_layout(), 9), o).find("pinning.distinct is 9") !=
        std::string::npos);
  o = {};
  o.pinning.protection_budget = 1.5;
  CHECK(Cache::problem(hs::CoarsePage<>(small_layout(), 9), o).find("protection_budget") !=
        std::string::npos);
}
