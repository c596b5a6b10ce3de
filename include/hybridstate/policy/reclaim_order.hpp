// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/indexed_heap.hpp>
#include <hybridstate/core/observer.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/index/prefix_index.hpp>
#include <hybridstate/pool/unit_pool.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A cached object, as reclaim orders name it.
struct ObjectRef {
  ObjectKind kind = ObjectKind::none;  ///< attention or checkpoint
  std::int32_t handle = -1;
};

enum class ListEnd : std::uint8_t { front, back };

/// The cache as a reclaim order sees it: nodes, lists, and one verb. The cache implements it.
template <class V>
concept reclaim_view =
    requires(V& view, const V& seen, ObjectRef object, NodeIndex node, int pool, UnitIndex unit) {
      { V::pools } -> std::convertible_to<int>;
      { seen.node_of(object) } noexcept -> std::same_as<NodeIndex>;
      { seen.node(node) } noexcept -> std::same_as<const PrefixNode&>;
      { seen.next_on_node(object) } noexcept -> std::same_as<ObjectRef>;  // towards newer ones
      {
        seen.reclaimable(object)
      } noexcept -> std::same_as<bool>;  // published, unreferenced, unfenced
      { seen.pool(pool) } noexcept -> std::same_as<const UnitPool&>;
      { view.reclaim(object) } noexcept;            // out of the index, its units keyless
      { view.reclaim_owner(pool, unit) } noexcept;  // everything that a cached unit holds
    };

/// What an order sizes itself by, once.
struct OrderSizes {
  Units blocks = 0;         ///< handles of attention blocks
  Units states = 0;         ///< handles of states
  Units nodes = 0;          ///< prefix nodes
  double state_blocks = 1;  ///< bytes of a state, slots included, over those of an attention block
};

/// Where units wait and which cached objects go first. Hooks are told what changes; an order acts
/// at two places only: the end of the list at which a unit enters, and make_keyless.
///
///   resize(sizes)                 once, before the first use
///   published_end()               where the units of a cached object enter
///   idle_carrier_end(published)   where a carrier enters that lost its last referenced state;
///                                 `published`: whether that state stays discoverable
///   released(view, object)        it became cached
///   referenced(view, object)      it is cached no more, or about to leave the index
///   node_changed(view, node)      states_below or units of the node crossed 0/1 or 1/2
///   make_keyless(view, pool, k)   reclaim whole objects until k keyless units stand at the front
///
/// An order that scores states or counts requests also has
///   admitted(view, requester, state)  a sequence starts, from that state unless it is absent
/// one that scores states (see GreedyDual)
///   published(view, state)        it hangs on its node
///   lost(view, state, node)       it hung there
///   demand_changed(view, node)    a request's known path ended there
///   offer(view, state, market)    what a pricing gate may displace, `state` excepted
/// and one that counts requests (see PathSafeLru)
///   entered(view, node)           a request's prompt leads to that node
///   guarded()                     cached states that it protects
template <class R>
concept reclaim_order_base = std::movable<R> && requires(R& r) {
  { R::counts_states_below } -> std::convertible_to<bool>;  // keep PrefixNode::states_below
  { R::keeps_carriers } -> std::convertible_to<bool>;       // a carrier is listed only when empty
  { R::scores_states } -> std::convertible_to<bool>;
  { R::counts_requests } -> std::convertible_to<bool>;
  { r.resize(OrderSizes{}) };
  { r.published_end() } noexcept -> std::same_as<ListEnd>;
  { r.idle_carrier_end(true) } noexcept -> std::same_as<ListEnd>;
};

template <class R, class V>
concept reclaim_order = reclaim_order_base<R> && reclaim_view<V> &&
                        requires(R& r, V& view, ObjectRef object, NodeIndex node, Units k) {
                          { r.released(view, object) } noexcept;
                          { r.referenced(view, object) } noexcept;
                          { r.node_changed(view, node) } noexcept;
                          { r.make_keyless(view, 0, k) } noexcept;
                        };

/// Where a slab page goes when its last referenced state does (serving model section 2, Slabs).
enum class SlabPosition : std::uint8_t {
  by_last_state,  ///< front if that state was never published, else back
  front,
  back,
};

/// The paper's order: one list; keyless units at the front, cached ones at the back in release
/// order; takes reassign from the front, one unit at a time.
struct PaperOrder {
  static constexpr bool counts_states_below = false;
  static constexpr bool keeps_carriers = false;
  static constexpr bool scores_states = false;
  static constexpr bool counts_requests = false;
  SlabPosition slab_position = SlabPosition::by_last_state;

  void resize(const OrderSizes&) {}
  ListEnd published_end() const noexcept { return ListEnd::back; }
  ListEnd idle_carrier_end(bool published) const noexcept {
    if (slab_position == SlabPosition::by_last_state)
      return published ? ListEnd::back : ListEnd::front;
    return slab_position == SlabPosition::front ? ListEnd::front : ListEnd::back;
  }
  void released(auto&, ObjectRef) noexcept {}
  void referenced(auto&, ObjectRef) noexcept {}
  void node_changed(auto&, NodeIndex) noexcept {}
  void make_keyless(auto&, int, Units) noexcept {}
};

