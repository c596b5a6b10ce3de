// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <map>
#include <utility>

using namespace cache_test;

namespace {

using Recorded = hs::JointCache<hs::ConvSlabPacked<>, hs::PaperOrder, Recorder>;

Recorded recorded(hs::Units units, std::vector<hs::Event>& log) {
  return Recorded(hs::ConvSlabPacked<>(small_layout(), units), {}, {}, Recorder{&log});
}
auto count(const std::vector<hs::Event>& log, hs::EventKind kind,
           hs::ObjectKind object = hs::ObjectKind::none) {
  return std::count_if(log.begin(), log.end(), [&](const hs::Event& e) {
    return e.kind == kind && (object == hs::ObjectKind::none || e.object == object);
  });
}
const hs::Event& last(const std::vector<hs::Event>& log, hs::EventKind kind) {
  for (std::size_t i = log.size(); i-- > 0;)
    if (log[i].kind == kind) return log[i];
  FAIL("no such event");
  return log.front();
}

}  // namespace

TEST_CASE("every loss has its publication, with its cause and who caused it") {
  std::vector<hs::Event> log;
  auto cache = recorded(24, log);
  std::uint64_t state = 12345;
  auto random = [&](std::uint32_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state >> 33) % n);
  };
  for (int i = 0; i < 200; ++i) {
    Ids const t = ids(1 + random(30), 100 * random(4));
    serve(cache, t, random(2), 1 + random(9), 100 + random(5));
    if (i % 50 == 49) cache.clear();
  }
  std::map<std::pair<hs::ObjectKind, std::int32_t>, hs::Event> alive;
  hs::Step step = 0;
  bool matched = true, ordered = true, caused = true, keyed = true;
  for (hs::Event const& e : log) {
    ordered = ordered && e.step >= step;
    step = e.step;
    if (e.kind == hs::EventKind::publish) {
      keyed = keyed && e.key != 0 && e.boundary > 0 && e.boundary % 4 == 0 && e.request >= 100;
      matched = matched && alive.emplace(std::pair(e.object, e.handle), e).second;
    } else if (e.kind == hs::EventKind::loss) {
      auto const it = alive.find({e.object, e.handle});
      matched = matched && it != alive.end();
      if (it == alive.end()) continue;
      matched = matched && it->second.key == e.key && it->second.parent_key == e.parent_key &&
                it->second.salt == e.salt && it->second.boundary == e.boundary;
      alive.erase(it);
      caused = caused && e.cause != hs::LossCause::none;
      if (e.cause == hs::LossCause::cleared)
        caused = caused && e.request == 0;
      else
        caused = caused && e.request >= 100;
      if (e.object == hs::ObjectKind::attention)
        caused = caused && e.cause != hs::LossCause::carrier;
    }
  }
  CHECK(matched);
  CHECK(ordered);
  CHECK(caused);
  CHECK(keyed);
  auto const& c = cache.counters();
  auto same = [&](auto n, std::uint64_t counter) {
    CHECK(static_cast<std::uint64_t>(n) == counter);
  };
  same(count(log, hs::EventKind::publish, hs::ObjectKind::attention), c.published_blocks);
  same(count(log, hs::EventKind::publish, hs::ObjectKind::checkpoint), c.published_checkpoints);
  same(count(log, hs::EventKind::loss, hs::ObjectKind::attention), c.lost_blocks);
  same(count(log, hs::EventKind::loss, hs::ObjectKind::checkpoint), c.lost_checkpoints);
  same(count(log, hs::EventKind::admit), c.admissions);
  same(count(log, hs::EventKind::finish), c.releases);
  same(std::count_if(log.begin(), log.end(),
                     [](const hs::Event& e) {
                       return e.kind == hs::EventKind::loss && e.cause == hs::LossCause::carrier;
                     }),
       c.cross_invalidations);
  CHECK(c.cross_invalidations > 0);
}

