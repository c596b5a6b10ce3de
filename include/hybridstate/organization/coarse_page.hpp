// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/organization/detail.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// S0 (paper section 3.2): one shared pool of coarse pages. An attention block and a recurrent
/// state each take one page per layer group, whatever they leave unused in it.
///
/// `Layout` is StateLayout or a StaticLayout. Construction fails on a pool that cannot work.
template <state_layout Layout = StateLayout>
class CoarsePage {
 public:
  static constexpr int pools = 1;
  static constexpr int attention_pool = 0;
  static constexpr int state_pool = 0;
  static constexpr bool whole_composites = true;
  static constexpr const char* short_name = "S0";

  CoarsePage(Layout layout, Units units) : layout_(layout) {
    if (auto sentence = problem(layout, units); !sentence.empty())
      fail_configuration(std::move(sentence));
    pool_ = UnitPool(units);
    blocks_ = detail::UnitRows(units, layout.attention_groups());
    states_ = detail::UnitRows(units, layout.recurrent_groups());
  }
  static Result<CoarsePage> create(Layout layout, Units units) {
    if (auto sentence = problem(layout, units); !sentence.empty())
      return Failure{std::move(sentence)};
    return CoarsePage(layout, units);
  }
  static std::string problem(const Layout&, Units units) {
    return detail::pool_problem("CoarsePage", "shared", units, 1);
  }

  const Layout& layout() const noexcept { return layout_; }
  Tokens block_tokens() const noexcept { return layout_.block_tokens(); }
  Tokens checkpoint_tokens() const noexcept { return layout_.checkpoint_tokens(); }
  Bytes unit_bytes(int) const noexcept { return layout_.coarse_page_bytes(); }
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
    for (std::uint32_t g = 0; g < states_.width(); ++g) f(0, states_.at(s.value, g));
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
  /// Pages are rows of whole composites: member 0 is the only one.
  std::int64_t ssm_page(StateHandle s, int group, int member) const noexcept {
    return s && member == 0 ? states_.at(s.value, static_cast<std::uint32_t>(group)).value : -1;
  }
  std::int64_t conv_line(StateHandle s, int group) const noexcept { return ssm_page(s, group, 0); }
  RowAddress ssm_address() const noexcept { return {0, unit_bytes(0)}; }
  RowAddress conv_address() const noexcept { return {layout_.ssm_bytes(), unit_bytes(0)}; }
  UnitUse unit_use(int) const noexcept { return {blocks_.width(), states_.width(), 0}; }

 private:
  [[no_unique_address]] Layout layout_;
  UnitPool pool_;
  detail::UnitRows blocks_;
  detail::UnitRows states_;
};

static_assert(memory_organization<CoarsePage<>>);

HYBRIDSTATE_NAMESPACE_END