/// Path safety: the cached attention that may go, oldest release first. Its node holds another unit
/// of the same tokens, or no live state at or below it needs it.
class SafeAttention {
 public:
  void resize(Units blocks) {
    heap_ = IndexedHeap<std::uint64_t>(blocks);
    released_at_ = FixedArray<std::uint64_t>(blocks);
  }
  bool empty() const noexcept { return heap_.empty(); }
  Units size() const noexcept { return heap_.size(); }
  ObjectRef oldest() const noexcept { return {ObjectKind::attention, heap_.top()}; }
  std::uint64_t oldest_release() const noexcept { return heap_.top_key(); }

  template <class View>
  void released(View& view, ObjectRef block, std::uint64_t stamp) noexcept {
    released_at_[static_cast<std::size_t>(block.handle)] = stamp;
    refresh(view, block);
  }
  /// The same with another stamp for a block that is cached already.
  template <class View>
  void restamp(View& view, ObjectRef block, std::uint64_t stamp) noexcept {
    referenced(block);
    released(view, block, stamp);
  }
  std::uint64_t release_of(ObjectRef block) const noexcept {
    return released_at_[static_cast<std::size_t>(block.handle)];
  }
  void referenced(ObjectRef block) noexcept {
    if (heap_.contains(block.handle)) heap_.erase(block.handle);
  }
  template <class View>
  void node_changed(View& view, NodeIndex node) noexcept {
    for (ObjectRef a{ObjectKind::attention, view.node(node).oldest_unit}; a.handle >= 0;
         a = view.next_on_node(a))
      refresh(view, a);
  }

 private:
  template <class View>
  void refresh(View& view, ObjectRef a) noexcept {
    PrefixNode const& node = view.node(view.node_of(a));
    bool const wanted = view.reclaimable(a) && (node.states_below == 0 || node.units > 1);
    if (wanted == heap_.contains(a.handle)) return;
    if (wanted)
      heap_.insert(a.handle, released_at_[static_cast<std::size_t>(a.handle)]);
    else
      heap_.erase(a.handle);
  }

  IndexedHeap<std::uint64_t> heap_;  ///< by release
  FixedArray<std::uint64_t> released_at_;
};

/// The first unit in a pool's list that something cached holds; absent without one.
inline UnitIndex first_cached(const UnitPool& pool) noexcept {
  UnitIndex u = pool.front();
  while (u && pool.owner(u) == UnitOwner::none) u = pool.next(u);
  return u;
}

/// Protection of branch points, for PathSafeLru.
struct BranchPoints {
  bool protect = false;
  std::uint32_t halving = 1024;  ///< all counts are halved after so many admissions, at least 1
};

/// How many requests passed each node: one more with every enter(), at most 255, all of them halved
/// at times. A node is a branch point when two requests or more passed it and no child was passed
/// as often; a child that left the index keeps what it had reached.
class RequestCounts {
 public:
  void resize(Units nodes) { counts_ = FixedArray<Count>(nodes); }
  void halve() noexcept { ++halvings_; }

  template <class View>
  void count(const View& view, NodeIndex n) noexcept {
    Count& c = of(view, n);
    if (c.requests < most_counted) ++c.requests;
    Count& up = of(view, {view.node(n).parent});
    up.in_child = std::max(up.in_child, c.requests);
  }
  template <class View>
  bool shared(const View& view, NodeIndex n) noexcept {
    return of(view, n).requests >= 2;
  }
  template <class View>
  bool branch_point(const View& view, NodeIndex n) noexcept {
    Count const& c = of(view, n);
    return c.requests >= 2 && c.in_child < c.requests;
  }

 private:
  static constexpr std::uint8_t most_counted = 255;
  struct Count {
    std::uint32_t generation = 0;  ///< of the node that was counted
    std::uint32_t halvings = 0;    ///< applied so far
    std::uint8_t requests = 0;
    std::uint8_t in_child = 0;  ///< most of any child
  };

  template <class View>
  Count& of(const View& view, NodeIndex n) noexcept {
    Count& c = counts_[n.at()];
    if (std::uint32_t const generation = view.node(n).generation; c.generation != generation)
      c = {generation, halvings_, 0, 0};
    std::uint32_t const due = std::min<std::uint32_t>(halvings_ - c.halvings, 8);
    c.halvings = halvings_;
    c.requests = static_cast<std::uint8_t>(c.requests >> due);
    c.in_child = static_cast<std::uint8_t>(c.in_child >> due);
    return c;
  }

  FixedArray<Count> counts_;
  std::uint32_t halvings_ = 0;
};

