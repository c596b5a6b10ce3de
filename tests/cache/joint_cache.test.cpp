// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <cstddef>
#include <set>

using namespace cache_test;

namespace {

using S0 = hs::JointCache<hs::CoarsePage<>>;
using S1 = hs::JointCache<hs::RecurrentPaged<>>;
using S2 = hs::JointCache<hs::ConvSlabPacked<>>;
using D0 = hs::JointCache<hs::NativeDualPool<>>;

hs::StateLayout falcon_7b() { return hs::make_layout(hs::find_preset("falcon-h1-7b")->geometry); }

S1 s1(hs::Units units, const hs::CacheOptions& o = {}) {
  return S1(hs::RecurrentPaged<>(small_layout(), units), o);
}
S2 s2(hs::Units units, const hs::CacheOptions& o = {}) {
  return S2(hs::ConvSlabPacked<>(small_layout(), units), o);
}

hs::CacheOptions with_fences() {
  hs::CacheOptions o;
  o.fences = true;
  return o;
}

template <class Cache>
void exact_multiples(Cache cache, hs::Tokens block, hs::Tokens grid) {
  std::uint64_t salt = 0;
  for (hs::Tokens n : {grid - 1, grid, grid + 1, 2 * grid, 2 * grid + 1}) {
    Ids const t = ids(n);
    serve(cache, t, ++salt);
    hs::Match const m = cache.lookup(prompt(t, salt));
    INFO("prompt of " << n);
    CHECK(m.joint == (n - 1) / grid * grid);
    CHECK(m.attention == (n - 1) / grid * grid);
    CHECK(m.recurrent == m.joint);
    CHECK(m.raw == n / block * block);
    CHECK(m.joint < n);
    // A longer prompt can use the boundary at its end.
    Ids const longer = ids(n + 7);
    CHECK(cache.lookup(prompt(longer, salt)).joint == n / grid * grid);
    cache.clear();
  }
}

}  // namespace

TEST_CASE("exact multiples of 512 and of 1,792 tokens") {
  exact_multiples(S0(hs::CoarsePage<>(falcon_7b(), 63)), 512, 512);
  exact_multiples(S1(hs::RecurrentPaged<>(falcon_7b(), 193)), 512, 512);
  exact_multiples(S2(hs::ConvSlabPacked<>(falcon_7b(), 193)), 512, 512);
  exact_multiples(D0(hs::NativeDualPool<>(falcon_7b(), {{3256, 29}})), 16, 1792);
  exact_multiples(D0(hs::NativeDualPool<>(falcon_7b(), {{193, 29}}, {512, 512})), 512, 512);
}

TEST_CASE("a prompt of one token is served and leaves nothing") {
  auto cache = s2(12);
  Ids const t = ids(1);
  serve(cache, t);
  CHECK(cache.counters().published_blocks == 0);
  CHECK(cache.counters().published_checkpoints == 0);
  CHECK(cache.usage().pool[0].keyless == 12);
  CHECK(cache.lookup(prompt(t)).reason == hs::MissReason::cold);
  Ids const none;
  CHECK(cache.lookup(prompt(none)).joint == 0);
}

TEST_CASE("a match adopts its own blocks, whatever was looked up since") {
  hs::JointCache cache(hs::CoarsePage<>(small_layout(), 40));
  Ids const left = ids(17);
  Ids const right = ids(17, 100);
  serve(cache, left);
  serve(cache, right);
  cache.begin_step();
  hs::Match const first = cache.lookup(prompt(left));
  hs::Match const second = cache.lookup(prompt(right));
  REQUIRE(first.joint == 16);
  REQUIRE(second.joint == 16);
  hs::Admission const a = cache.admit(prompt(left), {1, 0}, hs::FixedHeadroom{}, &first);
  REQUIRE(a);
  hs::Admission const b = cache.admit(prompt(right), {2, 0}, hs::FixedHeadroom{}, &second);
  REQUIRE(b);
  CHECK(cache.check_invariants() == "");
  hs::Admission const again = cache.admit(prompt(left), {3, 0});
  REQUIRE(again);
  REQUIRE(cache.blocks(again.sequence).size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(cache.blocks(a.sequence)[i] == cache.blocks(again.sequence)[i]);
    CHECK(cache.blocks(a.sequence)[i] != cache.blocks(b.sequence)[i]);
  }
}

TEST_CASE("a prompt equal to a cached prefix still computes its last token") {
  auto cache = s1(40);
  serve(cache, ids(8));
  hs::Match const m = cache.lookup(prompt(ids(8)));
  CHECK(m.raw == 8);
  CHECK(m.joint == 4);
  CHECK(m.reason == hs::MissReason::none);
  hs::Admission const a = cache.admit(prompt(ids(8)), {2, 0});
  REQUIRE(a);
  CHECK(cache.position(a.sequence) == 4);
  CHECK(cache.blocks(a.sequence).size() == 1);
  CHECK(cache.states(a.sequence).size() == 1);
  // A boundary at the very end helps only a longer prompt.
  CHECK(cache.lookup(prompt(ids(9))).joint == 8);
}

