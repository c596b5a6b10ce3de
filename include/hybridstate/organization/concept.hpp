// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <hybridstate/pool/unit_pool.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// What one operation wants: attention blocks, recurrent states, and the state that it adopts
/// (whose idle carriers wake up and then lend their free slots).
struct Demand {
  Units attention_blocks = 0;
  Units states = 0;
  StateHandle adopted{};
};

/// Which carriers a need may count on.
enum class SlabUse : std::uint8_t {
  all,   ///< active slabs, then idle ones with room, then new ones: what a take does
  each,  ///< active slabs, then a unit for every further slot: the most that takes can cost, since
         ///< what they reclaim on the way may show single free slots to first fit
  active,  ///< active and new ones, as if everything cached were gone
  none,    ///< new ones, as if the pools were empty
};

/// Own units of one attention block or one state, by what they hold.
struct UnitUse {
  Units attention = 0;  ///< units of an attention block
  Units ssm = 0;        ///< SSM members of a state (S0, D0: whole composites)
  Units conv = 0;       ///< dedicated convolution pages of a state
  Units slots = 0;      ///< slots of a state in carriers, which are no units of its own
};

/// Where one kind of state starts inside a pool and how far apart its rows are, in bytes of one
/// layer group; the row index comes from ssm_page or conv_line. See architecture section 6.
struct RowAddress {
  std::uint64_t base = 0;
  std::uint64_t stride = 0;
};

namespace detail {
/// Stand-in for the cache's call in concept checks.
struct IgnoreReassign {
  void operator()(int, UnitIndex) const noexcept {}
};
struct IgnoreUnit {
  void operator()(int, UnitIndex) const noexcept {}
};
struct IgnoreCarrier {
  void operator()(CarrierHandle, bool = false) const noexcept {}
};
struct IgnoreState {
  void operator()(StateHandle) const noexcept {}
};
}  // namespace detail

/// A memory organization says where bytes live and nothing else: it never hashes, counts references
/// or picks a victim. The requirements by group; each failed line of a violated concept names one.
template <class O>
concept organization_facts = requires(const O& o, int pool) {
  { O::pools } -> std::convertible_to<int>;                    // 1 shared, 2 static
  { o.block_tokens() } noexcept -> std::same_as<Tokens>;       // per attention block
  { o.checkpoint_tokens() } noexcept -> std::same_as<Tokens>;  // between checkpoints
  { o.unit_bytes(pool) } noexcept -> std::same_as<Bytes>;      // of one layer group
  { o.attention_payload_bytes_per_token() } noexcept -> std::same_as<Bytes>;
  { o.state_payload_bytes() } noexcept -> std::same_as<Bytes>;
};

template <class O>
concept organization_pools = requires(O& o, const O& c, int pool) {
  { o.pool(pool) } noexcept -> std::same_as<UnitPool&>;
  { c.pool(pool) } noexcept -> std::same_as<const UnitPool&>;
  { O::attention_pool } -> std::convertible_to<int>;
  { O::state_pool } -> std::convertible_to<int>;
  { c.max_attention_blocks() } noexcept -> std::same_as<Units>;  // table sizes
  { c.max_states() } noexcept -> std::same_as<Units>;
};

template <class O>
concept organization_takes =
    requires(O& o, const O& c, Demand demand, AttentionHandle a, StateHandle s,
             detail::IgnoreReassign before_reassign, detail::IgnoreCarrier freed) {
      { c.need(demand) } noexcept -> std::same_as<PoolUnits>;  // exact units per pool
      { c.need(demand, SlabUse::none) } noexcept -> std::same_as<PoolUnits>;
      { o.take_attention(before_reassign) } noexcept -> std::same_as<AttentionHandle>;
      { o.take_state(before_reassign) } noexcept -> std::same_as<StateHandle>;
      { o.give_back(a) } noexcept;
      { o.give_back(s, freed) } noexcept;
    };

template <class O>
concept organization_members = requires(O& o, const O& c, AttentionHandle a, StateHandle s,
                                        CarrierHandle carrier, int group, int member) {
  { c.for_each_own_unit(a, detail::IgnoreUnit{}) } noexcept;
  { c.for_each_own_unit(s, detail::IgnoreUnit{}) } noexcept;    // members, never a carrier
  { c.for_each_carrier(s, detail::IgnoreCarrier{}) } noexcept;  // one call a slot
  { c.for_each_state_on(carrier, detail::IgnoreState{}) } noexcept;
  { c.carriers() } noexcept -> std::same_as<Units>;                 // slabs, in whatever state
  { c.carrier_unit(carrier) } noexcept -> std::same_as<UnitIndex>;  // in the state pool
  { o.set_active(carrier, true) } noexcept;
  { c.attention_unit(a, group) } noexcept -> std::same_as<std::int64_t>;
  { c.ssm_page(s, group, member) } noexcept -> std::same_as<std::int64_t>;
  { c.conv_line(s, group) } noexcept -> std::same_as<std::int64_t>;
  { O::whole_composites } -> std::convertible_to<bool>;  // SSM and conv lie side by side
  { c.ssm_address() } noexcept -> std::same_as<RowAddress>;
  { c.conv_address() } noexcept -> std::same_as<RowAddress>;
  { c.unit_use(0) } noexcept -> std::same_as<UnitUse>;
};

template <class O>
concept memory_organization = organization_facts<O> && organization_pools<O> &&
                              organization_takes<O> && organization_members<O>;

HYBRIDSTATE_NAMESPACE_END
