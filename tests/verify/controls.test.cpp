// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The machinery that finds no mismatch notices every deliberate mistake, so that its zero means
// something.

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <utility>
#include <vector>

#include "verify/tiny_model.hpp"
#include "verify/verify.hpp"
#include "verify/verify_template.hpp"

using namespace hybridstate;
using namespace hybridstate::runtime;
using verify_tests::tiny;

namespace {

// --- deliberate mistakes -------------------------------------------------------------------------

template <class Cache>
bool adopts(const Cache& cache, const Chunk& c) {
  StateHandle const source = cache.source(c.sequence);
  return c.begin > 0 && source && cache.published(source);
}

/// The convolution state of an adopted checkpoint is not read: what its target held before is.
struct SkipConv {
  template <class Cache>
  void chunk(const Cache& cache, const Chunk& c, ForwardChunk& f) {
    if (adopts(cache, c)) f.source.lines = f.targets.front().row.lines;
  }
};

/// The first attention block of an adopted prefix is read where the second one lies. (If they
/// changed places, the same keys and values would be summed in another order, which is often lost
/// where inputs of linears are rounded to BF16.)
struct NeighbourBlock {
  std::deque<std::vector<std::int32_t>> tables;
  template <class Cache>
  void chunk(const Cache& cache, const Chunk& c, ForwardChunk& f) {
    if (!adopts(cache, c) || c.begin < 2 * cache.block_tokens()) return;
    auto& table = tables.emplace_back(f.blocks.begin(), f.blocks.end());
    table[0] = table[1];
    f.blocks = table;
  }
};

/// The member pages of an adopted state are read one page off.
struct NeighbourMember {
  std::deque<std::vector<std::int32_t>> tables;
  template <class Cache>
  void chunk(const Cache& cache, const Chunk& c, ForwardChunk& f) {
    if (!adopts(cache, c) || f.source.pages.size() < 2) return;
    auto& table = tables.emplace_back(f.source.pages.begin(), f.source.pages.end());
    std::rotate(table.begin(), table.begin() + 1, table.end());
    f.source.pages = table;
  }
};

/// A boundary's state is stored one token before the boundary.
struct PublishEarly {
  std::deque<std::vector<StateTarget>> lists;
  template <class Cache>
  void chunk(const Cache&, const Chunk& c, ForwardChunk& f) {
    auto& list = lists.emplace_back(f.targets.begin(), f.targets.end());
    for (std::size_t i = 0; i + 1 < list.size(); ++i)
      if (list[i].boundary > c.begin + 1) --list[i].boundary;
    f.targets = list;
  }
};

/// Keys and values that somebody else computed are written again, with the same values.
struct WriteBelow {
  template <class Cache>
  void chunk(const Cache&, const Chunk&, ForwardChunk& f) {
    f.kv_valid_until = 0;
  }
};

/// Keys and values of a chunk's last block land in the request's first block.
struct StrayStore {
  std::deque<std::vector<std::int32_t>> tables;
  template <class Cache>
  void chunk(const Cache& cache, const Chunk& c, ForwardChunk& f) {
    if (c.begin < cache.block_tokens()) return;
    auto& table = tables.emplace_back(f.blocks.begin(), f.blocks.end());
    table[(c.begin + c.count - 1) / cache.block_tokens()] = table.front();
    f.blocks = table;
  }
};

/// A slot of a slab is handed out again while the checkpoint in it can still be found: pairs of
/// slots share their bytes.
class SharedSlots : public ConvSlabPacked<> {
 public:
  using ConvSlabPacked<>::ConvSlabPacked;
  std::int64_t conv_line(StateHandle s, int group) const noexcept {
    std::int64_t const line = ConvSlabPacked<>::conv_line(s, group);
    return line < 0 ? line : line / 2 * 2;
  }
};

verify::Counts serve_s2(const verify::Scenario& s, const std::vector<verify::Reference>& references,
                        auto tamper) {
  StateLayout const layout = layout_of(s, tiny().model().config());
  return verify_in(
      s, tiny().model(), references, {},
      [&](PoolUnits units) { return ConvSlabPacked<>(layout, units[0]); }, std::move(tamper));
}

/// The first seed at which the mistake shows; what it showed.
template <class Tamper>
verify::Counts first_mismatch(void (*change)(verify::Scenario&) = nullptr) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    verify::Scenario s =
        verify::random_scenario(tiny().model().config(), seed, {Arm::s2, Carry::bf16_per_token});
    if (change != nullptr) change(s);
    auto const references = references_of(s, tiny().model());
    verify::Counts const c = serve_s2(s, references, Tamper{});
    if (c.mismatches() == 0) continue;
    INFO(describe(s));
    CHECK(serve_s2(s, references, verify::Honest{}).mismatches() == 0);
    return c;
  }
  return {};
}

}  // namespace