TEST_CASE(
    "a slab with one live slot is never reassigned; an idle one takes its checkpoints along") {
  auto cache = s2(18);
  Ids const a = ids(12, 100);
  serve(cache, a, 0, 4);  // three checkpoints and their slab
  hs::SequenceHandle const live = start(cache, ids(3, 900));
  auto const& pool = cache.organization().pool(0);
  auto const slots = static_cast<std::int64_t>(cache.organization().slabs().slots());
  hs::StateHandle const held = cache.states(live)[0].state;
  std::int64_t const line = cache.organization().conv_line(held, 0);
  hs::UnitIndex const slab{static_cast<std::int32_t>(line / slots)};
  CHECK(cache.organization().slabs().used(slab) == 4);
  CHECK_FALSE(pool.listed(slab));
  // Somebody takes everything else.
  hs::Admission const big = cache.admit(prompt(ids(4, 500)), {3, 0});
  REQUIRE(big);
  Ids const more = ids(400, 500);
  while (advance(cache, big.sequence, more, 4)) {
    REQUIRE(cache.check_invariants() == "");
    CHECK_FALSE(pool.listed(slab));
    CHECK(cache.organization().conv_line(held, 0) == line);
  }
  CHECK(pool.owner(slab) == hs::UnitOwner::carrier);
  CHECK(cache.counters().cross_invalidations == 0);
  CHECK(cache.references(held) == 1);

  // Idle: its page goes to somebody else, and every cached checkpoint with a slot in it is lost.
  auto idle = s2(16);
  serve(idle, a, 0, 4);
  CHECK(idle.counters().published_checkpoints == 3);
  hs::Admission const grow = idle.admit(prompt(ids(4, 500)), {3, 0});
  REQUIRE(grow);
  hs::Tokens const far = 4 * 11;  // every page but the state's own and the last blocks
  Ids const stream = ids(far, 500);
  REQUIRE(advance(idle, grow.sequence, stream, 1));
  while (idle.position(grow.sequence) + 1 < far && idle.organization().slabs().slabs() > 0 &&
         idle.counters().lost_checkpoints < 3)
    if (!advance(idle, grow.sequence, stream, 1)) break;
  CHECK(idle.counters().lost_checkpoints == 3);
  CHECK(idle.check_invariants() == "");
  CHECK(idle.lookup(prompt(ids(13, 100))).recurrent == 0);
}

TEST_CASE("reassigning an idle slab loses all its checkpoints at once") {
  // The slab page goes to the very front when its last slot belonged to an unpublished state.
  auto cache = s2(24);
  hs::SequenceHandle const s = start(cache, ids(9, 100), 0, 4);
  REQUIRE(advance(cache, s, ids(10, 100), 1));  // the checkpoints at 4 and 8 are cached by now
  cache.release(s);                             // and the private state at 10 was the last in use
  CHECK(cache.counters().published_checkpoints == 2);
  auto const& pool = cache.organization().pool(0);
  CHECK(pool.owner(pool.front()) == hs::UnitOwner::carrier);
  hs::Admission const a = cache.admit(prompt(ids(1, 900)), {2, 0});
  REQUIRE(cache.reserve(a.sequence, 1));  // its block takes the front page
  CHECK(cache.counters().cross_invalidations == 2);
  CHECK(cache.counters().lost_checkpoints == 2);
  CHECK(cache.lookup(prompt(ids(9, 100))).recurrent == 0);
  CHECK(cache.lookup(prompt(ids(9, 100))).raw == 8);
  CHECK(cache.lookup(prompt(ids(9, 100))).reason == hs::MissReason::checkpoint);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a block and a composite take turns on one coarse page") {
  S0 cache(hs::CoarsePage<>(small_layout(), 3));
  std::set<hs::UnitOwner> seen[3];
  for (std::uint32_t turn = 0; turn < 6; ++turn) {
    hs::SequenceHandle const s = start(cache, ids(4, 100 * turn), turn, 1 + turn % 4);
    for (std::int32_t u = 0; u < 3; ++u) seen[u].insert(cache.organization().pool(0).owner({u}));
    cache.release(s);
    CHECK(cache.check_invariants() == "");
  }
  bool swapped = false;
  for (auto const& owners : seen)
    swapped = swapped || (owners.count(hs::UnitOwner::attention) == 1 &&
                          owners.count(hs::UnitOwner::state) == 1);
  CHECK(swapped);
}

TEST_CASE("a pool of exactly one request serves it; one unit less never fits") {
  // 6 blocks, and two states of 3 members and a convolution page.
  hs::Tokens const n = 24;
  for (hs::Units const units : {14U, 13U}) {
    auto cache = s1(units);
    hs::Shortage const alone = cache.fits_alone(n);
    CHECK(static_cast<bool>(alone) == (units == 14));
    CHECK(alone.need[0] == 14);
    CHECK(alone.available[0] == units);
    // Leftovers of others do not stand in the way.
    serve(cache, ids(5, 700));
    serve(cache, ids(4, 800));
    Ids const t = ids(n);
    hs::Admission const a = cache.admit(prompt(Ids(t.begin(), t.begin() + 9)), {1, n});
    if (units == 13) {
      CHECK(a.refusal == hs::Refusal::never_fits);
      CHECK(a.pool == 0);
      CHECK(a.need[0] == 14);
      CHECK(a.available[0] == 13);
      continue;
    }
    REQUIRE(a);
    REQUIRE(advance(cache, a.sequence, t, 4));
    while (cache.position(a.sequence) < n) {
      cache.begin_step();
      REQUIRE(advance(cache, a.sequence, t, 1));
      REQUIRE(cache.check_invariants() == "");
    }
    cache.release(a.sequence);
  }
  // The same for every organization, with chunks of one grid step.
  auto one = [](auto cache, hs::Tokens tokens) {
    serve(cache, ids(3, 900));
    Ids const t = ids(tokens);
    hs::Admission const a = cache.admit(prompt(Ids(t.begin(), t.begin() + 1)), {1, tokens});
    REQUIRE(a);
    while (cache.position(a.sequence) < tokens) {
      cache.begin_step();
      REQUIRE(advance(cache, a.sequence, t, std::min(4U, tokens - cache.position(a.sequence))));
      REQUIRE(cache.check_invariants() == "");
    }
  };
  one(S0(hs::CoarsePage<>(small_layout(), 8)), 24);
  one(s2(13), 24);  // one slab serves both
  one(D0(hs::NativeDualPool<>(small_layout(), {{6, 2}}, {4, 4})), 24);
  one(S2(hs::ConvSlabPacked<>(small_layout(granite_like()), 26)), 24);  // 6 + 2 x 9 + 2 slabs
}

