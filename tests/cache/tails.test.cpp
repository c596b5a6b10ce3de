// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Tails: the last block of a sequence in quarters of a slab, here of one token each.

#include "support.hpp"

using namespace cache_test;

namespace {

using S1 = hs::JointCache<hs::RecurrentPaged<>>;

S1 with_tails(hs::Units units = 60, bool fences = false, std::uint32_t sequences = 16,
              hs::Tokens tail = 1) {
  hs::CacheOptions o;
  o.tail_tokens = tail;
  o.fences = fences;
  o.max_sequences = sequences;
  return S1(hs::RecurrentPaged<>(small_layout(), units), o);
}
/// Every prompt begins with another token: nothing is shared but slabs.
hs::SequenceHandle begin(S1& cache, hs::Tokens tokens, hs::TokenId first) {
  return start(cache, ids(tokens, first));
}
hs::AttentionHandle last(const S1& cache, hs::SequenceHandle s) { return cache.blocks(s).back(); }
hs::Tokens offset(const S1& cache, hs::SequenceHandle s) {
  return cache.place(last(cache, s)).offset;
}
std::int32_t slab(const S1& cache, hs::SequenceHandle s) {
  return cache.place(last(cache, s)).block.value;
}
bool grow(S1& cache, hs::SequenceHandle s, hs::TokenId first, hs::Tokens n = 1) {
  cache.begin_step();
  return advance(cache, s, ids(60, first), n);
}
/// Everything that a failed or undone reserve may not change.
struct Picture {
  std::vector<std::int32_t> list, row;
  hs::PoolUsage usage;
  hs::Units slabs, parts;
  hs::Bytes payload;
  std::size_t copies;

  Picture(const S1& cache, hs::SequenceHandle s)
      : usage(cache.usage().pool[0]),
        slabs(cache.tails().slabs()),
        parts(cache.tails().used_parts()),
        payload(cache.usage().attention_payload),
        copies(cache.copies().size()) {
    hs::UnitPool const& pool = cache.organization().pool(0);
    for (hs::UnitIndex u = pool.front(); u; u = pool.next(u)) list.push_back(u.value);
    for (hs::AttentionHandle a : cache.blocks(s)) row.push_back(a.value);
  }
  bool operator==(const Picture& o) const {
    return list == o.list && row == o.row && usage.referenced == o.usage.referenced &&
           usage.fenced == o.usage.fenced && slabs == o.slabs && parts == o.parts &&
           payload == o.payload && copies == o.copies;
  }
};

}  // namespace

TEST_CASE("tails of several sequences share a slab, first fit; usage counts it once") {
  S1 cache = with_tails();
  hs::SequenceHandle const a = begin(cache, 5, 0);
  hs::SequenceHandle const b = begin(cache, 6, 100);
  hs::SequenceHandle const c = begin(cache, 1, 200);
  CHECK(cache.blocks(a).size() == 2);
  CHECK(cache.place(cache.blocks(a)[0]).offset == 0);
  CHECK(cache.place(cache.blocks(a)[0]).block == cache.blocks(a)[0]);
  CHECK(offset(cache, a) == 0);
  CHECK(offset(cache, b) == 1);
  CHECK(offset(cache, c) == 3);
  CHECK(slab(cache, a) == slab(cache, b));
  CHECK(slab(cache, a) == slab(cache, c));
  CHECK(cache.tails().slabs() == 1);
  CHECK(cache.tails().used_parts() == 4);
  CHECK(cache.usage().pool[0].attention_referenced == 3);  // two full blocks and the slab
  CHECK(cache.usage().attention_payload == 12 * 64);
  hs::SequenceHandle const d = begin(cache, 1, 300);
  CHECK(slab(cache, d) != slab(cache, a));
  CHECK(cache.tails().slabs() == 2);
  CHECK(cache.check_invariants() == "");
  // A tail is nowhere to be found, and its page is keyless once the last quarter is free.
  int units = 0;
  cache.for_each_extent(last(cache, d), [&](const hs::Extent& e) {
    ++units;
    CHECK(e.unit == slab(cache, d));
    CHECK(e.carrier == 1);
  });
  CHECK(units == 1);
  CHECK(!cache.published(last(cache, d)));
  std::int32_t const page = slab(cache, d);
  cache.release(d);
  CHECK(cache.organization().pool(0).owner({page}) == hs::UnitOwner::none);
  cache.release(a);
  cache.release(b);
  cache.release(c);
  CHECK(cache.tails().slabs() == 0);
  CHECK(cache.usage().pool[0].attention_cached == 2);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a tail grows in place, and alone on its slab becomes the block without a copy") {
  S1 cache = with_tails();
  hs::SequenceHandle const a = begin(cache, 5, 0);
  hs::AttentionHandle const tail = last(cache, a);
  std::int32_t const page = slab(cache, a);
  REQUIRE(grow(cache, a, 0));
  REQUIRE(grow(cache, a, 0));
  CHECK(last(cache, a) == tail);
  CHECK(cache.tails().used_parts() == 3);
  CHECK(cache.counters().tails_grown == 2);
  REQUIRE(grow(cache, a, 0));
  CHECK(last(cache, a) == hs::AttentionHandle{page});
  CHECK(cache.tails().slabs() == 0);
  CHECK(cache.counters().tails_filled == 1);
  CHECK(cache.counters().tail_copies == 0);
  CHECK(cache.copies().empty());
  CHECK(cache.published(last(cache, a)));
  CHECK(cache.usage().attention_payload == 8 * 64);
  CHECK(cache.check_invariants() == "");
  cache.begin_step();
  CHECK(cache.lookup(prompt(ids(9))).joint == 8);
}

