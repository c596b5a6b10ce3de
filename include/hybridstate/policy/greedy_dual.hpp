// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/indexed_heap.hpp>
#include <hybridstate/core/list.hpp>
#include <hybridstate/policy/admission.hpp>
#include <hybridstate/policy/reclaim_order.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// Who will use what, for simulations that know their requests.
class NextUses {
 public:
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  virtual ~NextUses() = default;
  /// The first requester from `from` on, numbered by arrival, that will use a state on the node
  /// with this PrefixNode::path; or `never`.
  virtual std::uint64_t next(std::uint64_t path, std::uint64_t from) const noexcept = 0;
};

enum class StateScore : std::uint8_t {
  greedy_dual,
  marconi,      ///< recency, and computation saved per byte
  clairvoyant,  ///< the next use, which a NextUses knows
};

/// By what GreedyDual ranks states.
struct ScoreRule {
  StateScore kind = StateScore::greedy_dual;
  double alpha = 1;  ///< marconi: weight of the computation saved against recency
  /// marconi: by how much a token of context raises the FLOPs of one after it. 1.8e-5 is
  /// Falcon-H1-7B: 4 * 44 * 12 * 128 FLOPs beside 15.2e9.
  double context_cost = 1.8e-5;
  const NextUses* next_uses = nullptr;  ///< clairvoyant: borrowed
};

/// The reclaim order of the preset `best`: path safety, and greedy-dual ageing of what is left.
/// Units come, in this order, from
///   1. attention that no live state needs, oldest release first;
///   2. a state with an older one on its node, oldest release first;
///   3. the state with the least score c + (1 + w e) * replay / size, earliest release first.
/// e counts the requests whose known path ended at the state's node, w = 4 (`exit_weight`) says how
/// much more one of them tells than the state's mere existence; replay the blocks down to it
/// from the nearest published state above. The size, in attention blocks, is the state's with the
/// attention that it alone needs: from its node up to the first with another state at or below. c
/// is the clock at which the state was published or last adopted; the clock rises to the score of
/// each victim of step 3, so that what nobody asks for ages.
///
/// Step 3 can rank by other scores, for comparison. `marconi`, after Pan et al. (MLSys 2025), is
/// u + alpha * saved / size: u counts publications and adoptions up to the state's own last one, in
/// units of the states that the memory can hold; saved is the replay in FLOPs of a block at the
/// start. Theirs takes 1 / age, normalizes both terms over all candidates at each eviction (O(n))
/// and lets no node with two children go. `clairvoyant` lets the state go whose next use is last,
/// those without one first.
///
/// Scores are exact at all times. Published states are kept in depth-first order of the tree, each
/// node knowing the first and the last at or below it: a publication or a loss finds the states
/// whose score it changes without a search. O(depth + log n) each, plus the states below a node
/// that gains its first state or loses its last.
class GreedyDual {
 public:
  static constexpr bool counts_states_below = true;
  static constexpr bool keeps_carriers = true;
  static constexpr bool scores_states = true;
  static constexpr bool counts_requests = false;
  static constexpr double exit_weight = 4;

  GreedyDual() = default;
  explicit GreedyDual(ScoreRule rule) noexcept : rule_(rule) {}

  void resize(const OrderSizes& sizes) {
    state_blocks_ = sizes.state_blocks;
    age_of_use_ = 1 / std::max(1.0, std::min<double>(sizes.states, sizes.blocks / state_blocks_));
    blocks_.resize(sizes.blocks);
    duplicates_ = IndexedHeap<std::uint64_t>(sizes.states);
    scored_ = IndexedHeap<Score>(sizes.states);
    states_ = FixedArray<Scored>(sizes.states);
    asked_links_ = IndexLinks(sizes.states);
    tree_links_ = IndexLinks(sizes.states);
    below_ = FixedArray<Span>(sizes.nodes);
    offers_ = FixedArray<Offer>(sizes.states);
  }
  ListEnd published_end() const noexcept { return ListEnd::back; }
  ListEnd idle_carrier_end(bool) const noexcept { return ListEnd::back; }

  template <class View>
  void released(View& view, ObjectRef object) noexcept {
    std::uint64_t const stamp = ++releases_;
    if (object.kind == ObjectKind::attention) {
      blocks_.released(view, object, stamp);
    } else {
      states_[object.handle].released = stamp;
      refresh(view, object.handle);
    }
  }
  template <class View>
  void referenced(View&, ObjectRef object) noexcept {
    if (object.kind == ObjectKind::attention)
      blocks_.referenced(object);
    else
      drop(object.handle);
  }
  template <class View>
  void node_changed(View& view, NodeIndex node) noexcept {
    blocks_.node_changed(view, node);
  }

