// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/pool/unit_pool.hpp>
#include <string>
#include <vector>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace detail {

/// A sentence when a pool cannot be built, else empty. `lines_per_unit` bounds the kernel-facing
/// line index, which is 32 bits wide.
inline std::string pool_problem(const char* organization, const char* pool, Units units,
                                std::uint64_t lines_per_unit) {
  std::uint64_t const most = 0x7fffffffULL / (lines_per_unit == 0 ? 1 : lines_per_unit);
  if (units == 0)
    return std::string(organization) + ": the " + pool + " pool has 0 units; give it at least 1";
  if (units > most)
    return std::string(organization) + ": the " + pool + " pool has " + std::to_string(units) +
           " units, but a 32-bit line index reaches only " + std::to_string(most);
  return {};
}

/// The units of blocks or states that take several from one pool: a row of fixed width per handle,
/// and the handle is the row's first unit. Width 1 needs no memory.
class UnitRows {
 public:
  UnitRows() = default;
  UnitRows(Units units, std::uint32_t width)
      : width_(width), rows_(width > 1 ? std::size_t{units} * width : 0) {}

  std::uint32_t width() const noexcept { return width_; }
  UnitIndex at(std::int32_t handle, std::uint32_t i) const noexcept {
    return width_ == 1 ? UnitIndex{handle} : rows_[row(handle) + i];
  }

  /// Takes a whole row or, when the pool is too short, nothing (-1).
  template <class BeforeReassign>
  std::int32_t take(UnitPool& pool, int pool_index, UnitOwner owner,
                    BeforeReassign& before_reassign) noexcept {
    if (pool.available() < width_) return -1;
    std::int32_t handle = -1;
    for (std::uint32_t i = 0; i < width_; ++i) {
      UnitIndex const u = pool.take_front();
      if (pool.owner(u) != UnitOwner::none) before_reassign(pool_index, u);
      if (i == 0) handle = u.value;
      pool.assign(u, owner, handle);
      if (width_ > 1) rows_[row(handle) + i] = u;
    }
    return handle;
  }

  void give_back(UnitPool& pool, std::int32_t handle) noexcept {
    for (std::uint32_t i = 0; i < width_; ++i) pool.release_keyless(at(handle, i));
  }

 private:
  std::size_t row(std::int32_t handle) const noexcept {
    return static_cast<std::size_t>(handle) * width_;
  }
  std::uint32_t width_ = 1;
  std::vector<UnitIndex> rows_;
};

/// What every organization over one or two pools has in common: rows of units for attention blocks
/// and states, and no carriers. With two pools, states live in the second. An organization derives
/// from it and adds its sizes, its facts for kernels, and whatever it shares between states.
template <state_layout Layout, int Pools>
class PooledOrganization {
 public:
  static constexpr int pools = Pools;
  static constexpr int attention_pool = 0;
  static constexpr int state_pool = Pools - 1;

  const Layout& layout() const noexcept { return layout_; }
  Tokens block_tokens() const noexcept { return layout_.block_tokens(); }
  Tokens checkpoint_tokens() const noexcept { return layout_.checkpoint_tokens(); }
  Bytes attention_payload_bytes_per_token() const noexcept {
    return layout_.kv_bytes_per_token() * layout_.attention_groups();
  }
  Bytes state_payload_bytes() const noexcept {
    return layout_.composite_bytes() * layout_.recurrent_groups();
  }

  UnitPool& pool(int i) noexcept { return pools_[i]; }
  const UnitPool& pool(int i) const noexcept { return pools_[i]; }
  Units max_attention_blocks() const noexcept { return pools_[attention_pool].capacity(); }
  Units max_states() const noexcept { return pools_[state_pool].capacity(); }

  PoolUnits need(Demand d, SlabUse = SlabUse::all) const noexcept {
    PoolUnits units;
    units[attention_pool] += d.attention_blocks * blocks_.width();
    units[state_pool] += d.states * states_.width();
    return units;
  }
  template <class BeforeReassign>
  AttentionHandle take_attention(BeforeReassign&& before_reassign) noexcept {
    return {blocks_.take(pools_[attention_pool], attention_pool, UnitOwner::attention,
                         before_reassign)};
  }
  template <class BeforeReassign>
  StateHandle take_state(BeforeReassign&& before_reassign) noexcept {
    return {states_.take(pools_[state_pool], state_pool, UnitOwner::state, before_reassign)};
  }
  void give_back(AttentionHandle a) noexcept { blocks_.give_back(pools_[attention_pool], a.value); }
  template <class CarrierFreed>
  void give_back(StateHandle s, CarrierFreed&&) noexcept {
    states_.give_back(pools_[state_pool], s.value);
  }

  template <class F>
  HYBRIDSTATE_INLINE void for_each_own_unit(AttentionHandle a, F&& f) const noexcept {
    if (blocks_.width() == 1) [[likely]] {
      f(attention_pool, UnitIndex{a.value});
      return;
    }
    for (std::uint32_t i = 0; i < blocks_.width(); ++i) f(attention_pool, blocks_.at(a.value, i));
  }
  template <class F>
  void for_each_own_unit(StateHandle s, F&& f) const noexcept {
    for (std::uint32_t i = 0; i < states_.width(); ++i) f(state_pool, states_.at(s.value, i));
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

 protected:
  /// `sentence`: why the configuration cannot work; it fails before anything is allocated.
  PooledOrganization(const std::string& sentence, const Layout& layout, PoolUnits units,
                     std::uint32_t units_per_state)
      : layout_(layout) {
    if (!sentence.empty()) fail_configuration(sentence);
    for (int i = 0; i < Pools; ++i) pools_[i] = UnitPool(units[i]);
    blocks_ = UnitRows(units[attention_pool], layout.attention_groups());
    states_ = UnitRows(units[state_pool], units_per_state);
  }

  /// Unit `column` of the row of one group of a state, absent without the state.
  std::int64_t state_unit(StateHandle s, int group, std::uint32_t per_group,
                          std::uint32_t column) const noexcept {
    return s ? states_.at(s.value, static_cast<std::uint32_t>(group) * per_group + column).value
             : -1;
  }

  [[no_unique_address]] Layout layout_;
  UnitPool pools_[Pools];
  UnitRows blocks_;
  UnitRows states_;
};

/// Whole composites: a state is one unit per group, SSM first, its convolution state behind it.
template <state_layout Layout, int Pools>
class CompositeOrganization : public PooledOrganization<Layout, Pools> {
 public:
  static constexpr bool whole_composites = true;

  /// Pages are rows of whole composites: member 0 is the only one.
  std::int64_t ssm_page(StateHandle s, int group, int member) const noexcept {
    return member == 0 ? this->state_unit(s, group, 1, 0) : -1;
  }
  std::int64_t conv_line(StateHandle s, int group) const noexcept { return ssm_page(s, group, 0); }

 protected:
  CompositeOrganization(const std::string& sentence, const Layout& layout, PoolUnits units)
      : PooledOrganization<Layout, Pools>(sentence, layout, units, layout.recurrent_groups()) {}
};

}  // namespace detail
HYBRIDSTATE_NAMESPACE_END
