// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/organization/detail.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// The grid of a dual pool: tokens per attention unit and tokens between checkpoints.
struct DualPoolGrid {
  Tokens block_tokens = 0;
  Tokens checkpoint_tokens = 0;
};

/// D0 (paper section 3.5): two static pools with units in native sizes, attention blocks of a few
/// tokens and whole recurrent composites. Capacity never moves from one pool to the other. With a
/// 512/512 grid this is D0-M512.
template <state_layout Layout = StateLayout>
class NativeDualPool {
 public:
  static constexpr int pools = 2;
  static constexpr int attention_pool = 0;
  static constexpr int state_pool = 1;
  static constexpr bool whole_composites = true;
  static constexpr const char* short_name = "D0";

  /// The native grid of the layout (16 tokens; the recurrent interval).
  NativeDualPool(Layout layout, PoolUnits units)
      : NativeDualPool(layout, units,
                       DualPoolGrid{layout.native_block_tokens(), layout.native_interval()}) {}
  NativeDualPool(Layout layout, PoolUnits units, DualPoolGrid grid) : layout_(layout), grid_(grid) {
    if (auto sentence = problem(layout, units, grid); !sentence.empty())
      fail_configuration(std::move(sentence));
    pools_[0] = UnitPool(units[0]);
    pools_[1] = UnitPool(units[1]);
    blocks_ = detail::UnitRows(units[0], layout.attention_groups());
    states_ = detail::UnitRows(units[1], layout.recurrent_groups());
  }
  static Result<NativeDualPool> create(Layout layout, PoolUnits units, DualPoolGrid grid) {
    if (auto sentence = problem(layout, units, grid); !sentence.empty())
      return Failure{std::move(sentence)};
    return NativeDualPool(layout, units, grid);
  }
  static std::string problem(const Layout&, PoolUnits units, DualPoolGrid grid) {
    if (grid.block_tokens == 0 || grid.checkpoint_tokens == 0 ||
        grid.checkpoint_tokens % grid.block_tokens != 0)
      return "NativeDualPool: the grid of " + std::to_string(grid.block_tokens) + "/" +
             std::to_string(grid.checkpoint_tokens) +
             " tokens is not usable; the checkpoint interval must be a positive multiple of the "
             "attention block";
    auto sentence = detail::pool_problem("NativeDualPool", "attention", units[0], 1);
    return sentence.empty() ? detail::pool_problem("NativeDualPool", "recurrent", units[1], 1)
                            : sentence;
  }

  const Layout& layout() const noexcept { return layout_; }
  Tokens block_tokens() const noexcept { return grid_.block_tokens; }
  Tokens checkpoint_tokens() const noexcept { return grid_.checkpoint_tokens; }
  Bytes unit_bytes(int pool) const noexcept {
    return pool == 0 ? layout_.kv_bytes_per_token() * grid_.block_tokens
                     : layout_.composite_bytes();
  }
  Bytes attention_payload_bytes_per_token() const noexcept {
    return layout_.kv_bytes_per_token() * layout_.attention_groups();
  }
  Bytes state_payload_bytes() const noexcept {
    return layout_.composite_bytes() * layout_.recurrent_groups();
  }

  UnitPool& pool(int i) noexcept { return pools_[i]; }
  const UnitPool& pool(int i) const noexcept { return pools_[i]; }
  Units max_attention_blocks() const noexcept { return pools_[0].capacity(); }
  Units max_states() const noexcept { return pools_[1].capacity(); }

  PoolUnits need(Demand d, SlabUse = SlabUse::all) const noexcept {
    return {{d.attention_blocks * blocks_.width(), d.states * states_.width()}};
  }
  template <class BeforeReassign>
  AttentionHandle take_attention(BeforeReassign&& before_reassign) noexcept {
    return {blocks_.take(pools_[0], 0, UnitOwner::attention, before_reassign)};
  }
  template <class BeforeReassign>
  StateHandle take_state(BeforeReassign&& before_reassign) noexcept {
    return {states_.take(pools_[1], 1, UnitOwner::state, before_reassign)};
  }
  void give_back(AttentionHandle a) noexcept { blocks_.give_back(pools_[0], a.value); }
  template <class CarrierFreed>
  void give_back(StateHandle s, CarrierFreed&&) noexcept {
    states_.give_back(pools_[1], s.value);
  }

  template <class F>
  void for_each_own_unit(AttentionHandle a, F&& f) const noexcept {
    for (std::uint32_t g = 0; g < blocks_.width(); ++g) f(0, blocks_.at(a.value, g));
  }
  template <class F>
  void for_each_own_unit(StateHandle s, F&& f) const noexcept {
    for (std::uint32_t g = 0; g < states_.width(); ++g) f(1, states_.at(s.value, g));
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
    return s && member == 0 ? states_.at(s.value, static_cast<std::uint32_t>(group)).value : -1;
  }
  std::int64_t conv_line(StateHandle s, int group) const noexcept { return ssm_page(s, group, 0); }
  RowAddress ssm_address() const noexcept { return {0, unit_bytes(1)}; }
  RowAddress conv_address() const noexcept { return {layout_.ssm_bytes(), unit_bytes(1)}; }
  UnitUse unit_use(int pool) const noexcept {
    return pool == 0 ? UnitUse{blocks_.width(), 0, 0} : UnitUse{0, states_.width(), 0};
  }

 private:
  [[no_unique_address]] Layout layout_;
  DualPoolGrid grid_;
  UnitPool pools_[2];
  detail::UnitRows blocks_;
  detail::UnitRows states_;
};

static_assert(memory_organization<NativeDualPool<>>);

HYBRIDSTATE_NAMESPACE_END
