// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/contract.hpp>
#include <hybridstate/core/first_set.hpp>
#include <hybridstate/core/types.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// Slots inside units: which unit is a slab, which of its slots are used and by whom. A slab is
/// active while one of its slots belongs to a referenced state, idle otherwise; the owner of the
/// references says which. First fit: an active slab with room, then an idle one with room.
class SlotSlab {
 public:
  SlotSlab() = default;
  SlotSlab(Units units, std::uint32_t slots)
      : slots_(slots),
        slabs_(FixedArray<Slab>(units)),
        holders_(FixedArray<StateHandle>(std::size_t{units} * slots)),
        by_used_(FixedArray<Units>(std::size_t{slots} + 1)),
        active_with_room_(units),
        idle_with_room_(units) {}

  std::uint32_t slots() const noexcept { return slots_; }
  bool is_slab(UnitIndex u) const noexcept { return slabs_[u.at()].exists; }
  bool active(UnitIndex u) const noexcept { return slabs_[u.at()].active; }
  std::uint32_t used(UnitIndex u) const noexcept { return slabs_[u.at()].used; }
  std::uint32_t free_slots(UnitIndex u) const noexcept { return slots_ - slabs_[u.at()].used; }
  StateHandle holder(UnitIndex u, std::uint32_t slot) const noexcept {
    return holders_[u.at() * slots_ + slot];
  }
  Units slabs() const noexcept { return count_; }
  Units used_slots() const noexcept { return used_; }
  /// Slabs with exactly so many used slots.
  Units slabs_with(std::uint32_t used) const noexcept { return by_used_[used]; }
  /// Units that became slabs since construction.
  std::uint64_t created() const noexcept { return created_; }

  /// Free slots in all active slabs.
  Units free_in_active() const noexcept { return free_in_active_; }
  UnitIndex first_active_with_room() const noexcept { return {active_with_room_.first()}; }
  UnitIndex first_idle_with_room() const noexcept { return {idle_with_room_.first()}; }
  UnitIndex next_idle_with_room(UnitIndex u) const noexcept {
    return {idle_with_room_.first_from(u.value + 1)};
  }

  /// Makes an empty, active slab of a unit.
  void create(UnitIndex u) noexcept {
    Slab& slab = slabs_[u.at()];
    HYBRIDSTATE_EXPECT(!slab.exists, "a unit becomes a slab once", u.value, slab.used);
    slab = {0, true, true};
    ++count_;
    ++created_;
    ++by_used_[0];
    free_in_active_ += slots_;
    active_with_room_.insert(u.value);
  }

  /// Gives the lowest free slot of a slab to a state.
  std::uint32_t take(UnitIndex u, StateHandle state) noexcept {
    Slab& slab = slabs_[u.at()];
    HYBRIDSTATE_EXPECT(slab.exists && slab.used < slots_, "the slab has room", u.value, slab.used);
    StateHandle* const held = &holders_[u.at() * slots_];
    std::uint32_t slot = 0;
    while (held[slot]) ++slot;
    held[slot] = state;
    --by_used_[slab.used];
    ++by_used_[++slab.used];
    ++used_;
    if (slab.active) --free_in_active_;
    if (slab.used == slots_) room(slab).erase(u.value);
    return slot;
  }

  /// Passes a used slot on to another state.
  void rename(UnitIndex u, std::uint32_t slot, StateHandle state) noexcept {
    holders_[u.at() * slots_ + slot] = state;
  }

  /// Frees a slot; true when it was the last one: the unit is no slab any more.
  bool give_back(UnitIndex u, std::uint32_t slot) noexcept {
    Slab& slab = slabs_[u.at()];
    StateHandle& holder = holders_[u.at() * slots_ + slot];
    HYBRIDSTATE_EXPECT(slab.exists && holder, "the slot is used", u.value, slot);
    holder = {};
    --used_;
    if (slab.active) ++free_in_active_;
    --by_used_[slab.used];
    if (slab.used-- == slots_) room(slab).insert(u.value);
    if (slab.used > 0) {
      ++by_used_[slab.used];
      return false;
    }
    room(slab).erase(u.value);
    if (slab.active) free_in_active_ -= slots_;
    slab = {};
    --count_;
    return true;
  }

  void set_active(UnitIndex u, bool active) noexcept {
    Slab& slab = slabs_[u.at()];
    if (slab.active == active) return;
    bool const has_room = slab.used < slots_;
    if (has_room) room(slab).erase(u.value);
    slab.active = active;
    if (has_room) room(slab).insert(u.value);
    if (active)
      free_in_active_ += slots_ - slab.used;
    else
      free_in_active_ -= slots_ - slab.used;
  }

 private:
  struct Slab {
    std::uint32_t used = 0;
    bool exists = false;
    bool active = false;
  };
  FirstSet& room(const Slab& slab) noexcept {
    return slab.active ? active_with_room_ : idle_with_room_;
  }

  std::uint32_t slots_ = 0;
  FixedArray<Slab> slabs_;
  FixedArray<StateHandle> holders_;
  FixedArray<Units> by_used_;
  FirstSet active_with_room_;
  FirstSet idle_with_room_;
  Units count_ = 0;
  Units used_ = 0;
  std::uint64_t created_ = 0;
  Units free_in_active_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
