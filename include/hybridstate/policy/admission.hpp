// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <hybridstate/core/types.hpp>
#include <hybridstate/pool/unit_pool.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// What a gate sees of the head of the line. It is asked only while other sequences run: with none,
/// a request that fits is admitted.
struct AdmissionView {
  Tokens tokens = 0;          ///< N: prompt plus tokens generated so far
  Tokens joint = 0;           ///< J
  std::uint32_t running = 0;  ///< sequences admitted and not released
  PoolUnits need;       ///< attention, states to keep, and cached units that J would reference
  PoolUnits available;  ///< keyless and cached units
  const UnitPool* pools[max_pools] = {};  ///< the lists themselves, victims first
};

/// Decides whether a request that could be admitted is admitted now: -1 admits, else the pool that
/// is too short.
template <class G>
concept admission_gate = requires(const G& gate, const AdmissionView& view) {
  { gate.refusing_pool(view) } noexcept -> std::same_as<int>;
};

/// need + H <= available in every pool (paper section 4.4). H = floor(f * B) is the caller's: B is
/// the planner's unit count.
struct FixedHeadroom {
  PoolUnits headroom;

  int refusing_pool(const AdmissionView& view) const noexcept {
    for (int pool = 0; pool < max_pools; ++pool)
      if (view.pools[pool] != nullptr &&
          std::uint64_t{view.need[pool]} + headroom[pool] > view.available[pool])
        return pool;
    return -1;
  }
};

static_assert(admission_gate<FixedHeadroom>);

HYBRIDSTATE_NAMESPACE_END