TEST_CASE("a blocked tail is copied to the first place that holds it; the old one stays a step") {
  S1 cache = with_tails();
  hs::SequenceHandle const a = begin(cache, 5, 0);
  hs::SequenceHandle const b = begin(cache, 5, 100);
  hs::AttentionHandle const before = last(cache, a);
  REQUIRE(grow(cache, a, 0));
  REQUIRE(cache.copies().size() == 1);
  hs::BlockCopy const copy = cache.copies()[0];
  CHECK(copy.from == before);
  CHECK(copy.to == last(cache, a));
  CHECK(copy.tokens == 1);
  CHECK(copy.bytes == 64);
  CHECK(offset(cache, a) == 2);
  CHECK(slab(cache, a) == slab(cache, b));
  CHECK(cache.counters().tail_copies == 1);
  CHECK(cache.counters().tail_copied_bytes == 64);
  CHECK(cache.references(before) == 1);  // the copy reads it
  CHECK(cache.tails().used_parts() == 4);
  CHECK(cache.check_invariants() == "");
  // With the next reserve the old place is free, and the first fit.
  REQUIRE(grow(cache, a, 0));  // three quarters: nowhere on this slab
  CHECK(cache.copies().size() == 1);
  CHECK(slab(cache, a) != slab(cache, b));
  REQUIRE(grow(cache, a, 0));  // alone there: no copy
  CHECK(cache.copies().empty());
  CHECK(cache.counters().tails_filled == 1);
  CHECK(cache.tails().used_parts() == 1);
  hs::SequenceHandle const c = begin(cache, 1, 200);
  CHECK(slab(cache, c) == slab(cache, b));
  CHECK(offset(cache, c) == 0);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a tail that fills its block beside others is copied to a page of its own") {
  S1 cache = with_tails();
  hs::SequenceHandle const a = begin(cache, 7, 0);
  hs::SequenceHandle const b = begin(cache, 5, 100);
  CHECK(slab(cache, a) == slab(cache, b));
  REQUIRE(grow(cache, a, 0, 6));  // a full block, a whole new one, and a tail of one
  REQUIRE(cache.copies().size() == 1);
  CHECK(cache.copies()[0].tokens == 3);
  CHECK(cache.blocks(a).size() == 4);
  CHECK(cache.copies()[0].to == cache.blocks(a)[1]);
  CHECK(cache.published(cache.blocks(a)[1]));
  CHECK(cache.published(cache.blocks(a)[2]));
  CHECK(!cache.published(last(cache, a)));
  CHECK(slab(cache, a) != slab(cache, b));  // the old place and b fill theirs
  CHECK(cache.check_invariants() == "");
  REQUIRE(grow(cache, b, 100, 2));
  CHECK(cache.check_invariants() == "");
  cache.begin_step();
  CHECK(cache.lookup(prompt(ids(13))).joint == 12);
}

