// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/contract.hpp>
#include <hybridstate/core/list.hpp>
#include <hybridstate/core/types.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// What a unit holds. A keyless unit holds nothing: it has no owner.
enum class UnitOwner : std::uint8_t { none, attention, state, carrier };

/// Fixed units and ONE list of all unreferenced ones, keyless and cached alike. Takes come from the
/// front. A unit outside the list is referenced, fenced, or in hand (between take and assignment).
class UnitPool {
 public:
  UnitPool() = default;
  explicit UnitPool(Units capacity)
      : links_(capacity), owners_(FixedArray<Owner>(capacity)), keyless_(capacity) {
    for (Units i = 0; i < capacity; ++i) links_.push_back(list_, static_cast<std::int32_t>(i));
  }

  Units capacity() const noexcept { return links_.capacity(); }
  /// Units in the list: keyless and cached.
  Units available() const noexcept { return list_.size; }
  /// Units in the list that hold nothing.
  Units keyless() const noexcept { return keyless_; }

  bool listed(UnitIndex u) const noexcept { return links_.linked(u.value); }
  UnitIndex front() const noexcept { return {list_.head}; }
  UnitIndex next(UnitIndex u) const noexcept { return {links_.next(u.value)}; }

  UnitOwner owner(UnitIndex u) const noexcept { return owners_[u.at()].kind; }
  /// The handle of the owner; meaningless for a keyless unit.
  std::int32_t owner_handle(UnitIndex u) const noexcept { return owners_[u.at()].handle; }

  /// Takes the front unit out of the list. The caller clears what it held, then assigns it.
  UnitIndex take_front() noexcept {
    HYBRIDSTATE_EXPECT(list_.size > 0, "a unit can be taken from a list that has one", list_.size,
                       capacity());
    UnitIndex const u{list_.head};
    unlist(u);
    in_hand_ = u;
    return u;
  }

  /// Names the owner of a unit that is in hand.
  void assign(UnitIndex u, UnitOwner kind, std::int32_t handle) noexcept {
    HYBRIDSTATE_EXPECT(!listed(u), "only a unit outside the list gets an owner", u.value, handle);
    owners_[u.at()] = {handle, kind};
    in_hand_ = {};
  }

  /// The unit holds nothing any more: to the front of the list, from wherever it is. A unit in hand
  /// only loses its owner: it is on its way to a new one.
  void release_keyless(UnitIndex u) noexcept {
    if (listed(u)) unlist(u);
    owners_[u.at()] = {};
    if (u == in_hand_) return;
    ++keyless_;
    links_.push_front(list_, u.value);
  }

  void push_front(UnitIndex u) noexcept { links_.push_front(list_, u.value); }
  HYBRIDSTATE_INLINE void push_back(UnitIndex u) noexcept { links_.push_back(list_, u.value); }

  /// Takes a unit out of the list because it becomes referenced.
  void unlist(UnitIndex u) noexcept {
    links_.unlink(list_, u.value);
    if (owners_[u.at()].kind == UnitOwner::none) --keyless_;
  }
  /// The same for a unit that is known to hold something.
  HYBRIDSTATE_INLINE void unlist_cached(UnitIndex u) noexcept {
    HYBRIDSTATE_EXPECT(owner(u) != UnitOwner::none, "a cached unit has an owner", u.value, 0);
    links_.unlink(list_, u.value);
  }

 private:
  struct Owner {
    std::int32_t handle = -1;
    UnitOwner kind = UnitOwner::none;
  };
  IndexLinks links_;
  IndexLinks::List list_;
  FixedArray<Owner> owners_;
  UnitIndex in_hand_;
  Units keyless_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
