// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/organization/detail.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// S1 (paper section 3.3): one shared pool of attention-sized pages. A recurrent state takes, per
/// layer group, its SSM member pages plus dedicated pages for the convolution state; the recurrent
/// kernel reads the page map, so members need not be neighbours.
template <state_layout Layout = StateLayout>
class RecurrentPaged {
 public:
  static constexpr int pools = 1;
  static constexpr int attention_pool = 0;
  static constexpr int state_pool = 0;
  static constexpr bool whole_composites = false;
  static constexpr const char* short_name = "S1";

  RecurrentPaged(Layout layout, Units units) : layout_(layout) {
    if (auto sentence = problem(layout, units); !sentence.empty())
      fail_configuration(std::move(sentence));
    pool_ = UnitPool(units);
    blocks_ = detail::UnitRows(units, layout.attention_groups());
    states_ = detail::UnitRows(units, pages_per_group() * layout.recurrent_groups());
  }
  static Result<RecurrentPaged> create(Layout layout, Units units) {
    if (auto sentence = problem(layout, units); !sentence.empty())
      return Failure{std::move(sentence)};
    return RecurrentPaged(layout, units);
  }
  static std::string problem(const Layout&, Units units) {
    return detail::pool_problem("RecurrentPaged", "shared", units, 1);
  }

  const Layout& layout() const noexcept { return layout_; }
  Tokens block_tokens() const noexcept { return layout_.block_tokens(); }
  Tokens checkpoint_tokens() const noexcept { return layout_.checkpoint_tokens(); }
  Bytes unit_bytes(int) const noexcept { return layout_.page_bytes(); }
  Bytes attention_payload_bytes_per_token() const noexcept {
    return layout_.kv_bytes_per_token() * layout_.attention_groups();
  }
  Bytes state_payload_bytes() const noexcept {
    return layout_.composite_bytes() * layout_.recurrent_groups();
  }

  UnitPool& pool(int) noexcept { return pool_; }
  const UnitPool& pool(int) const noexcept { return pool_; }
  Units max_attention_blocks() const noexcept { return pool_.capacity(); }
  Units max_states() const noexcept { return pool_.capacity(); }

  PoolUnits need(Demand d, SlabUse = SlabUse::all) const noexcept {
    return {{d.attention_blocks * blocks_.width() + d.states * states_.width(), 0}};
  }
  template <class BeforeReassign>
  AttentionHandle take_attention(BeforeReassign&& before_reassign) noexcept {
    return {blocks_.take(pool_, 0, UnitOwner::attention, before_reassign)};
  }
  template <class BeforeReassign>
  StateHandle take_state(BeforeReassign&& before_reassign) noexcept {
    return {states_.take(pool_, 0, UnitOwner::state, before_reassign)};
  }
  void give_back(AttentionHandle a) noexcept { blocks_.give_back(pool_, a.value); }
  template <class CarrierFreed>
  void give_back(StateHandle s, CarrierFreed&&) noexcept {
    states_.give_back(pool_, s.value);
  }

  template <class F>
  void for_each_own_unit(AttentionHandle a, F&& f) const noexcept {
    for (std::uint32_t g = 0; g < blocks_.width(); ++g) f(0, blocks_.at(a.value, g));
  }
  template <class F>
  void for_each_own_unit(StateHandle s, F&& f) const noexcept {
    for (std::uint32_t i = 0; i < states_.width(); ++i) f(0, states_.at(s.value, i));
  }
  template <class F>
  void for_each_carrier(StateHandle, F&&) const noexcept {}
  template <class F>
  void for_each_state_on(CarrierHandle, F&&) const noexcept {}
  Units carriers() const noexcept { return 0; }
  UnitIndex carrier_unit(CarrierHandle) const noexcept { return {}; }
  void set_active(CarrierHandle, bool) noexcept {}

  std::int64_t attention_unit(AttentionHandle a, int group) const noexcept {
    return a ? blocks_.at(a.value, static_cast<std::uint32_t>(group)).value : -1;
  }
  std::int64_t ssm_page(StateHandle s, int group, int member) const noexcept {
    if (!s || member < 0 || static_cast<std::uint32_t>(member) >= layout_.members()) return -1;
    return states_
        .at(s.value, row(group) + layout_.conv_pages() + static_cast<std::uint32_t>(member))
        .value;
  }
  /// The first convolution page of the group; a state wider than a page continues in conv_page.
  std::int64_t conv_line(StateHandle s, int group) const noexcept { return conv_page(s, group, 0); }
  std::int64_t conv_page(StateHandle s, int group, int part) const noexcept {
    if (!s || part < 0 || static_cast<std::uint32_t>(part) >= layout_.conv_pages()) return -1;
    return states_.at(s.value, row(group) + static_cast<std::uint32_t>(part)).value;
  }
  RowAddress ssm_address() const noexcept { return {0, unit_bytes(0)}; }
  RowAddress conv_address() const noexcept { return {0, unit_bytes(0)}; }
  UnitUse unit_use(int) const noexcept {
    return {blocks_.width(), layout_.members() * layout_.recurrent_groups(),
            layout_.conv_pages() * layout_.recurrent_groups()};
  }

 private:
  std::uint32_t pages_per_group() const noexcept {
    return layout_.members() + layout_.conv_pages();
  }
  std::uint32_t row(int group) const noexcept {
    return static_cast<std::uint32_t>(group) * pages_per_group();
  }

  [[no_unique_address]] Layout layout_;
  UnitPool pool_;
  detail::UnitRows blocks_;
  detail::UnitRows states_;  ///< per group: convolution pages, then SSM members
};

static_assert(memory_organization<RecurrentPaged<>>);

HYBRIDSTATE_NAMESPACE_END