/// Least recently used with path safety: an unreferenced attention unit does not go while a live
/// state at or below its node needs it, so reclaiming never orphans a checkpoint. Victims are whole
/// objects, oldest release first; a duplicate on a node may go while another unit stays.
///
/// With branch points protected, classes come before age: states at branch points after attention
/// that two requests shared after the rest. O(log n) an operation and O(depth) an enter; a halving
/// looks at everything cached.
class PathSafeLru {
 public:
  static constexpr bool counts_states_below = true;
  static constexpr bool keeps_carriers = false;
  static constexpr bool scores_states = false;
  static constexpr bool counts_requests = true;

  PathSafeLru() = default;
  explicit PathSafeLru(BranchPoints rule) noexcept : rule_(rule) {}

  void resize(const OrderSizes& sizes) {
    sizes_ = sizes;
    blocks_.resize(sizes.blocks);
    states_ = IndexedHeap<std::uint64_t>(sizes.states);
    if (rule_.protect) counts_.resize(sizes.nodes);
  }
  ListEnd published_end() const noexcept { return ListEnd::back; }
  ListEnd idle_carrier_end(bool) const noexcept { return ListEnd::back; }

  template <class View>
  void released(View& view, ObjectRef object) noexcept {
    std::uint64_t const key = class_of(view, object) | ++clock_;
    if (object.kind == ObjectKind::checkpoint)
      list(object.handle, key);
    else
      blocks_.released(view, object, key);
  }

  template <class View>
  void referenced(View&, ObjectRef object) noexcept {
    if (object.kind == ObjectKind::attention)
      blocks_.referenced(object);
    else if (states_.contains(object.handle))
      unlist(object.handle);
  }

  template <class View>
  void node_changed(View& view, NodeIndex node) noexcept {
    blocks_.node_changed(view, node);
  }

  template <class View>
  void entered(View& view, NodeIndex tip) noexcept {
    if (!rule_.protect) return;
    for (NodeIndex n = tip; view.node(n).depth > 0; n = {view.node(n).parent}) {
      counts_.count(view, n);
      for (ObjectRef a{ObjectKind::attention, view.node(n).oldest_unit}; a.handle >= 0;
           a = view.next_on_node(a))
        reclass(view, a);
      for (ObjectRef s{ObjectKind::checkpoint, view.node(n).oldest_state}; s.handle >= 0;
           s = view.next_on_node(s))
        reclass(view, s);
    }
  }
  template <class View>
  void admitted(View& view, std::uint64_t, StateHandle) noexcept {
    if (!rule_.protect || ++admissions_ % rule_.halving != 0) return;
    counts_.halve();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(sizes_.blocks); ++i)
      reclass(view, {ObjectKind::attention, i});
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(sizes_.states); ++i)
      reclass(view, {ObjectKind::checkpoint, i});
  }
  Units guarded() const noexcept { return guarded_; }

  template <class View>
  void make_keyless(View& view, int pool, Units k) noexcept {
    while (view.pool(pool).keyless() < k) {
      bool const block = !blocks_.empty() && (View::pools == 1 || pool == 0);
      bool const state = !states_.empty() && !(View::pools == 2 && block);
      if (block && (!state || blocks_.oldest_release() < states_.top_key()))
        view.reclaim(blocks_.oldest());
      else if (state)
        view.reclaim({ObjectKind::checkpoint, states_.top()});
      else
        view.reclaim_owner(pool, first_cached(view.pool(pool)));
    }
  }

 private:
  // A key is the class in the upper bits and the release below.
  static constexpr std::uint64_t shared_attention = std::uint64_t{1} << 62;
  static constexpr std::uint64_t branch_point = std::uint64_t{2} << 62;
  static constexpr std::uint64_t release_bits = shared_attention - 1;

  template <class View>
  std::uint64_t class_of(const View& view, ObjectRef object) noexcept {
    if (!rule_.protect) return 0;
    NodeIndex const n = view.node_of(object);
    if (object.kind == ObjectKind::attention) return counts_.shared(view, n) ? shared_attention : 0;
    return counts_.branch_point(view, n) ? branch_point : 0;
  }
  template <class View>
  void reclass(View& view, ObjectRef object) noexcept {
    if (!view.reclaimable(object)) return;
    bool const block = object.kind == ObjectKind::attention;
    std::uint64_t const now = block ? blocks_.release_of(object) : states_.key(object.handle);
    std::uint64_t const key = class_of(view, object) | (now & release_bits);
    if (key == now) return;
    if (block) {
      blocks_.restamp(view, object, key);
    } else {
      unlist(object.handle);
      list(object.handle, key);
    }
  }
  void list(std::int32_t state, std::uint64_t key) noexcept {
    states_.insert(state, key);
    guarded_ += key >= branch_point ? 1 : 0;
  }
  void unlist(std::int32_t state) noexcept {
    guarded_ -= states_.key(state) >= branch_point ? 1 : 0;
    states_.erase(state);
  }

  BranchPoints rule_;
  OrderSizes sizes_;
  SafeAttention blocks_;
  IndexedHeap<std::uint64_t> states_;  ///< cached states, by class and release
  std::uint64_t clock_ = 0;
  RequestCounts counts_;
  Units guarded_ = 0;
  std::uint64_t admissions_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