TEST_CASE("abort undoes what a reserve did to a tail") {
  for (hs::Tokens n : {1U, 2U, 3U, 4U, 6U, 7U, 11U})
    for (bool beside : {false, true})
      for (bool fences : {false, true}) {
        S1 cache = with_tails(60, fences);
        hs::SequenceHandle const a = begin(cache, 5, 0);
        if (beside) begin(cache, 5, 100);
        cache.begin_step();
        cache.retire(a);
        cache.complete(cache.current_step());
        Picture const before(cache, a);
        REQUIRE(cache.reserve(a, n));
        CHECK(cache.check_invariants() == "");
        cache.abort(a);
        cache.complete(cache.current_step());
        Picture const after(cache, a);
        INFO(n << beside << fences);
        CHECK(after.row == before.row);
        CHECK(after.slabs == before.slabs);
        CHECK(after.parts == before.parts);
        CHECK(after.copies == before.copies);
        CHECK(after.payload == before.payload);
        CHECK(after.usage.referenced == before.usage.referenced);
        CHECK(cache.check_invariants() == "");
        // And again, to the end.
        REQUIRE(advance(cache, a, ids(60), n));
        CHECK(cache.check_invariants() == "");
        cache.release(a);
        CHECK(cache.check_invariants() == "");
      }
}

