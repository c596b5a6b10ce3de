// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <hybridstate/core/config.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

using Bytes = std::uint64_t;
using Tokens = std::uint32_t;   ///< a number of tokens, or a token position (boundary)
using Units = std::uint32_t;    ///< a number of pool units
using TokenId = std::uint32_t;  ///< a vocabulary id
using Step = std::uint64_t;     ///< scheduler steps; 0 is "before the first step"

/// An index into a table; negative means absent. Distinct tags do not convert into each other.
template <class Tag>
struct Index {
  std::int32_t value = -1;

  constexpr explicit operator bool() const noexcept { return value >= 0; }
  constexpr std::size_t at() const noexcept { return static_cast<std::size_t>(value); }
  friend constexpr bool operator==(Index a, Index b) noexcept { return a.value == b.value; }
  friend constexpr bool operator!=(Index a, Index b) noexcept { return a.value != b.value; }
};

using UnitIndex = Index<struct UnitTag>;             ///< a unit inside one pool; 0 is valid
using AttentionHandle = Index<struct AttentionTag>;  ///< one attention block, all its units
using StateHandle = Index<struct StateTag>;          ///< one recurrent state, all members and slots
using CarrierHandle = Index<struct CarrierTag>;    ///< a unit that several states share (slab page)
using NodeIndex = Index<struct NodeTag>;           ///< a prefix node
using SequenceHandle = Index<struct SequenceTag>;  ///< an admitted (or preempted) sequence

inline constexpr int max_pools = 2;

/// One number of units per pool; entries past the organization's pool count are zero.
struct PoolUnits {
  Units of[max_pools] = {0, 0};

  constexpr Units& operator[](int pool) noexcept { return of[pool]; }
  constexpr Units operator[](int pool) const noexcept { return of[pool]; }
  friend constexpr bool operator==(PoolUnits a, PoolUnits b) noexcept {
    return a.of[0] == b.of[0] && a.of[1] == b.of[1];
  }
};

template <class T>
constexpr T ceil_div(T a, T b) noexcept {
  return a / b + (a % b != 0 ? T{1} : T{0});
}
template <class T>
constexpr T round_up(T a, T b) noexcept {
  return ceil_div(a, b) * b;
}

HYBRIDSTATE_NAMESPACE_END