  template <class View>
  void published(View& view, ObjectRef state) noexcept {
    std::int32_t const s = state.handle;
    NodeIndex const n = view.node_of(state);
    use(s);
    link(view, s, n);
    std::int32_t shortened = none;  // the only state that had a path up to where this one joins it
    for (NodeIndex m = n; m; m = {view.node(m).parent})
      if (view.node(m).states_below == 2) {
        shortened = below_[m.at()].first == s ? below_[m.at()].last : below_[m.at()].first;
        break;
      }
    if (shortened >= 0) refresh(view, shortened);
    if (view.node(n).oldest_state == s) refresh_below(view, n);
  }
  template <class View>
  void lost(View& view, ObjectRef state, NodeIndex n) noexcept {
    unlink(view, state.handle, n);
    std::int32_t const next = view.node(n).oldest_state;
    for (NodeIndex m = n; m; m = {view.node(m).parent})
      if (view.node(m).states_below == 1) {
        refresh(view, below_[m.at()].first);
        break;
      }
    if (next >= 0)
      refresh(view, next);
    else
      refresh_below(view, n);
  }
  template <class View>
  void admitted(View&, std::uint64_t requester, StateHandle from) noexcept {
    if (from) use(from.value);
    next_ = std::max(next_, requester + 1);
  }
  template <class View>
  void demand_changed(View& view, NodeIndex n) noexcept {
    if (std::int32_t const s = view.node(n).oldest_state; s >= 0) refresh(view, s);
  }

  template <class View>
  void make_keyless(View& view, int pool, Units k) noexcept {
    while (view.pool(pool).keyless() < k) {
      if (!blocks_.empty() && (View::pools == 1 || pool == 0)) {
        view.reclaim(blocks_.oldest());
      } else if (!duplicates_.empty()) {
        view.reclaim({ObjectKind::checkpoint, duplicates_.top()});
      } else if (!scored_.empty()) {
        if (rule_.kind == StateScore::greedy_dual)
          clock_ = std::max(clock_, scored_.top_key().score);
        view.reclaim({ObjectKind::checkpoint, scored_.top()});
      } else {  // attention under a state in use whose sequence lost its own to an invalidation
        UnitIndex const u = first_cached(view.pool(pool));
        HYBRIDSTATE_EXPECT(u, "a need never exceeds what can be reclaimed", pool, k);
        view.reclaim_owner(pool, u);
      }
    }
  }

  /// What an admission could displace; `adopted` may not go. The offers live until the next call.
  template <class View>
  void offer(View& view, StateHandle adopted, Market& market) noexcept {
    double unasked_states = unasked_;
    auto unasked_blocks = static_cast<double>(unasked_path_);
    if (adopted && listed(adopted.value) && !asked_links_.linked(adopted.value)) {
      unasked_states -= 1;
      unasked_blocks -= states_[adopted.value].path;
    }
    std::size_t count = 0;
    for (std::int32_t s = asked_.head; s >= 0; s = asked_links_.next(s)) {
      if (s == adopted.value) continue;
      PrefixNode const& node = view.node(view.node_of({ObjectKind::checkpoint, s}));
      Offer& o = offers_[count++];
      o = {{0, 0},
           state_blocks_ + states_[s].path,
           states_[s].replay * view.block_tokens(),
           node.exits,
           node.first_seen_ns,
           node.last_exit_ns};
      view.add_units(o.units, 1, states_[s].path);
    }
    view.add_units(market.unasked, unasked_states, unasked_blocks);
    view.add_units(market.worthless, 0, blocks_.size());
    for (int pool = 0; pool < View::pools; ++pool)
      market.worthless[pool] += view.pool(pool).keyless();
    market.offers = {offers_.data(), count};
  }

  /// The score of a cached state that is the oldest on its node.
  double score(StateHandle s) const noexcept { return scored_.key(s.value).score; }
  double clock() const noexcept { return clock_; }

 private:
  static constexpr std::int32_t none = -1;

  struct Score {
    double score = 0;
    std::uint64_t released = 0;
    bool operator<(const Score& o) const noexcept {
      return score < o.score || (score == o.score && released < o.released);
    }
  };
  struct Scored {
    double clock = 0;  ///< c, or u
    std::uint64_t released = 0;
    Units replay = 0;  ///< blocks from the nearest published state above
    Units path = 0;    ///< blocks that it alone needs
  };
  struct Span {
    std::int32_t first = none, last = none;  ///< published states at or below, depth first
  };

  bool listed(std::int32_t s) const noexcept {
    return scored_.contains(s) || duplicates_.contains(s);
  }
  void drop(std::int32_t s) noexcept {
    if (!listed(s)) return;
    if (scored_.contains(s))
      scored_.erase(s);
    else
      duplicates_.erase(s);
    if (asked_links_.linked(s)) {
      asked_links_.unlink(asked_, s);
    } else {
      --unasked_;
      unasked_path_ -= states_[s].path;
    }
  }

