// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "allocations.hpp"
#include "support.hpp"

using namespace cache_test;

namespace {

template <class Cache>
std::uint64_t everything(Cache cache) {
  Ids const a = ids(60), b = ids(60, 30), c = ids(60, 200);
  std::uint64_t const before = allocations.load();
  std::uint32_t turn = 0;
  for (int i = 0; i < 200; ++i) {
    cache.begin_step();
    Ids const& t = i % 3 == 0 ? a : i % 3 == 1 ? b : c;
    auto const n = static_cast<hs::Tokens>(1 + (turn = turn * 7 + 5) % 40);
    hs::Prompt const p = hs::Prompt::of_tokens(std::span(t).first(n), i % 2 == 0 ? 0 : 1);
    cache.enter(p, static_cast<std::uint64_t>(i));
    hs::Match const m = cache.lookup(p);
    hs::Admission const x = cache.admit(p, {1, 0}, hs::FixedHeadroom{}, &m);
    if (!x) {
      cache.complete(cache.current_step());
      continue;
    }
    while (cache.position(x.sequence) < n)
      if (!advance(cache, x.sequence, t, std::min(5U, n - cache.position(x.sequence)))) break;
    hs::Admission const child = cache.fork(x.sequence, 2);
    if (child && cache.reserve(child.sequence, 1)) cache.abort(child.sequence);
    if (child && advance(cache, child.sequence, t, 1)) cache.begin_step();
    if (child) cache.release(child.sequence);
    if (cache.reserve(x.sequence, 9)) cache.abort(x.sequence);
    if (i % 4 == 0) {
      cache.preempt(x.sequence);
      hs::Admission const again = cache.resume(x.sequence, p, {1, 0});
      if (again && cache.reserve(x.sequence, 1)) cache.abort(x.sequence);
    }
    cache.release(x.sequence);
    if (i % 31 == 0) cache.invalidate(p, 4);
    if (i % 43 == 0) cache.invalidate_since(cache.current_step());
    if (i % 67 == 0) cache.clear();
    static_cast<void>(cache.usage());
    static_cast<void>(cache.snapshot());
    cache.complete(cache.current_step());
  }
  CHECK(cache.counters().lost_blocks > 0);
  return allocations.load() - before;
}

template <class Organization, class Order>
void each(const hs::StateLayout& layout, auto units) {
  for (int i = 0; i < 4; ++i) {
    bool const fences = i % 2 == 1;
    hs::CacheOptions o;
    o.fences = fences;
    o.tail_tokens = i < 2 ? 0 : 1;
    o.max_sequences = 8;
    o.bare_nodes_per_unit = 1;  // nodes come and go as well
    o.reuse_beyond_joint = fences;
    CHECK(everything(hs::JointCache<Organization, Order>(Organization(layout, units), o)) == 0);
  }
}

// The hot path cannot throw: the concepts of the cache ask for noexcept, and these are beside them.
using Cache = hs::JointCache<hs::ConvSlabPacked<>>;
using View = const Cache&;
static_assert(noexcept(
    std::declval<Cache&>().reserve(std::declval<std::span<const Cache::ReserveRequest>>())));
static_assert(noexcept(
    std::declval<Cache&>().commit(std::declval<std::span<const Cache::CommitRequest>>(), 0)));
static_assert(
    noexcept(std::declval<Cache&>().abort(std::declval<std::span<const hs::SequenceHandle>>())));
static_assert(noexcept(std::declval<Cache&>().invalidate(hs::StateHandle{})));
static_assert(noexcept(std::declval<Cache&>().invalidate(hs::AttentionHandle{})));
static_assert(noexcept(std::declval<View>().snapshot()));
static_assert(noexcept(std::declval<View>().lookup(std::declval<const hs::Prompt&>())));
static_assert(noexcept(hs::block_key({})));

}  // namespace

TEST_CASE("nothing allocates after construction") {
  auto const layout = small_layout();
  auto const granite = small_layout(granite_like());
  each<hs::CoarsePage<>, hs::PaperOrder>(layout, 18U);
  each<hs::RecurrentPaged<>, hs::PaperOrder>(layout, 36U);
  each<hs::RecurrentPaged<>, hs::PathSafeLru>(layout, 36U);
  each<hs::ConvSlabPacked<>, hs::PaperOrder>(layout, 36U);
  each<hs::ConvSlabPacked<>, hs::PathSafeLru>(layout, 36U);
  each<hs::ConvSlabPacked<>, hs::GreedyDual>(layout, 36U);
  each<hs::ConvSlabPacked<>, hs::PaperOrder>(granite, 60U);
  each<hs::NativeDualPool<>, hs::PaperOrder>(layout, hs::PoolUnits{{18, 6}});
}
