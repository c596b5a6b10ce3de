// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <hybridstate/core/array.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/organization/pooled.hpp>
#include <hybridstate/pool/slot_slab.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// S2 (paper section 3.4): like S1, but convolution states sit in slots of shared slab pages, one
/// slot per recurrent layer group. A slab page is a carrier: its reassignment costs every state
/// with a slot in it. A convolution state wider than a page has no slots: it takes dedicated pages,
/// as in S1.
template <state_layout Layout = StateLayout>
class ConvSlabPacked : public detail::PooledOrganization<Layout, 1> {
  using Base = detail::PooledOrganization<Layout, 1>;

 public:
  using Base::pool;
  static constexpr bool whole_composites = false;

  ConvSlabPacked(Layout layout, Units units)
      : Base(problem(layout, units), layout, {{units, 0}},
             (layout.members() + dedicated_pages(layout)) * layout.recurrent_groups()),
        dedicated_(dedicated_pages(layout)) {
    if (dedicated_ > 0) return;
    slots_per_state_ = layout.recurrent_groups();
    slabs_ = SlotSlab(units, layout.slots_per_slab());
    lines_ = FixedArray<std::int32_t>(std::size_t{units} * slots_per_state_);
    claimed_ = FixedArray<std::int32_t>(slots_per_state_);
  }
  static Result<ConvSlabPacked> create(Layout layout, Units units) {
    if (auto sentence = problem(layout, units); !sentence.empty())
      return Failure{std::move(sentence)};
    return ConvSlabPacked(layout, units);
  }
  static std::string problem(const Layout& layout, Units units) {
    return detail::pool_problem("ConvSlabPacked", "shared", units, layout.slots_per_slab());
  }

  Bytes unit_bytes(int) const noexcept { return layout_.page_bytes(); }
  const SlotSlab& slabs() const noexcept { return slabs_; }

  /// Members, plus one unit for each idle slab that would be used and each new slab, after the free
  /// slots of active slabs; the adopted state's slabs count as active.
  PoolUnits need(Demand d, SlabUse use = SlabUse::all) const noexcept {
    Units units = d.attention_blocks * blocks_.width() + d.states * states_.width();
    if (dedicated_ > 0) return {{units, 0}};
    Units slots = d.states * slots_per_state_;
    if (use != SlabUse::none) slots -= std::min(slots, slabs_.free_in_active());
    if (use == SlabUse::each) return {{units + slots, 0}};
    if (d.adopted) units += woken(d.adopted, slots);
    UnitIndex u = use == SlabUse::all ? slabs_.first_idle_with_room() : UnitIndex{};
    for (; u && slots > 0; u = slabs_.next_idle_with_room(u)) {
      if (d.adopted && holds_slot_in(d.adopted, u)) continue;
      ++units;
      slots -= std::min(slots, slabs_.free_slots(u));
    }
    return {{units + ceil_div<Units>(slots, slabs_.slots()), 0}};
  }

  /// Slots first, then members. A new slab page may come off the list like any unit; an idle slab
  /// with room leaves the list and loses nothing.
  template <class BeforeReassign>
  StateHandle take_state(BeforeReassign&& before_reassign) noexcept {
    if (need({0, 1, {}})[0] > pool().available()) return {};
    // The handle is the first member's unit, which is not taken yet: slots are claimed under a
    // placeholder and renamed once the members are there.
    for (std::uint32_t g = 0; g < slots_per_state_; ++g) {
      UnitIndex const slab = slab_with_room(before_reassign);
      claimed_[g] = slab.value * static_cast<std::int32_t>(slabs_.slots()) +
                    static_cast<std::int32_t>(slabs_.take(slab, placeholder));
    }
    StateHandle const s{states_.take(pool(), 0, UnitOwner::state, before_reassign)};
    HYBRIDSTATE_EXPECT(s, "need() covers every unit of a state", pool().available(),
                       slots_per_state_);
    for (std::uint32_t g = 0; g < slots_per_state_; ++g) {
      slabs_.rename(slab_of(claimed_[g]), slot_of(claimed_[g]), s);
      line(s, g) = claimed_[g];
    }
    return s;
  }

  using Base::give_back;

  /// Calls `freed(carrier, empty)` for every slot; a slab that became empty is no slab any more but
  /// a keyless unit at the front.
  template <class CarrierFreed>
  void give_back(StateHandle s, CarrierFreed&& freed) noexcept {
    states_.give_back(pool(), s.value);
    for (std::uint32_t g = 0; g < slots_per_state_; ++g) {
      UnitIndex const slab = slab_of(line(s, g));
      bool const empty = slabs_.give_back(slab, slot_of(line(s, g)));
      if (empty) pool().release_keyless(slab);
      freed(CarrierHandle{slab.value}, empty);
      line(s, g) = -1;
    }
  }

