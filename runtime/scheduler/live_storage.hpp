// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <hybridstate/cache/types.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/storage_model.hpp>
#include <hybridstate/pool/slot_slab.hpp>
#include <type_traits>

#include "report/result.hpp"

namespace hybridstate::runtime {

/// The slabs of an organization that packs convolution states into slots, else null.
template <class Organization>
const auto* slabs_of(const Organization& organization) {
  if constexpr (requires { organization.slabs(); })
    return organization.slabs().slots() > 0 ? &organization.slabs() : nullptr;
  else
    return static_cast<const SlotSlab*>(nullptr);
}

/// M_X of what a cache holds at one moment, for every organization X.
///
/// The live set is the blocks and states that are referenced or cached. Its states count one for
/// one under every X. Its tokens are cut into X's blocks: whole ones, but for the open block that
/// each running sequence rounds up for itself. Slabs are those that hold the states where slabs
/// exist, else packed without a hole.
class LiveStorage {
 public:
  /// `native` with D0's own grid, `matched` with the shared pools' grid for D0-M512, both of one
  /// model; `budget` is the nominal one per layer.
  LiveStorage(const StateLayout& native, const StateLayout& matched, Bytes budget)
      : native_(native), matched_(matched), budget_(budget) {}

  Bytes budget() const noexcept { return budget_; }
  const StateLayout& layout() const noexcept { return native_; }

  /// In the order of stored_organizations. O(running sequences).
  template <class Scheduler>
  StoredBytes operator()(const Scheduler& scheduler, const Usage& usage) const {
    auto const& cache = scheduler.cache();
    auto const& organization = cache.organization();
    using Organization = std::decay_t<decltype(organization)>;
    PoolUsage const& a = usage.pool[Organization::attention_pool];
    PoolUsage const& r = usage.pool[Organization::state_pool];
    std::uint64_t const own = (a.attention_referenced + a.attention_cached) /
                              organization.unit_use(Organization::attention_pool).attention;
    std::uint64_t const tokens =
        usage.attention_payload / organization.attention_payload_bytes_per_token();
    auto const blocks_of = [&](Tokens size) {
      if (size == cache.block_tokens()) return own;
      std::uint64_t padded = tokens;
      scheduler.for_each_sequence(
          [&](SequenceHandle s) { padded += (size - cache.position(s) % size) % size; });
      return ceil_div<std::uint64_t>(padded, size);
    };
    StateSet set;
    set.attention = blocks_of(native_.block_tokens());
    set.recurrent =
        (r.ssm_referenced + r.ssm_cached) / organization.unit_use(Organization::state_pool).ssm;
    set.native_attention = blocks_of(native_.native_block_tokens());
    if (auto const* const slabs = slabs_of(organization)) set.slabs = slabs->slabs();
    StoredBytes bytes{};
    for (std::size_t i = 0; i < 4; ++i)
      bytes[i] = stored_bytes(organization_kinds[i], native_, set);
    set.native_attention = blocks_of(matched_.native_block_tokens());
    bytes[4] = stored_bytes(OrganizationKind::native_dual_pool, matched_, set);
    return bytes;
  }

 private:
  StateLayout native_;
  StateLayout matched_;
  Bytes budget_;
};

}  // namespace hybridstate::runtime