TEST_CASE("a token that its quarter still holds takes nothing, and its abort undoes nothing") {
  S1 cache = with_tails(60, false, 16, 2);
  hs::SequenceHandle const a = begin(cache, 5, 0);
  REQUIRE(grow(cache, a, 0));
  CHECK(cache.counters().tails_grown + cache.counters().tails_filled == 0);
  CHECK(cache.counters().reserves_without_need == 1);
  REQUIRE(grow(cache, a, 0));  // the second half: its slab is its block now
  CHECK(cache.counters().tails_filled == 1);
  cache.begin_step();
  Picture const before(cache, a);
  REQUIRE(cache.reserve(a, 1));
  cache.abort(a);
  CHECK(Picture(cache, a) == before);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("a reserve that fails changes nothing, and a blocked tail may be what it lacks") {
  S1 cache = with_tails(14);
  hs::SequenceHandle const a = begin(cache, 3, 0);
  hs::SequenceHandle const b = begin(cache, 1, 100);
  CHECK(slab(cache, a) == slab(cache, b));
  hs::SequenceHandle const c = begin(cache, 2, 200);
  CHECK(cache.available()[0] == 0);  // two slabs, and three states of four pages
  cache.begin_step();
  Picture const before(cache, a);
  hs::Shortage const why = cache.reserve(a, 1);
  CHECK(!why);
  CHECK(Picture(cache, a) == before);
  CHECK(cache.check_invariants() == "");
  cache.release(b);
  cache.release(c);
  REQUIRE(cache.reserve(a, 1));  // alone on its slab now
  CHECK(cache.copies().empty());
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("preemption and release give quarters back, a fence holds them") {
  S1 cache = with_tails(60, true);
  hs::SequenceHandle const a = begin(cache, 5, 0);
  hs::SequenceHandle const b = begin(cache, 5, 100);
  std::int32_t const page = slab(cache, a);
  cache.complete(cache.current_step());
  cache.begin_step();
  cache.preempt(a);
  CHECK(cache.tails().used_parts() == 2);  // fenced
  hs::SequenceHandle const c = begin(cache, 5, 200);
  CHECK(slab(cache, c) == page);
  CHECK(offset(cache, c) == 2);
  CHECK(cache.check_invariants() == "");
  cache.complete(cache.current_step());
  CHECK(cache.tails().used_parts() == 2);
  cache.release(b);
  cache.release(c);
  CHECK(cache.tails().slabs() == 1);
  CHECK(cache.usage().pool[0].attention_referenced == 0);
  CHECK(cache.usage().pool[0].fenced > 0);
  CHECK(cache.check_invariants() == "");
  cache.complete(cache.current_step());
  CHECK(cache.tails().slabs() == 0);
  CHECK(cache.usage().pool[0].fenced == 0);
  cache.begin_step();
  hs::Admission const again = cache.resume(a, prompt(ids(6)), {1, 0});
  REQUIRE(again);
  CHECK(cache.position(a) == 4);
  REQUIRE(advance(cache, a, ids(6), 2));
  CHECK(cache.tails().used_parts() == 2);
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("the need of a newcomer counts its tail as a place that is there, or as one block") {
  S1 cache = with_tails();
  hs::Admission const first = cache.admit(prompt(ids(6)), {1, 0});
  REQUIRE(first);
  hs::Units const state = first.need[0] - 2;
  REQUIRE(advance(cache, first.sequence, ids(6), 6));
  cache.begin_step();
  hs::Admission const fits = cache.admit(prompt(ids(6, 100)), {2, 0});
  REQUIRE(fits);
  CHECK(fits.need[0] == 1 + state);
  hs::Admission const wide = cache.admit(prompt(ids(7, 200)), {3, 0});  // three quarters
  REQUIRE(wide);
  CHECK(wide.need[0] == 2 + state);
  hs::Admission const whole = cache.admit(prompt(ids(8, 300)), {4, 0});
  REQUIRE(whole);
  CHECK(whole.need[0] == 2 + state);
  // One place more must exist for the step in which a tail moves.
  S1 tight = with_tails(10);
  CHECK(tight.fits_alone(4).refusal == hs::Refusal::none);
  CHECK(tight.fits_alone(5).refusal == hs::Refusal::never_fits);
  S1 without(hs::RecurrentPaged<>(small_layout(), 10), {});
  CHECK(without.fits_alone(5).refusal == hs::Refusal::none);
}

TEST_CASE("a child copies the tail that it shares; a shared tail is never taken over in place") {
  S1 cache = with_tails();
  hs::SequenceHandle const parent = begin(cache, 7, 0);
  hs::AttentionHandle const tail = last(cache, parent);
  hs::Admission const child = cache.fork(parent, 2);
  REQUIRE(child);
  CHECK(cache.references(tail) == 2);
  cache.begin_step();
  REQUIRE(cache.reserve(parent, 1));  // full: alone on its slab, but the child reads it
  REQUIRE(cache.copies().size() == 1);
  CHECK(cache.copies()[0].from == tail);
  REQUIRE(cache.reserve(child.sequence, 2));
  REQUIRE(cache.copies().size() == 2);
  CHECK(cache.copies()[1].from == tail);
  CHECK(cache.copies()[1].to == cache.blocks(child.sequence)[1]);
  CHECK(cache.counters().tail_copies == 1);  // the fork's own copy is no move
  CHECK(cache.check_invariants() == "");
  cache.abort(child.sequence);
  CHECK(last(cache, child.sequence) == tail);
  REQUIRE(cache.reserve(child.sequence, 1));
  cache.commit(parent, hs::Committed::of_tokens(ids(1, 7)));
  cache.commit(child.sequence, hs::Committed::of_tokens(ids(1, 70)));
  CHECK(cache.check_invariants() == "");
  REQUIRE(grow(cache, parent, 0));
  REQUIRE(grow(cache, child.sequence, 63));
  CHECK(cache.tails().used_parts() == 2);  // the place that both copied from is free again
  CHECK(cache.check_invariants() == "");
}

TEST_CASE("moves never overrun the list of copies") {
  S1 cache = with_tails(60, false, 2);
  hs::SequenceHandle const a = begin(cache, 5, 0);
  hs::SequenceHandle const b = begin(cache, 5, 100);
  cache.begin_step();
  int moves = 0;
  for (int i = 0; i < 12; ++i) {  // many reserves within one step
    hs::SequenceHandle const s = i % 2 == 0 ? a : b;
    hs::Shortage const r = cache.reserve(s, 1);
    if (!r) {
      CHECK(r.refusal == hs::Refusal::wait_pending);
      ++moves;
      continue;
    }
    hs::TokenId const first = i % 2 == 0 ? 0 : 100;
    cache.commit(s, hs::Committed::of_tokens(ids(1, first + cache.position(s))));
    REQUIRE(cache.check_invariants() == "");
  }
  CHECK(moves > 0);
  CHECK(cache.copies().size() == 2);
}

TEST_CASE("parts that do not divide a block are refused with the numbers") {
  hs::CacheOptions o;
  hs::RecurrentPaged<> const organization(small_layout(), 20);
  o.tail_tokens = 3;
  CHECK(S1::problem(organization, o) ==
        "JointCache: tails in parts of 3 tokens do not fit attention blocks of 4 tokens; a block "
        "must be a multiple of the part, 2 to 64 of them");
  o.tail_tokens = 4;
  CHECK(S1::problem(organization, o).find("parts of 4 tokens") != std::string::npos);
  o.tail_tokens = 8;
  CHECK(!S1::problem(organization, o).empty());
  hs::RecurrentPaged<> const fine(small_layout(falcon_like(), 128, 128), 20);
  o.tail_tokens = 1;
  CHECK(!S1::problem(fine, o).empty());
  o.tail_tokens = 2;
  CHECK(S1::problem(fine, o).empty());
}