TEST_CASE("the fields of each kind of event") {
  std::vector<hs::Event> log;
  auto cache = recorded(24, log);
  Ids const t = ids(9);
  cache.begin_step();
  cache.enter(prompt(t, 3), 55);
  CHECK(log.back().kind == hs::EventKind::enter);
  CHECK(log.back().request == 55);
  CHECK(log.back().salt == 3);
  CHECK(log.back().tokens == 9);
  serve(cache, t, 3, 100, 55);
  hs::Event const published = last(log, hs::EventKind::publish);
  std::uint64_t path = hs::PrefixIndex::path_of_root(3, {});
  for (std::size_t i = 0; i < 2; ++i)
    path = hs::PrefixIndex::path_to(path, hs::block_key(std::span(t).subspan(4 * i, 4)));
  CHECK(published.path == path);
  CHECK(published.object == hs::ObjectKind::checkpoint);
  CHECK(published.boundary == 8);
  CHECK(published.salt == 3);
  CHECK(published.key == hs::block_key(std::span(t).subspan(4, 4)));
  CHECK(published.parent_key == hs::block_key(std::span(t).first(4)));
  log.clear();
  hs::Admission const a = cache.admit(prompt(t, 3), {77, 0});
  REQUIRE(a);
  hs::Event const adopted = last(log, hs::EventKind::adopt);
  CHECK(adopted.request == 77);
  CHECK(adopted.boundary == 8);
  CHECK(adopted.tokens == 8);
  CHECK(adopted.handle == cache.states(a.sequence)[0].state.value);
  hs::Event const admitted = last(log, hs::EventKind::admit);
  CHECK(admitted.boundary == 8);
  CHECK(admitted.tokens == 9);
  CHECK(admitted.attention == 8);
  CHECK(admitted.recurrent == 8);
  CHECK(admitted.joint == 8);
  CHECK(admitted.cause == hs::LossCause::none);
  CHECK(admitted.handle == a.sequence.value);
  REQUIRE(cache.reserve(a.sequence, 1));
  CHECK(count(log, hs::EventKind::allocate, hs::ObjectKind::attention) == 1);
  CHECK(count(log, hs::EventKind::allocate, hs::ObjectKind::checkpoint) == 1);
  cache.preempt(a.sequence);
  CHECK(last(log, hs::EventKind::preempt).tokens == 8);
  CHECK_FALSE(cache.admit(prompt(ids(500)), {78, 0}));
  CHECK(log.back().kind == hs::EventKind::refuse);
  CHECK(log.back().refusal == static_cast<std::uint8_t>(hs::Refusal::never_fits));
  CHECK(log.back().pool == 0);
  CHECK(log.back().request == 78);
  cache.release(a.sequence);
  CHECK(log.back().kind == hs::EventKind::finish);
  hs::StateHandle const s = cache.checkpoint(cache.lookup(prompt(t, 3)));
  cache.invalidate(s);
  CHECK(last(log, hs::EventKind::loss).cause == hs::LossCause::invalidated);
  CHECK(last(log, hs::EventKind::loss).request == 0);
  cache.invalidate_since(0);
  CHECK(last(log, hs::EventKind::loss).cause == hs::LossCause::failed_step);
  CHECK(cache.counters().lost_checkpoints == cache.counters().published_checkpoints);
}

TEST_CASE("an admission says what it found when it could not keep it") {
  // Idle slabs with single free slots: alone, a request may have to clear what is cached.
  std::uint64_t cleared = 0;
  for (std::uint64_t seed = 1; seed < 31; ++seed) {
    std::vector<hs::Event> log;
    auto cache = recorded(12, log);
    std::uint64_t state = seed;
    auto random = [&](std::uint32_t n) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return static_cast<std::uint32_t>((state >> 33) % n);
    };
    for (int round = 0; round < 60; ++round) {
      Ids const t = ids(1 + random(19), 100 * random(2));
      std::uint64_t const salt = random(2);
      hs::Match const match = cache.lookup(prompt(t, salt));
      hs::Admission const a = cache.admit(prompt(t, salt), {1, 20});
      REQUIRE(a);
      hs::Event const admitted = last(log, hs::EventKind::admit);
      CHECK(admitted.joint == match.joint);
      CHECK(admitted.attention == match.attention);
      CHECK(admitted.recurrent == match.recurrent);
      CHECK(admitted.boundary == cache.position(a.sequence));
      if (admitted.cause == hs::LossCause::cleared) {
        ++cleared;
        CHECK(admitted.boundary == 0);
        CHECK(last(log, hs::EventKind::loss).cause == hs::LossCause::cleared);
      } else {
        CHECK(admitted.boundary == match.joint);
      }
      while (cache.position(a.sequence) < t.size()) {
        cache.begin_step();
        hs::Tokens const left = static_cast<hs::Tokens>(t.size()) - cache.position(a.sequence);
        if (!advance(cache, a.sequence, t, std::min(left, 1 + random(8)))) break;
      }
      cache.release(a.sequence);
      cache.begin_step();
    }
  }
  CHECK(cleared > 0);
}

TEST_CASE("the path-safe order says that it chose the object") {
  std::vector<hs::Event> log;
  hs::JointCache<hs::RecurrentPaged<>, hs::PathSafeLru, Recorder> cache(
      hs::RecurrentPaged<>(small_layout(), 20), {}, {}, Recorder{&log});
  serve(cache, ids(9));
  serve(cache, ids(20, 100), 0, 4);
  CHECK(count(log, hs::EventKind::loss) > 0);
  bool chosen = true;
  for (hs::Event const& e : log)
    if (e.kind == hs::EventKind::loss) chosen = chosen && e.cause == hs::LossCause::reclaimed;
  CHECK(chosen);
}
