// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "harness.hpp"

namespace naive {

/// One layer of each kind; a page of `block` tokens takes 64 B a token.
inline hs::ModelGeometry falcon_like() {
  hs::ModelGeometry m;
  m.attention_layers = m.recurrent_layers = 2;
  m.kv_heads = 1;
  m.head_dim = 16;
  m.ssm_heads = 6;
  m.ssm_head_dim = 4;
  m.ssm_state = 16;
  m.d_conv = 2;
  return m;
}
/// Nine recurrent layers to one attention layer.
inline hs::ModelGeometry granite_like() {
  hs::ModelGeometry m = falcon_like();
  m.attention_layers = 1;
  m.recurrent_layers = 9;
  m.ssm_heads = 2;
  return m;
}
/// Two attention groups, the second padded.
inline hs::ModelGeometry attention_heavy() {
  hs::ModelGeometry m = falcon_like();
  m.attention_layers = 3;
  m.recurrent_layers = 2;
  return m;
}
inline hs::ModelGeometry two_ranks() {
  hs::ModelGeometry m = falcon_like();
  m.kv_heads = 2;
  m.ssm_heads = 8;
  m.conv_groups = 1;
  m.tensor_parallel = 2;
  return m;
}

/// The n-th of all combinations: geometry x fences x placement x reuse, and beside them, out of
/// step, keys, slab position, grid, the size of the pools and of the index.
inline Setup nth_setup(std::uint64_t n, bool dual) {
  Setup s;
  Random r(n * 7 + 3);
  auto digit = [&n](std::uint64_t base) {
    auto const d = n % base;
    n /= base;
    return static_cast<int>(d);
  };
  int const geometry = digit(4);
  s.geometry = geometry == 0   ? falcon_like()
               : geometry == 1 ? granite_like()
               : geometry == 2 ? attention_heavy()
                               : two_ranks();
  s.options.fences = digit(2) == 1;
  s.options.placement.kind = static_cast<hs::PlacementKind>(digit(3));
  s.options.reuse_beyond_joint = digit(2) == 1;
  s.slab_position = static_cast<hs::SlabPosition>(digit(3));
  s.options.placement.every = 1 + r.below(3);
  s.keys = static_cast<Keys>(r.below(3));
  s.options.identity =
      s.keys == Keys::trusted ? hs::BlockIdentity::trusted_id : hs::BlockIdentity::tokens;
  s.options.max_sequences = 3 + r.below(5);
  s.options.max_sequence_tokens = r.chance(70) ? 0 : 36;
  s.options.bare_nodes_per_unit = r.chance(70) ? 60 : r.below(3);
  s.block = r.chance(75) ? 4 : 2;
  s.grid = s.block * (r.chance(60) ? 1 : 2 + r.below(2));
  if (dual && r.chance(50)) {
    s.block = 2;
    s.grid = 14;  // as 16 and 1,792 tokens, scaled down
  }
  s.forks = r.chance(70);
  s.invalidations = r.chance(75);
  if (geometry == 1)
    s.units = {{18 + r.below(42), 0}};
  else
    s.units = {{8 + r.below(30), 0}};
  if (r.chance(50)) {
    s.options.retention = {static_cast<hs::RetentionMode>(r.below(3)), 1 + r.below(3),
                           static_cast<hs::RetentionYield>(r.below(2))};
    s.options.pinning = {r.below(4), r.chance(50) ? 1.0 : r.below(50) / 100.0};
  }
  // Parts of one token; in a block of four also of two.
  if (r.chance(40)) s.options.tail_tokens = s.block == 4 && r.chance(30) ? 2 : 1;
  s.branch_points = {r.chance(50), 4 + r.below(30)};
  s.score.kind = static_cast<hs::StateScore>(r.below(3));
  s.score.alpha = r.below(5) / 2.0;
  s.score.context_cost = 0.01;
  s.score.next_uses = &path_uses;
  if (dual) s.units = {{10 + r.below(30), geometry == 1 ? 18 + r.below(27) : 2 + r.below(8)}};
  return s;
}

inline std::string describe(const Setup& s, std::uint64_t seed) {
  std::ostringstream out;
  out << "seed " << seed << ": units " << s.units[0] << "+" << s.units[1] << ", block " << s.block
      << ", grid " << s.grid << ", groups " << layout_of(s).attention_groups() << "/"
      << layout_of(s).recurrent_groups() << ", fences " << s.options.fences << ", placement "
      << static_cast<int>(s.options.placement.kind) << "/" << s.options.placement.every
      << ", reuse " << s.options.reuse_beyond_joint << ", slab position "
      << static_cast<int>(s.slab_position) << ", keys " << static_cast<int>(s.keys)
      << ", sequences " << s.options.max_sequences << ", bare nodes "
      << s.options.bare_nodes_per_unit << ", retention "
      << static_cast<int>(s.options.retention.mode) << "/" << s.options.retention.distinct << "/"
      << static_cast<int>(s.options.retention.yield) << ", pinning " << s.options.pinning.distinct
      << "/" << s.options.pinning.protection_budget << ", branch points " << s.branch_points.protect
      << "/" << s.branch_points.halving << ", score " << static_cast<int>(s.score.kind) << "/"
      << s.score.alpha << ", tails of " << s.options.tail_tokens;
  return out.str();
}

inline void report(const std::string& name, const Seen& seen) {
  MESSAGE(name << ": " << seen.operations << " operations, " << seen.adopted_tokens
               << " tokens adopted, " << seen.reused_tokens << " re-used beyond J, " << seen.writes
               << " writes, " << seen.in_place << " in place, " << seen.copies << " copies, "
               << seen.lost << " losses, " << seen.cross << " cross-invalidations, "
               << seen.full_index << " full indices, " << seen.protected_reclaims
               << " protected reclaims, " << seen.retained << " retained, " << seen.retained_yielded
               << " of them given up, " << seen.offers << " offers, " << seen.guarded
               << " with guarded states, " << seen.pins << " pins, " << seen.pins_over_budget
               << " over budget, " << seen.pins_yielded << " given up, tails: " << seen.tails_grown
               << " grown, " << seen.tails_filled << " filled their slab, " << seen.tail_copies
               << " copied");
}

/// Every other combination keeps states as the preset `best` does.
inline void often_at_junctions(Setup& s) {
  if (s.units[0] % 2 == 0) s.options.placement = {hs::PlacementKind::junction};
}

/// Runs combinations until `operations` (times the scale) have passed.
template <class Organization, class Order>
Seen sweep(const std::string& name, std::uint64_t operations, std::uint64_t first_seed = 1,
           void (*change)(Setup&) = nullptr) {
  Seen total;
  auto const wanted = static_cast<std::uint64_t>(static_cast<double>(operations) * test_scale());
  for (std::uint64_t seed = first_seed; total.operations < wanted; ++seed) {
    Setup s = nth_setup(seed, Organization::pools == 2);
    if (change != nullptr) change(s);
    Harness<Organization, Order> harness(s, seed);
    std::string const wrong = harness.run(600);
    total.add(harness.seen());
    INFO(name << ", " << describe(s, seed));
    REQUIRE(wrong == "");
  }
  report(name, total);
  CHECK(total.adopted_tokens > 0);
  CHECK(total.lost > 0);
  CHECK(total.retained > 0);
  CHECK(total.pins > 0);
  CHECK(total.tails_grown > 0);
  CHECK(total.tails_filled > 0);
  CHECK(total.tail_copies > 0);
  return total;
}

}  // namespace naive