TEST_CASE("a request alone is never refused for what is cached") {
  for (bool const reuse : {false, true}) {
    // Idle slabs with single free slots make two states cost more than two new slots would.
    hs::CacheOptions o;
    o.reuse_beyond_joint = reuse;
    auto cache = s2(13, o);
    Ids const t = ids(24);
    for (int round = 0; round < 40; ++round) {
      hs::Tokens const n = 1 + static_cast<hs::Tokens>(round * 7 % 23);
      serve(cache, Ids(t.begin(), t.begin() + n), static_cast<std::uint64_t>(round % 3), 5);
      hs::Admission const a = cache.admit(prompt(t, 0), {1, 24});
      REQUIRE(a);
      REQUIRE(cache.check_invariants() == "");
      cache.release(a.sequence);
    }
  }
}

TEST_CASE("a sequence that outgrows the pool is told so and nothing changes") {
  auto cache = s1(14);
  Ids const t = ids(200);
  hs::SequenceHandle const s = start(cache, ids(20), 0, 4);
  while (advance(cache, s, t, 1)) REQUIRE(cache.check_invariants() == "");
  hs::Tokens const at = cache.position(s);
  CHECK(at >= 24);
  auto const before = cache.usage();
  auto const held = cache.states(s).size();
  hs::Shortage const why = cache.reserve(s, 1);
  CHECK(why.refusal == hs::Refusal::wait_units);
  CHECK(why.pool == 0);
  CHECK(why.need[0] > why.available[0]);
  CHECK(cache.position(s) == at);
  CHECK(cache.states(s).size() == held);
  CHECK(cache.usage().pool[0].cached == before.pool[0].cached);
  CHECK(cache.usage().pool[0].keyless == before.pool[0].keyless);
  cache.release(s);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("keys that all collide: attention, checkpoints and demand counts stay apart") {
  auto cache = s1(60);
  std::vector<hs::BlockKey> const keys(8, 42);
  auto with_keys = [&](const Ids& t) {
    hs::Prompt p = prompt(t);
    p.keys = std::span(keys).first(t.size() / 4);
    return p;
  };
  auto run = [&](const Ids& t, std::uint64_t requester) {
    cache.begin_step();
    cache.enter(with_keys(t), requester);
    hs::Admission const a = cache.admit(with_keys(t), {requester, 0});
    REQUIRE(a);
    hs::Tokens const at = cache.position(a.sequence);
    auto const n = static_cast<hs::Tokens>(t.size()) - at;
    REQUIRE(cache.reserve(a.sequence, n));
    hs::Committed done = hs::Committed::of_tokens(std::span(t).subspan(at));
    done.keys = std::span(keys).first(t.size() / 4 - at / 4);
    cache.commit(a.sequence, done);
    cache.release(a.sequence);
    cache.begin_step();
    return at;
  };
  Ids const a = ids(9, 0), b = ids(9, 50);
  CHECK(run(a, 1) == 0);
  CHECK(cache.lookup(with_keys(b)).raw == 0);
  CHECK(cache.lookup(with_keys(b)).recurrent == 0);
  CHECK(run(b, 2) == 0);
  CHECK(run(a, 3) == 8);
  CHECK(run(b, 2) == 8);
  auto const& index = cache.index();
  auto const node = [&](const Ids& t, int depth) {
    hs::NodeIndex n = index.find_root(0, {});
    for (int i = 0; i < depth; ++i) n = index.find_child(n, {42, t.data() + 4 * i});
    return n;
  };
  REQUIRE(node(a, 2));
  REQUIRE(node(b, 2));
  CHECK(node(a, 2) != node(b, 2));
  CHECK(index[node(a, 2)].distinct == 2);
  CHECK(index[node(b, 2)].distinct == 1);
  CHECK(index[node(a, 2)].exits == 1);
  CHECK(index[node(b, 2)].exits == 1);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("salts and extra key bytes separate equal tokens") {
  hs::CacheOptions o;
  o.key_bytes = 4;
  auto cache = s1(60, o);
  Ids const t = ids(9);
  serve(cache, t, 7);
  CHECK(cache.lookup(prompt(t, 7)).joint == 8);
  CHECK(cache.lookup(prompt(t, 8)).joint == 0);
  CHECK(cache.lookup(prompt(t, 8)).reason == hs::MissReason::cold);
  std::byte const bytes[5] = {};
  hs::Prompt p = prompt(t, 7);
  p.extra = std::span(bytes).first(1);
  CHECK(cache.lookup(p).joint == 0);
  hs::Admission const a = cache.admit(p, {1, 0});
  REQUIRE(a);
  REQUIRE(advance(cache, a.sequence, t, 9));
  cache.release(a.sequence);
  cache.begin_step();
  CHECK(cache.lookup(p).joint == 8);
  hs::Prompt q = p;
  q.extra = std::span(bytes).first(2);  // more zero bytes are another key
  CHECK(cache.lookup(q).joint == 0);
  q.extra = bytes;
  CHECK(cache.lookup(q).reason == hs::MissReason::key_bytes);
  CHECK(cache.admit(q, {1, 0}).refusal == hs::Refusal::key_bytes);
  CHECK(cache.enter(q, 1).known == 0);
}

TEST_CASE("abort and preempt inside a chunk that crosses boundaries") {
  auto cache = s2(40);
  Ids const t = ids(30);
  hs::SequenceHandle const s = start(cache, ids(6), 0);
  auto const before = cache.usage();
  auto const blocks = cache.blocks(s).size();
  hs::StateHandle const working = cache.states(s).back().state;
  REQUIRE(cache.reserve(s, 13));  // 6 -> 19 crosses 8, 12 and 16
  // The working state at 6 was never published: it goes on in place to 8.
  CHECK(cache.states(s).size() == 4);
  CHECK(cache.states(s)[0].state == working);
  CHECK(cache.states(s)[0].boundary == 8);
  CHECK(cache.states(s)[3].boundary == 19);
  CHECK(cache.blocks(s).size() == 5);
  cache.abort(s);
  CHECK(cache.check_invariants() == "");
  CHECK(cache.position(s) == 6);
  CHECK(cache.blocks(s).size() == blocks);
  CHECK(cache.states(s).back().state == working);
  CHECK(cache.states(s).back().boundary == 6);
  // The superseded checkpoint at 4 stays given back; everything else is as before.
  CHECK(cache.usage().pool[0].referenced + cache.usage().pool[0].cached ==
        before.pool[0].referenced + before.pool[0].cached);
  CHECK(cache.counters().published_checkpoints == 1);
  // And the whole again, preempted.
  REQUIRE(cache.reserve(s, 13));
  cache.preempt(s);
  CHECK(cache.check_invariants() == "");
  CHECK(cache.running() == 0);
  CHECK(cache.counters().published_checkpoints == 1);
  cache.begin_step();
  CHECK(cache.lookup(prompt(t)).joint == 4);
  hs::Admission const again = cache.resume(s, prompt(Ids(t.begin(), t.begin() + 6)), {1, 0});
  REQUIRE(again);
  CHECK(again.sequence == s);
  CHECK(cache.position(s) == 4);
  REQUIRE(advance(cache, s, t, 15));
  CHECK(cache.counters().published_checkpoints == 1 + 3);
}

TEST_CASE("clear() under load forgets everything and disturbs nobody") {
  auto cache = s2(60);
  serve(cache, ids(9, 300));
  hs::SequenceHandle const s = start(cache, ids(9), 0);
  hs::SequenceHandle const open = start(cache, ids(9, 100), 0);
  Ids const more = ids(40, 100);
  REQUIRE(cache.reserve(open, 8));
  auto const referenced = cache.usage().pool[0].referenced;
  cache.clear();
  CHECK(cache.check_invariants() == "");
  CHECK(cache.usage().pool[0].referenced == referenced);
  CHECK(cache.usage().pool[0].cached == 0);
  for (hs::TokenId const from : {0U, 100U, 300U})
    CHECK(cache.lookup(prompt(ids(9, from))).reason == hs::MissReason::cold);
  cache.commit(open, hs::Committed::of_tokens(std::span(more).subspan(9, 8)));
  Ids const own = ids(40);
  REQUIRE(advance(cache, s, own, 20));
  CHECK(cache.check_invariants() == "");
  cache.begin_step();
  // What comes after the loss cannot be found: its prefix has a hole.
  CHECK(cache.lookup(prompt(own)).joint == 0);
  CHECK(cache.lookup(prompt(own)).recurrent == 28);
  CHECK(cache.lookup(prompt(own)).reason == hs::MissReason::attention);
  cache.release(s);
  cache.release(open);
  cache.clear();
  CHECK(cache.usage().pool[0].keyless == 60);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("page 0 is a page") {
  auto cache = s1(20);
  hs::SequenceHandle const s = start(cache, ids(3));
  CHECK(cache.blocks(s)[0].value == 0);
  CHECK(cache.organization().attention_unit(cache.blocks(s)[0], 0) == 0);
  CHECK(cache.references(hs::AttentionHandle{0}) == 1);
  CHECK(cache.organization().attention_unit(hs::AttentionHandle{}, 0) == -1);
  CHECK(cache.organization().conv_line(hs::StateHandle{}, 0) == -1);
}

TEST_CASE("Granite's nine groups: a state is whole or gone") {
  S2 cache(hs::ConvSlabPacked<>(small_layout(granite_like()), 60));
  hs::SequenceHandle const s = start(cache, ids(9));
  auto const& o = cache.organization();
  hs::StateHandle const state = cache.states(s).back().state;
  std::set<std::int64_t> pages, lines;
  for (int g = 0; g < 9; ++g) {
    pages.insert(o.ssm_page(state, g, 0));
    lines.insert(o.conv_line(state, g));
  }
  CHECK(pages.size() == 9);
  CHECK(lines.size() == 9);
  // Attention: one unit a block, held by both groups' layers.
  CHECK(cache.usage().pool[0].attention_referenced == 3);
  CHECK(cache.usage().pool[0].ssm_referenced == 27);  // states at 4, 8 and 9
  CHECK(cache.usage().pool[0].conv_referenced == 2);  // 27 slots of 16
  cache.release(s);
  cache.begin_step();
  CHECK(cache.lookup(prompt(ids(9))).joint == 8);
  // Taking one member page of the checkpoint at 8 (the oldest in the list after the blocks).
  hs::StateHandle const deep = cache.checkpoint(cache.lookup(prompt(ids(9))));
  cache.invalidate(deep);
  CHECK(cache.lookup(prompt(ids(9))).joint == 4);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("tensor parallel 2 halves the members and not the rules") {
  hs::ModelGeometry m = falcon_like();
  m.kv_heads = 2;
  m.ssm_heads = 12;
  hs::ModelGeometry const half = hs::with_tensor_parallel(m, 2);
  hs::StateLayout const whole_layout = small_layout(m), half_layout = small_layout(half);
  CHECK(half_layout.kv_bytes_per_token() * 2 == whole_layout.kv_bytes_per_token());
  CHECK(half_layout.ssm_bytes() * 2 == whole_layout.ssm_bytes());
  S2 a(hs::ConvSlabPacked<>(whole_layout, 40)), b(hs::ConvSlabPacked<>(half_layout, 40));
  for (auto* cache : {&a, &b}) {
    serve(*cache, ids(9));
    CHECK(cache->lookup(prompt(ids(9))).joint == 8);
  }
  CHECK(a.usage().pool[0].cached == b.usage().pool[0].cached);
  CHECK(b.usage().allocated * 2 == a.usage().allocated);
}

TEST_CASE("two caches never interfere") {
  auto a = s2(40), b = s2(40);
  serve(a, ids(9));
  CHECK(b.lookup(prompt(ids(9))).reason == hs::MissReason::cold);
  CHECK(b.current_step() == 0);
  hs::SequenceHandle const s = start(b, ids(9));
  a.clear();
  CHECK(b.lookup(prompt(ids(9))).joint == 8);
  CHECK(b.references(b.blocks(s)[0]) == 1);
  auto moved = std::move(b);
  CHECK(moved.lookup(prompt(ids(9))).joint == 8);
  CHECK(moved.check_invariants() == "");
}

// --- fork ----------------------------------------------------------------------------------------

TEST_CASE("fork: full blocks are shared, the partial one is copied once") {
  auto cache = s2(60);
  hs::SequenceHandle const parent = start(cache, ids(10));
  Ids const t = ids(60);
  hs::StateHandle const source = cache.states(parent).back().state;
  hs::AttentionHandle const partial = cache.blocks(parent)[2];
  hs::Admission const a = cache.fork(parent, 5);
  REQUIRE(a);
  CHECK(cache.requester(a.sequence) == 5);
  CHECK(cache.position(a.sequence) == 10);
  CHECK(cache.source(a.sequence) == source);
  CHECK(cache.copies().empty());
  CHECK(cache.references(source) == 2);
  CHECK(cache.references(partial) == 2);
  // Until the child has read the source, the parent writes elsewhere too.
  REQUIRE(cache.reserve(parent, 1));
  CHECK(cache.states(parent).back().state != source);
  CHECK(cache.copies().empty());
  REQUIRE(cache.reserve(a.sequence, 1));
  CHECK(cache.states(a.sequence).back().state != source);
  CHECK(cache.states(a.sequence).back().state != cache.states(parent).back().state);
  REQUIRE(cache.copies().size() == 1);
  hs::BlockCopy const copy = cache.copies()[0];
  CHECK(copy.from == partial);
  CHECK(copy.to == cache.blocks(a.sequence)[2]);
  CHECK(copy.to != copy.from);
  CHECK(copy.tokens == 2);
  CHECK(copy.bytes == 2 * 64);
  CHECK(cache.check_invariants() == "");
  cache.abort(a.sequence);  // takes the copy back
  CHECK(cache.copies().empty());
  CHECK(cache.blocks(a.sequence)[2] == partial);
  REQUIRE(cache.reserve(a.sequence, 1));
  REQUIRE(cache.copies().size() == 1);
  cache.commit(parent, hs::Committed::of_tokens(std::span(t).subspan(10, 1)));
  cache.commit(a.sequence, hs::Committed::of_tokens(std::span(t).subspan(50, 1)));
  cache.begin_step();
  CHECK(cache.copies().empty());
  REQUIRE(advance(cache, parent, t, 1));
  Ids other = ids(60, 40);
  REQUIRE(advance(cache, a.sequence, other, 1));
  CHECK(cache.copies().empty());
  CHECK(cache.references(partial) == 1);
  CHECK(cache.check_invariants() == "");
  cache.begin_step();
  // Both ends are found under their own tokens.
  CHECK(cache.lookup(prompt(ids(13))).joint == 12);
  Ids forked = ids(10);
  forked.push_back(50);
  forked.push_back(other[11]);
  forked.push_back(0);
  CHECK(cache.lookup(prompt(forked)).joint == 12);
  cache.release(parent);
  cache.release(a.sequence);
  CHECK(cache.usage().pool[0].referenced == 0);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("fork on a boundary copies nothing; a chain of forks; the parent may go first") {
  auto cache = s2(60);
  hs::SequenceHandle const parent = start(cache, ids(8));
  hs::Admission const on_grid = cache.fork(parent, 2);
  REQUIRE(cache.reserve(on_grid.sequence, 1));
  CHECK(cache.copies().empty());
  CHECK(cache.blocks(on_grid.sequence).size() == 3);
  cache.release(on_grid.sequence);
  Ids const t = ids(40);
  REQUIRE(advance(cache, parent, t, 2));
  cache.begin_step();
  hs::Admission const child = cache.fork(parent, 2);
  hs::Admission const grandchild = cache.fork(child.sequence, 3);
  hs::AttentionHandle const partial = cache.blocks(parent)[2];
  CHECK(cache.references(partial) == 3);
  cache.release(parent);  // before the first step of either
  CHECK(cache.references(partial) == 2);
  CHECK(cache.check_invariants() == "");
  cache.release(child.sequence);
  CHECK(cache.references(partial) == 1);
  REQUIRE(cache.reserve(grandchild.sequence, 1));
  REQUIRE(cache.copies().size() == 1);
  CHECK(cache.copies()[0].from == partial);
  cache.commit(grandchild.sequence, hs::Committed::of_tokens(std::span(t).subspan(10, 1)));
  cache.begin_step();
  REQUIRE(advance(cache, grandchild.sequence, t, 1));
  CHECK(cache.check_invariants() == "");
  cache.release(grandchild.sequence);
  CHECK(cache.usage().pool[0].referenced == 0);
  // The working state of a lone child is its own by now.
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a child never inherits attention that its parent re-uses past its position") {
  hs::CacheOptions o;
  o.reuse_beyond_joint = true;
  S1 cache(hs::RecurrentPaged<>(small_layout(falcon_like(), 4, 12), 60), o);
  serve(cache, ids(11));
  hs::Admission const a = cache.admit(prompt(ids(11)), {1, 0});
  REQUIRE(a);
  CHECK(cache.position(a.sequence) == 0);
  CHECK(cache.kv_valid_until(a.sequence) == 8);
  Ids const t = ids(11);
  REQUIRE(advance(cache, a.sequence, t, 6));
  CHECK(cache.blocks(a.sequence).size() == 2);
  hs::Admission const child = cache.fork(a.sequence, 2);
  CHECK(cache.kv_valid_until(child.sequence) == 4);
  REQUIRE(cache.reserve(child.sequence, 1));
  REQUIRE(cache.copies().size() == 1);
  CHECK(cache.copies()[0].from == cache.blocks(a.sequence)[1]);
  CHECK(cache.blocks(child.sequence)[1] != cache.blocks(a.sequence)[1]);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("forks are refused without a free handle, and copies never overrun their list") {
  hs::CacheOptions o;
  o.max_sequences = 2;
  auto cache = s1(60, o);
  hs::SequenceHandle const parent = start(cache, ids(6));
  Ids const t = ids(20);
  hs::Admission const child = cache.fork(parent, 2);
  CHECK(cache.fork(parent, 3).refusal == hs::Refusal::sequences);
  cache.release(child.sequence);
  int copies = 0;
  for (int i = 0; i < 5; ++i) {  // many children within one step
    hs::Admission const c = cache.fork(parent, 2);
    REQUIRE(c);
    hs::Shortage const r = cache.reserve(c.sequence, 1);
    if (r) {
      cache.commit(c.sequence, hs::Committed::of_tokens(std::span(t).subspan(6, 1)));
      ++copies;
    } else {
      CHECK(r.refusal == hs::Refusal::wait_pending);
    }
    cache.release(c.sequence);
    REQUIRE(cache.check_invariants() == "");
  }
  CHECK(copies == 2);
  CHECK(cache.copies().size() == 2);
}

// --- fences --------------------------------------------------------------------------------------

TEST_CASE("with fences nothing is taken before its step completes; published objects are adopted") {
  auto cache = s1(30, with_fences());
  hs::Step const step = cache.begin_step();
  hs::Admission const a = cache.admit(prompt(ids(9)), {1, 0});
  REQUIRE(advance(cache, a.sequence, ids(9), 9));
  cache.begin_step();
  cache.release(a.sequence);
  hs::Units const used = 3 + 3 * 4;
  CHECK(cache.available()[0] == 30 - used);
  CHECK(cache.usage().pool[0].fenced == used);
  CHECK(cache.usage().pool[0].cached == 0);
  CHECK(cache.check_invariants() == "");
  // Found and adopted straight from behind the fence.
  hs::Match const m = cache.lookup(prompt(ids(9)));
  CHECK(m.joint == 8);
  CHECK(cache.published_step(cache.checkpoint(m)) == step);
  hs::Admission const b = cache.admit(prompt(ids(9)), {2, 0});
  REQUIRE(b);
  CHECK(cache.position(b.sequence) == 8);
  CHECK(cache.usage().pool[0].fenced == used - 2 - 4);
  CHECK(cache.available()[0] == 30 - used);
  CHECK(cache.check_invariants() == "");
  cache.complete(cache.current_step());  // what is in use stays in use
  CHECK(cache.references(cache.states(b.sequence)[0].state) == 1);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a head that waits for a fence is told so and admitted after it") {
  auto cache = s1(16, with_fences());
  cache.begin_step();
  hs::Admission const a = cache.admit(prompt(ids(9)), {1, 0});
  REQUIRE(advance(cache, a.sequence, ids(9), 9));
  hs::Step const last = cache.begin_step();
  // Others run: wait_units while the units are in use, wait_fence once a fence will free them.
  Ids const big = ids(16, 70);
  CHECK(cache.admit(prompt(big, 9), {3, 0}).refusal == hs::Refusal::wait_units);
  cache.release(a.sequence);
  for (int i = 0; i < 2; ++i) {  // nothing runs: it waits and is not refused for good
    CHECK(cache.admit(prompt(big, 9), {3, 0}).refusal == hs::Refusal::wait_fence);
    cache.complete(last - 1);
  }
  cache.complete(last);
  CHECK(cache.usage().pool[0].fenced == 0);
  CHECK(cache.check_invariants() == "");
  hs::Admission const now = cache.admit(prompt(big, 9), {3, 0});
  REQUIRE(now);
  CHECK(cache.reserve(now.sequence, 4));
  // A reserve waits for a fence as well.
  cache.abort(now.sequence);
  CHECK(cache.reserve(now.sequence, 16).refusal != hs::Refusal::none);
}

TEST_CASE("a fenced slab stays where it is until its step completes") {
  auto cache = s2(20, with_fences());
  hs::SequenceHandle const s = start(cache, ids(5));
  auto const slots = static_cast<std::int32_t>(cache.organization().slabs().slots());
  hs::UnitIndex const slab{static_cast<std::int32_t>(
      cache.organization().conv_line(cache.states(s)[0].state, 0) / slots)};
  cache.release(s);
  CHECK_FALSE(cache.organization().pool(0).listed(slab));
  CHECK(cache.check_invariants() == "");
  cache.complete(cache.current_step());
  CHECK(cache.organization().pool(0).listed(slab));
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a sequence alone may drop the cache behind fences") {
  // The superseded published state is fenced when everything is forgotten: it must survive that.
  auto cache = s2(13, with_fences());
  Ids const t = ids(40);
  hs::Admission const a = cache.admit(prompt(ids(1)), {1, 20});
  REQUIRE(a);
  for (hs::Tokens n = 0; n < 40; ++n) {
    hs::Step const step = cache.begin_step();
    if (!advance(cache, a.sequence, t, 1)) break;
    REQUIRE(cache.check_invariants() == "");
    if (n % 3 == 2) cache.complete(step - 1);
  }
  CHECK(cache.position(a.sequence) >= 12);
  cache.release(a.sequence);
  cache.complete(cache.current_step());
  CHECK(cache.check_invariants() == "");
}

// --- answers -------------------------------------------------------------------------------------

TEST_CASE("what a step publishes is pending until the next") {
  auto cache = s1(40);
  cache.begin_step();
  hs::Admission const a = cache.admit(prompt(ids(9)), {1, 0});
  Ids const t = ids(9);
  REQUIRE(advance(cache, a.sequence, t, 9));
  hs::Match const m = cache.lookup(prompt(ids(9)));
  CHECK(m.joint == 8);
  CHECK(m.pending);
  CHECK(m.settled == 0);
  hs::Admission const b = cache.admit(prompt(ids(9)), {2, 0});
  CHECK(b.refusal == hs::Refusal::wait_pending);
  CHECK(cache.counters().waits_for_pending == 1);
  CHECK(cache.running() == 1);
  cache.begin_step();
  CHECK_FALSE(cache.lookup(prompt(ids(9))).pending);
  CHECK(cache.admit(prompt(ids(9)), {2, 0}));
}

TEST_CASE("every refusal names its reason") {
  hs::CacheOptions o;
  o.max_sequences = 2;
  o.max_sequence_tokens = 16;
  auto cache = s1(30, o);
  CHECK(cache.admit(prompt(ids(5)), {1, 17}).refusal == hs::Refusal::too_long);
  CHECK(cache.admit(prompt(ids(5)), {1, 400}).refusal == hs::Refusal::never_fits);
  hs::SequenceHandle const s = start(cache, ids(16));
  Ids const t = ids(17);
  CHECK(cache.reserve(s, 1).refusal == hs::Refusal::too_long);
  hs::FixedHeadroom const gate{{{1000, 0}}};
  hs::Admission const gated = cache.admit(prompt(ids(5, 50)), {2, 0}, gate);
  CHECK(gated.refusal == hs::Refusal::wait_units);
  CHECK(gated.pool == 0);
  CHECK(gated.need[0] == 2 + 2 * 4);
  CHECK(gated.available[0] == cache.available()[0]);
  REQUIRE(cache.admit(prompt(ids(2, 50)), {2, 0}));
  CHECK(cache.admit(prompt(ids(2, 60)), {3, 0}).refusal == hs::Refusal::sequences);
  CHECK(cache.counters().refusals == 4);
  // The dual pool names the pool that is short.
  D0 dual(hs::NativeDualPool<>(small_layout(), {{40, 2}}, {4, 4}));
  hs::SequenceHandle const d = start(dual, ids(3));
  hs::Admission const short_of_states = dual.admit(prompt(ids(5, 50)), {2, 0});
  CHECK(short_of_states.refusal == hs::Refusal::wait_units);
  CHECK(short_of_states.pool == 1);
  CHECK(short_of_states.need[1] == 2);
  CHECK(short_of_states.available[1] == 1);
  dual.release(d);
}

TEST_CASE("every miss names its reason") {
  S1 cache(hs::RecurrentPaged<>(small_layout(falcon_like(), 4, 8), 60));
  Ids const t = ids(20);
  CHECK(cache.lookup(prompt(t)).reason == hs::MissReason::cold);
  serve(cache, ids(7));  // a block, no checkpoint
  CHECK(cache.lookup(prompt(t)).reason == hs::MissReason::checkpoint);
  CHECK(cache.lookup(prompt(t)).attention == 0);
  CHECK(cache.lookup(prompt(t)).raw == 4);
  serve(cache, ids(17));
  CHECK(cache.lookup(prompt(t)).reason == hs::MissReason::none);
  CHECK(cache.lookup(prompt(t)).joint == 16);
  cache.invalidate(cache.checkpoint(cache.lookup(prompt(t))));
  CHECK(cache.lookup(prompt(t)).reason == hs::MissReason::checkpoint);
  CHECK(cache.lookup(prompt(t)).attention == 16);
  CHECK(cache.lookup(prompt(t)).joint == 8);
  // A hole in the attention: the checkpoint behind it cannot be used.
  hs::Match const m = cache.lookup(prompt(t));
  hs::NodeIndex const first{cache.index()[m.joint_node].parent};
  while (cache.index()[first].oldest_unit >= 0)
    cache.invalidate(hs::AttentionHandle{cache.index()[first].oldest_unit});
  CHECK(cache.lookup(prompt(t)).reason == hs::MissReason::attention);
  CHECK(cache.lookup(prompt(t)).recurrent == 8);
  CHECK(cache.lookup(prompt(t)).joint == 0);
  CHECK(cache.lookup(prompt(t)).raw == 0);
}

TEST_CASE("invalidate a prefix from a position; invalidate_since a failed step") {
  auto cache = s1(60);
  serve(cache, ids(17), 0, 4);
  cache.invalidate(prompt(ids(17)), 8);
  CHECK(cache.lookup(prompt(ids(17))).joint == 8);
  CHECK(cache.lookup(prompt(ids(17))).raw == 8);
  CHECK(cache.check_invariants() == "");
  cache.clear();
  hs::SequenceHandle const s = start(cache, ids(9));
  hs::Step const failed = cache.begin_step();
  Ids const t = ids(30);
  REQUIRE(advance(cache, s, t, 8));
  cache.invalidate_since(failed);
  cache.preempt(s);
  CHECK(cache.check_invariants() == "");
  cache.begin_step();
  CHECK(cache.lookup(prompt(ids(18))).joint == 8);
  CHECK(cache.lookup(prompt(ids(18))).raw == 8);
  CHECK(cache.lookup(prompt(ids(18))).recurrent == 8);
}

// --- demand --------------------------------------------------------------------------------------

TEST_CASE("enter counts distinct requesters, exits and splits") {
  auto cache = s1(60);
  Ids const base = ids(8);
  auto fork_of = [&](hs::TokenId tail) {
    Ids t = base;
    for (hs::TokenId i = 0; i < 4; ++i) t.push_back(tail + i);
    return t;
  };
  hs::Entry e = cache.enter(prompt(fork_of(100)), 1);
  CHECK(e.known == 0);
  CHECK_FALSE(e.split);
  e = cache.enter(prompt(fork_of(100)), 1);  // all known: it leaves nothing
  CHECK(e.known == 12);
  CHECK_FALSE(e.split);
  e = cache.enter(prompt(fork_of(200)), 2);
  CHECK(e.known == 8);
  CHECK(e.split);
  e = cache.enter(prompt(base), 3);  // ends at the junction
  CHECK(e.known == 8);
  CHECK_FALSE(e.split);
  Ids const deeper = [&] {
    Ids t = fork_of(200);
    for (hs::TokenId i = 0; i < 4; ++i) t.push_back(300 + i);
    return t;
  }();
  e = cache.enter(prompt(deeper), 4);  // goes on below a leaf: no split
  CHECK(e.known == 12);
  CHECK_FALSE(e.split);
  auto const& index = cache.index();
  hs::NodeIndex at = index.find_root(0, {});
  at = index.find_child(at, {hs::block_key(std::span(base).first(4)), base.data()});
  at = index.find_child(at, {hs::block_key(std::span(base).subspan(4, 4)), base.data() + 4});
  REQUIRE(at);
  CHECK(index[at].kids == 2);
  CHECK(index[at].exits == 2);
  CHECK(index[at].distinct == 4);
  for (std::uint64_t r = 1; r < 9; ++r) cache.enter(prompt(base), r);
  CHECK(index[at].distinct == hs::max_counted_requesters + 1);
}

TEST_CASE("bare nodes are bounded: the least recently touched goes first") {
  hs::CacheOptions o;
  o.bare_nodes_per_unit = 0;
  S1 cache(hs::RecurrentPaged<>(small_layout(), 10), o);  // 21 nodes, one of them the root
  CHECK(cache.index().capacity() == 21);
  for (hs::TokenId i = 0; i < 20; ++i) cache.enter(prompt(ids(4, 100 * i)), 1);
  CHECK(cache.index().size() == 21);
  CHECK(cache.enter(prompt(ids(4, 0)), 1).known == 4);     // touched again
  CHECK(cache.enter(prompt(ids(4, 9000)), 1).known == 0);  // takes the place of 100
  CHECK(cache.index().size() == 21);
  CHECK(cache.enter(prompt(ids(4, 0)), 1).known == 4);
  CHECK(cache.enter(prompt(ids(4, 200)), 1).known == 4);
  CHECK(cache.enter(prompt(ids(4, 100)), 1).known == 0);
  CHECK(cache.check_invariants() == "");
  // A path longer than the table: what does not fit stays out.
  CHECK(cache.enter(prompt(ids(200, 50000)), 1).known == 0);
  CHECK(cache.index().size() == 21);
  CHECK(cache.check_invariants() == "");
  // Objects keep their nodes; nothing is lost to make room.
  serve(cache, ids(5, 777));
  for (hs::TokenId i = 0; i < 40; ++i) cache.enter(prompt(ids(8, 5000 + 100 * i)), 1);
  CHECK(cache.lookup(prompt(ids(5, 777))).joint == 4);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("batched reserve, commit and abort") {
  auto cache = s2(60);
  hs::SequenceHandle const a = start(cache, ids(5)), b = start(cache, ids(5, 100));
  Ids const ta = ids(40), tb = ids(40, 100);
  S2::ReserveRequest const step[] = {{a, 3}, {b, 3}, {a, 0}};
  CHECK(cache.reserve(std::span(step).first(2)) == 2);
  hs::SequenceHandle const both[] = {a, b};
  cache.abort(both);
  CHECK(cache.position(a) == 5);
  CHECK(cache.reserved(b) == 0);
  CHECK(cache.check_invariants() == "");
  CHECK(cache.reserve(std::span(step).first(2)) == 2);
  S2::CommitRequest const done[] = {{a, hs::Committed::of_tokens(std::span(ta).subspan(5, 3))},
                                    {b, hs::Committed::of_tokens(std::span(tb).subspan(5, 3))}};
  cache.commit(std::span(done));
  CHECK(cache.position(a) == 8);
  CHECK(cache.position(b) == 8);
  S2::ReserveRequest const too_much[] = {{a, 1}, {b, 4000}, {b, 1}};
  CHECK(cache.reserve(std::span(too_much)) == 1);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("extents name the bytes of a state, its slot included") {
  auto cache = s2(20);
  hs::SequenceHandle const s = start(cache, ids(3));
  int units = 0, slots = 0;
  cache.for_each_extent(cache.states(s)[0].state, [&](const hs::Extent& e) {
    if (e.carrier != 0) {
      ++slots;
      CHECK(e.bytes == 64);
      CHECK(e.offset / 256 == static_cast<hs::Bytes>(e.unit));
    } else {
      ++units;
      CHECK(e.bytes == 256);
      CHECK(e.offset == static_cast<hs::Bytes>(e.unit) * 256);
    }
  });
  CHECK(units == 3);
  CHECK(slots == 1);
}

TEST_CASE("bad options are one sentence") {
  hs::CacheOptions o;
  o.max_sequences = 0;
  CHECK(S1::create(hs::RecurrentPaged<>(small_layout(), 9), o).sentence().find("max_sequences") !=
        std::string::npos);
  CHECK_THROWS_AS(s1(9, o), hs::ConfigurationError);
  o = {};
  o.placement = {hs::PlacementKind::every_kth, 0};
  CHECK_FALSE(S1::create(hs::RecurrentPaged<>(small_layout(), 9), o));
  CHECK_FALSE(hs::RecurrentPaged<>::create(small_layout(), 0));
  CHECK_FALSE(hs::NativeDualPool<>::create(small_layout(), {{9, 0}}, {4, 4}));
  CHECK_FALSE(hs::NativeDualPool<>::create(small_layout(), {{9, 9}}, {4, 6}));
  CHECK_FALSE(hs::ConvSlabPacked<>::create(small_layout(), 0x7fffffffU));
}

TEST_CASE("retire gives back what the next reserve would, and keeps the source") {
  auto cache = s2(40, with_fences());
  hs::SequenceHandle const s = start(cache, ids(9));
  hs::StateHandle const working = cache.states(s).back().state;
  CHECK(cache.states(s).size() == 3);
  cache.retire(s);
  CHECK(cache.states(s).size() == 1);
  CHECK(cache.source(s) == working);
  CHECK(cache.usage().pool[0].fenced == 6);
  CHECK(cache.check_invariants() == "");
  cache.complete(cache.current_step());
  CHECK(cache.usage().pool[0].fenced == 0);
  cache.retire(s);  // nothing more to give back
  REQUIRE(cache.reserve(s, 1));
  CHECK(cache.source(s) == working);
  CHECK(cache.states(s).back().state == working);  // private: it goes on in place
  CHECK(cache.check_invariants() == "");
}