  void use(std::int32_t s) noexcept {
    if (rule_.kind == StateScore::marconi) clock_ += age_of_use_;
    states_[s].clock = clock_;
  }
  template <class View>
  double score_of(const View& view, const Scored& state, const PrefixNode& node) const noexcept {
    double const size = state_blocks_ + state.path;
    switch (rule_.kind) {
      case StateScore::marconi: {
        double const middle = (node.depth - 0.5 * state.replay) * view.block_tokens();
        return state.clock + rule_.alpha * state.replay * (1 + rule_.context_cost * middle) / size;
      }
      case StateScore::clairvoyant:
        return -static_cast<double>(rule_.next_uses->next(node.path, next_));
      case StateScore::greedy_dual:
        break;
    }
    return state.clock + (1 + exit_weight * node.exits) * state.replay / size;
  }

  /// Everything about one state again, in or out.
  template <class View>
  void refresh(View& view, std::int32_t s) noexcept {
    drop(s);
    ObjectRef const object{ObjectKind::checkpoint, s};
    if (!view.reclaimable(object)) return;
    NodeIndex const n = view.node_of(object);
    PrefixNode const& node = view.node(n);
    Scored& state = states_[s];
    state.path = 0;
    for (NodeIndex m = n; view.node(m).depth > 0 && view.node(m).states_below == 1;
         m = {view.node(m).parent})
      ++state.path;
    bool const oldest = node.oldest_state == s;
    if (oldest) {
      NodeIndex above{node.parent};
      while (view.node(above).oldest_state < 0 && view.node(above).depth > 0)
        above = {view.node(above).parent};
      state.replay = node.depth - view.node(above).depth;
      scored_.insert(s, {score_of(view, state, node), state.released});
    } else {
      duplicates_.insert(s, state.released);
    }
    if (oldest && node.exits >= 2) {
      asked_links_.push_back(asked_, s);
    } else {
      ++unasked_;
      unasked_path_ += state.path;
    }
  }
  /// The states below a node whose own states changed.
  template <class View>
  void refresh_below(View& view, NodeIndex n) noexcept {
    Span const span = below_[n.at()];
    if (span.first < 0) return;
    for (std::int32_t s = span.first;; s = tree_links_.next(s)) {
      refresh(view, s);
      if (s == span.last) break;
    }
  }

  template <class View>
  void link(View& view, std::int32_t s, NodeIndex n) noexcept {
    // Before what lies below the node; else behind what lies below the nearest ancestor with any.
    std::int32_t before = below_[n.at()].first;
    std::int32_t after = before >= 0 ? tree_links_.previous(before) : none;
    if (before < 0)
      for (NodeIndex m = n; m && after < 0; m = {view.node(m).parent}) after = below_[m.at()].last;
    tree_links_.insert_after(tree_, after, s);
    for (NodeIndex m = n; m; m = {view.node(m).parent}) {
      Span& span = below_[m.at()];
      if (span.first < 0)
        span = {s, s};
      else if (span.first == before)
        span.first = s;
      else if (span.last == after)
        span.last = s;
    }
  }
  template <class View>
  void unlink(View& view, std::int32_t s, NodeIndex n) noexcept {
    for (NodeIndex m = n; m; m = {view.node(m).parent}) {
      Span& span = below_[m.at()];
      if (span.first == s && span.last == s)
        span = {};
      else if (span.first == s)
        span.first = tree_links_.next(s);
      else if (span.last == s)
        span.last = tree_links_.previous(s);
    }
    tree_links_.unlink(tree_, s);
  }

  ScoreRule rule_;
  double state_blocks_ = 1;
  double clock_ = 0;
  double age_of_use_ = 0;   ///< marconi: what one more use adds to the clock
  std::uint64_t next_ = 0;  ///< clairvoyant: the first requester that was not admitted yet
  std::uint64_t releases_ = 0;
  SafeAttention blocks_;
  IndexedHeap<std::uint64_t> duplicates_;  ///< cached states behind an older one on their node
  IndexedHeap<Score> scored_;              ///< the other cached states
  FixedArray<Scored> states_;
  IndexLinks asked_links_;
  IndexLinks::List asked_;          ///< scored states at which two requests or more ended
  std::uint32_t unasked_ = 0;       ///< the other cached states
  std::uint64_t unasked_path_ = 0;  ///< blocks that they alone need
  IndexLinks tree_links_;
  IndexLinks::List tree_;  ///< published states, depth first
  FixedArray<Span> below_;
  FixedArray<Offer> offers_;
};

HYBRIDSTATE_NAMESPACE_END