  template <class F>
  void for_each_carrier(StateHandle s, F&& f) const noexcept {
    for (std::uint32_t g = 0; g < slots_per_state_; ++g)
      f(CarrierHandle{slab_of(line(s, g)).value});
  }
  template <class F>
  void for_each_state_on(CarrierHandle c, F&& f) const noexcept {
    UnitIndex const u{c.value};
    for (std::uint32_t slot = 0; slot < slabs_.slots() && slabs_.is_slab(u); ++slot)
      if (StateHandle const s = slabs_.holder(u, slot)) f(s);
  }
  Units carriers() const noexcept { return slabs_.slabs(); }
  UnitIndex carrier_unit(CarrierHandle c) const noexcept { return {c.value}; }
  void set_active(CarrierHandle c, bool active) noexcept {
    slabs_.set_active(UnitIndex{c.value}, active);
  }

  std::int64_t ssm_page(StateHandle s, int group, int member) const noexcept {
    if (member < 0 || static_cast<std::uint32_t>(member) >= layout_.members()) return -1;
    return this->state_unit(s, group, pages_per_group(),
                            dedicated_ + static_cast<std::uint32_t>(member));
  }
  /// slots_per_slab * page + slot (paper section 3.4, (X2)); without slots the first dedicated
  /// page.
  std::int64_t conv_line(StateHandle s, int group) const noexcept {
    if (dedicated_ > 0) return conv_page(s, group, 0);
    return s ? line(s, static_cast<std::uint32_t>(group)) : -1;
  }
  /// A dedicated convolution page; absent where the state sits in a slot.
  std::int64_t conv_page(StateHandle s, int group, int part) const noexcept {
    if (part < 0 || static_cast<std::uint32_t>(part) >= dedicated_) return -1;
    return this->state_unit(s, group, pages_per_group(), static_cast<std::uint32_t>(part));
  }
  RowAddress ssm_address() const noexcept { return {0, unit_bytes(0)}; }
  RowAddress conv_address() const noexcept {
    return {0, dedicated_ > 0 ? layout_.page_bytes() : layout_.page_bytes() / slabs_.slots()};
  }
  UnitUse unit_use(int) const noexcept {
    Units const conv = dedicated_ * layout_.recurrent_groups();
    return {blocks_.width(), states_.width() - conv, conv, slots_per_state_};
  }

 private:
  using Base::blocks_;
  using Base::layout_;
  using Base::states_;

  UnitPool& pool() noexcept { return this->pools_[0]; }
  const UnitPool& pool() const noexcept { return this->pools_[0]; }
  static Units dedicated_pages(const Layout& layout) noexcept {
    return layout.slots_per_slab() == 0 ? layout.conv_pages() : 0;
  }

  static constexpr StateHandle placeholder{0x7fffffff};

  /// Dedicated convolution pages if any, then SSM members.
  Units pages_per_group() const noexcept { return layout_.members() + dedicated_; }

  UnitIndex slab_of(std::int32_t l) const noexcept {
    return {l / static_cast<std::int32_t>(slabs_.slots())};
  }
  std::uint32_t slot_of(std::int32_t l) const noexcept {
    return static_cast<std::uint32_t>(l) % slabs_.slots();
  }
  std::int32_t& line(StateHandle s, std::uint32_t g) noexcept {
    return lines_[s.at() * slots_per_state_ + g];
  }
  std::int32_t line(StateHandle s, std::uint32_t g) const noexcept {
    return lines_[s.at() * slots_per_state_ + g];
  }
  bool holds_slot_in(StateHandle s, UnitIndex u) const noexcept {
    for (std::uint32_t g = 0; g < slots_per_state_; ++g)
      if (slab_of(line(s, g)) == u) return true;
    return false;
  }
  /// Units for the idle slabs that adopting `s` wakes; their free slots serve `slots` first.
  Units woken(StateHandle s, Units& slots) const noexcept {
    Units units = 0;
    for (std::uint32_t g = 0; g < slots_per_state_; ++g) {
      UnitIndex const u = slab_of(line(s, g));
      if (slabs_.active(u)) continue;
      bool seen = false;
      for (std::uint32_t h = 0; h < g && !seen; ++h) seen = slab_of(line(s, h)) == u;
      if (seen) continue;
      ++units;
      slots -= std::min(slots, slabs_.free_slots(u));
    }
    return units;
  }
  template <class BeforeReassign>
  UnitIndex slab_with_room(BeforeReassign& before_reassign) noexcept {
    if (UnitIndex const u = slabs_.first_active_with_room()) return u;
    if (UnitIndex const u = slabs_.first_idle_with_room()) {
      if (pool().listed(u)) pool().unlist(u);
      slabs_.set_active(u, true);
      return u;
    }
    UnitIndex const u = pool().take_front();
    if (pool().owner(u) != UnitOwner::none) before_reassign(0, u);
    pool().assign(u, UnitOwner::carrier, u.value);
    slabs_.create(u);
    return u;
  }

  SlotSlab slabs_;
  Units dedicated_ = 0;  ///< convolution pages per group when slots do not fit
  Units slots_per_state_ = 0;
  FixedArray<std::int32_t> claimed_;
  FixedArray<std::int32_t> lines_;  ///< per state and group
};

static_assert(memory_organization<ConvSlabPacked<>>);

HYBRIDSTATE_NAMESPACE_END