TEST_CASE("a store outside of a chunk's own units is noticed") {
  if (test_scale() < 0.5) return;  // nothing for a sanitizer to see
  verify::Counts const c = first_mismatch<StrayStore>();
  CHECK(c.forbidden_writes > 0);
}
TEST_CASE("a convolution state that is not adopted is noticed") {
  if (test_scale() < 0.5) return;  // nothing for a sanitizer to see
  verify::Counts const c = first_mismatch<SkipConv>();
  CHECK(c.different_logits > 0);
}
TEST_CASE("a neighbour's attention block is noticed") {
  if (test_scale() < 0.5) return;  // nothing for a sanitizer to see
  verify::Counts const c = first_mismatch<NeighbourBlock>();
  CHECK(c.different_logits > 0);
}
TEST_CASE("a neighbour's member page is noticed") {
  if (test_scale() < 0.5) return;  // nothing for a sanitizer to see
  verify::Counts const c = first_mismatch<NeighbourMember>();
  CHECK(c.different_logits > 0);
}
TEST_CASE("a checkpoint published one token early is noticed") {
  if (test_scale() < 0.5) return;  // nothing for a sanitizer to see
  verify::Counts const c = first_mismatch<PublishEarly>([](verify::Scenario& s) {
    s.token_budget = 300;
    s.placement = {};
  });
  CHECK(c.different_checkpoints > 0);
}
TEST_CASE("a write below kv_valid_until is noticed, even of equal values") {
  verify::Counts const c =
      first_mismatch<WriteBelow>([](verify::Scenario& s) { s.reuse_beyond_joint = true; });
  CHECK(c.forbidden_writes > 0);
}
TEST_CASE("a slab slot that is reused without invalidating its checkpoint is noticed") {
  if (test_scale() < 0.5) return;  // nothing for a sanitizer to see
  std::uint64_t different = 0;
  for (std::uint64_t seed = 1; seed <= 60 && different == 0; ++seed) {
    verify::Scenario s =
        verify::random_scenario(tiny().model().config(), seed, {Arm::s2, Carry::bf16_per_token});
    if (s.block_tokens != 128) continue;  // 8-KiB pages: two slots a slab
    auto const references = references_of(s, tiny().model());
    StateLayout const layout = layout_of(s, tiny().model().config());
    REQUIRE(layout.slots_per_slab() == 2);
    verify::Counts const c = verify_in(s, tiny().model(), references, {}, [&](PoolUnits units) {
      return SharedSlots(layout, units[0]);
    });
    different = c.different_checkpoints;
    if (different > 0) {
      INFO(describe(s));
      CHECK(serve_s2(s, references, verify::Honest{}).mismatches() == 0);
    }
  }
  CHECK(different > 0);
}

TEST_CASE("every condition that is given up shows, and none shows when all hold") {
  if (test_scale() < 0.5) {
    MESSAGE("skipped: HYBRIDSTATE_TEST_SCALE");
    return;
  }
  verify::Scenario s =
      verify::named_scenario(tiny().model().config(), "reclaim", Arm::s2, Carry::bf16_per_token)
          .front();
  s.cap = 8;  // several at once, over one shared context, with memory for a few
  s.token_budget = 300;
  s.units[0] = 60;
  auto const first = s.workload.requests.front();
  s.workload.requests.clear();
  for (std::uint32_t i = 0; i < 8; ++i) {
    Request r = first;
    r.tokens.resize(1030 + i);
    r.prompt_tokens = 1030 + i;
    r.output_tokens = 5;
    r.arrival_ns = i == 0 ? 0 : 1'000'000'000;
    s.workload.requests.push_back(r);
  }
  for (ConditionName const& condition : condition_names) {
    // One-token chunks give the recurrent form's answer up to rounding; with prompts computed in
    // one form throughout and no preemption, nobody mixes forms.
    if (condition.condition == Condition::same_provenance) continue;
    CAPTURE(condition.name);
    s.broken = condition.condition;
    verify::Counts const c = verify_scenario(s, tiny().model());
    CHECK((c.different_logits > 0) == (condition.condition != Condition::none));
  }
}
