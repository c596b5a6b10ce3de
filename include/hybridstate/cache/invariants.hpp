// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// JointCache::check_invariants; included by joint_cache.hpp.

#include <hybridstate/cache/joint_cache.hpp>
#include <string>
#include <vector>

HYBRIDSTATE_NAMESPACE_BEGIN

template <memory_organization Organization, reclaim_order_base ReclaimOrder,
          cache_observer Observer>
std::string JointCache<Organization, ReclaimOrder, Observer>::check_invariants() const {
  auto wrong = [](const char* what, long long a, long long b) {
    return std::string(what) + " (" + std::to_string(a) + ", " + std::to_string(b) + ")";
  };
  auto const blocks = static_cast<std::size_t>(blocks_capacity_);
  auto const states = static_cast<std::size_t>(states_capacity_);

  // References, recounted from the sequences (invariant 2).
  std::vector<std::uint32_t> block_refs(blocks), state_refs(states), holds(index_.capacity());
  std::vector<std::uint32_t> retained(states), pins(states);
  std::uint32_t active = 0;
  for (std::uint32_t i = 0; i < options_.max_sequences; ++i) {
    Sequence const& s = sequences_[i];
    if (s.pinned) {
      if (s.status != Status::preempted) return wrong("only preempted sequences pin", i, 0);
      ++state_refs[s.pinned.at()];
      ++pins[s.pinned.at()];
    }
    if (s.status != Status::active) continue;
    ++active;
    SequenceHandle const seq{static_cast<std::int32_t>(i)};
    for (HeldState const& h : this->retained(seq)) {
      ++state_refs[h.state.at()];
      ++retained[h.state.at()];
    }
    for (AttentionHandle a : this->blocks(seq)) ++block_refs[a.at()];
    if (s.copied_from) ++block_refs[s.copied_from.at()];
    for (HeldState const& h : this->states(seq)) ++state_refs[h.state.at()];
    if (s.tip) ++holds[s.tip.at()];
    std::uint64_t covered = std::uint64_t{s.blocks} * block_tokens();
    for (AttentionHandle a : this->blocks(seq)) {
      if (!is_tail(a)) continue;
      if (a != this->blocks(seq).back()) return wrong("only the last block is a tail", i, a.value);
      covered -= block_tokens() - tails_.size(tail_of(a)) * options_.tail_tokens;
    }
    if (covered < std::uint64_t{s.position} + s.reserved)
      return wrong("a sequence's blocks cover its tokens", s.blocks, s.position);
    if (s.position > 0 && s.states == 0) return wrong("a started sequence has a state", i, 0);
  }
  if (active != active_) return wrong("running sequences are counted", active, active_);

  // Where every object's units are (invariants 1, 3, 5).
  std::vector<std::vector<char>> seen(static_cast<std::size_t>(pools));
  for (int pool = 0; pool < pools; ++pool)
    seen[static_cast<std::size_t>(pool)].resize(organization_.pool(pool).capacity());
  std::string sentence;
  auto visit = [&](int pool, UnitIndex u, bool listed, const char* what) {
    char& mark = seen[static_cast<std::size_t>(pool)][u.at()];
    if (mark != 0) sentence = wrong("no unit belongs to two objects", pool, u.value);
    mark = 1;
    if (organization_.pool(pool).listed(u) != listed) sentence = wrong(what, pool, u.value);
  };
  ObjectUse block_use, state_use;
  auto count = [](ObjectUse& use, const Object& o) {
    ++(o.references > 0 ? use.referenced : o.fenced ? use.fenced : use.cached);
  };
  std::uint64_t payload = 0;
  Units tails = 0;
  for (std::int32_t i = 0; i < blocks_capacity_; ++i) {
    Object const& o = blocks_[i];
    if (o.references != block_refs[static_cast<std::size_t>(i)])
      return wrong("attention references agree with the sequences", i, o.references);
    if (!o.live) {
      if (o.node || o.references > 0) return wrong("a dead block is nowhere", i, o.references);
      continue;
    }
    if (!o.node && o.references == 0 && !o.fenced)
      return wrong("an undiscoverable unreferenced block is given back", i, 0);
    if (o.node && o.filled != block_tokens())
      return wrong("only full blocks are published", i, o.filled);
    count(block_use, o);
    payload += o.filled;
    if (is_tail({i})) {
      if (o.node) return wrong("a tail is never published", i, o.node.value);
      if (o.filled > tails_.size(tail_of({i})) * options_.tail_tokens)
        return wrong("a tail has parts for its tokens", i, o.filled);
      ++tails;
      continue;
    }
    organization_.for_each_own_unit(AttentionHandle{i}, [&](int pool, UnitIndex u) {
      visit(pool, u, o.references == 0 && !o.fenced, "attention units are listed iff cached");
    });
  }
  Units slabs = 0;
  Units tail_parts = 0;
  tails_.for_each_slab([&](std::int32_t slab) {
    ++slabs;
    std::uint32_t next = 0;
    tails_.for_each_tail(slab, [&](std::int32_t tail) {
      --tails;
      tail_parts += tails_.size(tail);
      if (!blocks_[first_tail_ + tail].live) sentence = wrong("a tail is alive", slab, tail);
      if (tails_.part(tail) < next) sentence = wrong("tails do not overlap", slab, tail);
      next = tails_.part(tail) + tails_.size(tail);
    });
    if (next == 0 || next > tails_.parts()) sentence = wrong("tails fill a slab", slab, next);
    organization_.for_each_own_unit(AttentionHandle{slab}, [&](int pool, UnitIndex u) {
      visit(pool, u, false, "a slab of tails is never listed");
    });
  });
  if (tails != 0) return wrong("every tail is on a slab", tails, slabs);
  if (slabs != tails_.slabs() || tail_parts != tails_.used_parts())
    return wrong("tail slabs are counted", slabs, tail_parts);
  std::vector<CarrierUse> carriers(states);
  for (std::int32_t i = 0; i < states_capacity_; ++i) {
    Object const& o = states_[i];
    if (o.references != state_refs[static_cast<std::size_t>(i)])
      return wrong("state references agree with the sequences", i, o.references);
    if (retained_references_[i] != retained[static_cast<std::size_t>(i)])
      return wrong("retained references agree with the sequences", i, retained_references_[i]);
    if (pins_on_[i] != pins[static_cast<std::size_t>(i)])
      return wrong("pins agree with the preempted sequences", i, pins_on_[i]);
    if (!o.live) {
      if (o.node || o.references > 0) return wrong("a dead state is nowhere", i, o.references);
      continue;
    }
    if (!o.node && o.references == 0 && !o.fenced)
      return wrong("an undiscoverable unreferenced state is given back", i, 0);
    count(state_use, o);
    organization_.for_each_own_unit(StateHandle{i}, [&](int pool, UnitIndex u) {
      visit(pool, u, o.references == 0 && !o.fenced, "state members are listed iff cached");
    });
    organization_.for_each_carrier(StateHandle{i}, [&](CarrierHandle c) {
      if (o.references > 0)
        ++carriers[c.at()].referenced;
      else if (o.fenced)
        ++carriers[c.at()].fenced;
      bool on_it = false;
      organization_.for_each_state_on(c, [&](StateHandle s) { on_it |= s.value == i; });
      if (!on_it) sentence = wrong("a state sits on its carrier", i, c.value);
    });
  }
  if (!sentence.empty()) return sentence;
  if (block_use.referenced != blocks_use_.referenced || block_use.cached != blocks_use_.cached ||
      block_use.fenced != blocks_use_.fenced)
    return wrong("attention use is counted", block_use.cached, blocks_use_.cached);
  if (state_use.referenced != states_use_.referenced || state_use.cached != states_use_.cached ||
      state_use.fenced != states_use_.fenced)
    return wrong("state use is counted", state_use.cached, states_use_.cached);
  if (payload != payload_tokens_)
    return wrong("payload is counted", static_cast<long long>(payload),
                 static_cast<long long>(payload_tokens_));
  if (fence_list_.size != block_use.fenced + state_use.fenced)
    return wrong("fenced objects are in the fence list", fence_list_.size, block_use.fenced);

  // Carriers, and every remaining unit is keyless and listed.
  for (int pool = 0; pool < pools; ++pool) {
    UnitPool const& units = organization_.pool(pool);
    Units keyless = 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(units.capacity()); ++i) {
      UnitIndex const u{i};
      if (units.owner(u) == UnitOwner::carrier) {
        CarrierUse const& expected = carriers[u.at()];
        if (expected.referenced != carriers_[u.at()].referenced ||
            expected.fenced != carriers_[u.at()].fenced)
          return wrong("active slots of a carrier are counted", i, expected.referenced);
        visit(pool, u, !ReclaimOrder::keeps_carriers && expected.referenced + expected.fenced == 0,
              "a carrier is listed iff it has no active slot and its order lets it");
        bool used = false;
        organization_.for_each_state_on(CarrierHandle{i}, [&](StateHandle) { used = true; });
        if (!used) return wrong("an empty carrier is no carrier", pool, i);
      } else if (units.owner(u) == UnitOwner::none) {
        ++keyless;
        visit(pool, u, true, "a keyless unit is listed");
      } else if (seen[static_cast<std::size_t>(pool)][u.at()] == 0) {
        return wrong("an owned unit has a live owner", pool, i);
      }
    }
    if (!sentence.empty()) return sentence;
    if (keyless != units.keyless())
      return wrong("keyless units are counted", keyless, units.keyless());
  }
  Usage const now = usage();
  for (int pool = 0; pool < pools; ++pool)
    if (now.pool[pool].unit_count() != now.pool[pool].capacity)
      return wrong("keyless + cached + referenced + fenced = capacity", now.pool[pool].unit_count(),
                   now.pool[pool].capacity);

  // Nodes: what hangs on them, and who holds them.
  std::vector<std::uint32_t> children(index_.capacity()), units(index_.capacity()),
      on(index_.capacity()), below(index_.capacity());
  for (std::int32_t i = 0; i < blocks_capacity_; ++i)
    if (blocks_[i].node) ++units[blocks_[i].node.at()];
  for (std::int32_t i = 0; i < states_capacity_; ++i)
    if (states_[i].node) {
      ++on[states_[i].node.at()];
      for (NodeIndex n = states_[i].node; n; n = {index_[n].parent}) ++below[n.at()];
      if (index_[states_[i].node].depth * block_tokens() % checkpoint_tokens() != 0)
        return wrong("checkpoints hang on grid boundaries", i, index_[states_[i].node].depth);
    }
  std::uint32_t alive = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(index_.capacity()); ++i) {
    NodeIndex const n{i};
    if (!index_.alive(n)) continue;
    if (index_.generation(n) == 0) continue;
    ++alive;
    PrefixNode const& node = index_[n];
    if (node.parent >= 0) {
      ++children[static_cast<std::size_t>(node.parent)];
      if (!index_.alive({node.parent})) return wrong("a parent outlives its child", i, node.parent);
      if (index_[NodeIndex{node.parent}].depth + 1 != node.depth)
        return wrong("a child is one block deeper", i, node.depth);
    }
    std::uint32_t listed = 0;
    for (std::int32_t a = node.oldest_unit; a >= 0; a = block_links_.next(a)) {
      ++listed;
      if (blocks_[a].node != n) return wrong("attention on a node names it", i, a);
    }
    if (listed != node.units || listed != units[n.at()])
      return wrong("attention on a node is counted", i, listed);
    std::uint32_t states_on = 0;
    for (std::int32_t s = node.oldest_state; s >= 0; s = state_links_.next(s)) {
      ++states_on;
      if (states_[s].node != n) return wrong("checkpoints on a node name it", i, s);
    }
    if (states_on != on[n.at()]) return wrong("checkpoints on a node are linked", i, states_on);
    if (ReclaimOrder::counts_states_below && node.states_below != below[n.at()])
      return wrong("states at or below a node are counted", i, node.states_below);
    if (node.holds != holds[n.at()]) return wrong("holds agree with the sequences", i, node.holds);
  }
  if (alive != index_.size()) return wrong("nodes are counted", alive, index_.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(index_.capacity()); ++i)
    if (index_.alive({i}) && index_.generation({i}) != 0 &&
        index_[NodeIndex{i}].children != children[static_cast<std::size_t>(i)])
      return wrong("children are counted", i, index_[NodeIndex{i}].children);
  return {};
}

HYBRIDSTATE_NAMESPACE_END
