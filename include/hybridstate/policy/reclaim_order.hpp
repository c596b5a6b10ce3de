// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// Where units wait and which cached objects go first. Hooks are told what changes; an order acts
/// at two places only: the end of the list at which a unit enters, and make_keyless.
///
///   resize(blocks, states)        once, before the first use
///   published_end()               where the units of a cached object enter
///   idle_carrier_end(published)   where a carrier enters that lost its last referenced state;
///                                 `published`: whether that state stays discoverable
///   released(view, object)        it became cached
///   referenced(view, object)      it is cached no more, or about to leave the index
///   node_changed(view, node)      states_below or units of the node crossed 0/1 or 1/2
///   make_keyless(view, pool, k)   reclaim whole objects until k keyless units stand at the front
template <class R>
concept reclaim_order_base = std::movable<R> && requires(R& r, Units blocks) {
  { R::counts_states_below } -> std::convertible_to<bool>;  // keep PrefixNode::states_below
  { r.resize(blocks, blocks) };
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
  SlabPosition slab_position = SlabPosition::by_last_state;

  void resize(Units, Units) {}
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

/// Least recently used with path safety: an unreferenced attention unit does not go while a live
/// state at or below its node needs it, so reclaiming never orphans a checkpoint. Victims are whole
/// objects, oldest release first; a duplicate on a node may go while another unit stays.
class PathSafeLru {
 public:
  static constexpr bool counts_states_below = true;

  void resize(Units blocks, Units states) {
    blocks_ = IndexedHeap<std::uint64_t>(blocks);
    states_ = IndexedHeap<std::uint64_t>(states);
    released_at_ = FixedArray<std::uint64_t>(blocks);
  }
  ListEnd published_end() const noexcept { return ListEnd::back; }
  ListEnd idle_carrier_end(bool) const noexcept { return ListEnd::back; }

  template <class View>
  void released(View& view, ObjectRef object) noexcept {
    std::uint64_t const stamp = ++clock_;
    if (object.kind == ObjectKind::checkpoint) {
      states_.insert(object.handle, stamp);
      return;
    }
    released_at_[static_cast<std::size_t>(object.handle)] = stamp;
    refresh(view, object);
  }

  template <class View>
  void referenced(View&, ObjectRef object) noexcept {
    auto& heap = object.kind == ObjectKind::checkpoint ? states_ : blocks_;
    if (heap.contains(object.handle)) heap.erase(object.handle);
  }

  template <class View>
  void node_changed(View& view, NodeIndex node) noexcept {
    for (ObjectRef a{ObjectKind::attention, view.node(node).oldest_unit}; a.handle >= 0;
         a = view.next_on_node(a))
      refresh(view, a);
  }

  template <class View>
  void make_keyless(View& view, int pool, Units k) noexcept {
    while (view.pool(pool).keyless() < k) {
      bool const block = !blocks_.empty() && (View::pools == 1 || pool == 0);
      bool const state = !states_.empty() && !(View::pools == 2 && block);
      if (block && (!state || blocks_.top_key() < states_.top_key()))
        view.reclaim({ObjectKind::attention, blocks_.top()});
      else if (state)
        view.reclaim({ObjectKind::checkpoint, states_.top()});
      else
        view.reclaim_owner(pool, first_cached(view.pool(pool)));
    }
  }

 private:
  template <class View>
  void refresh(View& view, ObjectRef a) noexcept {
    PrefixNode const& node = view.node(view.node_of(a));
    bool const wanted = view.reclaimable(a) && (node.states_below == 0 || node.units > 1);
    if (wanted == blocks_.contains(a.handle)) return;
    if (wanted)
      blocks_.insert(a.handle, released_at_[static_cast<std::size_t>(a.handle)]);
    else
      blocks_.erase(a.handle);
  }

  static UnitIndex first_cached(const UnitPool& pool) noexcept {
    UnitIndex u = pool.front();
    while (pool.owner(u) == UnitOwner::none) u = pool.next(u);
    return u;
  }

  IndexedHeap<std::uint64_t> blocks_;  ///< attention that may go, by release
  IndexedHeap<std::uint64_t> states_;  ///< cached states, by release
  FixedArray<std::uint64_t> released_at_;
  std::uint64_t clock_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
