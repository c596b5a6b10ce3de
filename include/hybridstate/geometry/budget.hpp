// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/config.hpp>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <string>

HYBRIDSTATE_NAMESPACE_BEGIN

/// The memory organizations of Section 3 of the paper.
enum class OrganizationKind : std::uint8_t {
  coarse_page,       ///< S0
  recurrent_paged,   ///< S1
  conv_slab_packed,  ///< S2
  native_dual_pool,  ///< D0; on a matched grid (with_matched_native_grid) D0-M512
};

inline constexpr OrganizationKind organization_kinds[] = {
    OrganizationKind::coarse_page, OrganizationKind::recurrent_paged,
    OrganizationKind::conv_slab_packed, OrganizationKind::native_dual_pool};

/// "coarse-page", "recurrent-paged", "conv-slab-packed" or "native-dual-pool".
constexpr const char* organization_name(OrganizationKind kind) noexcept {
  switch (kind) {
    case OrganizationKind::coarse_page:
      return "coarse-page";
    case OrganizationKind::recurrent_paged:
      return "recurrent-paged";
    case OrganizationKind::conv_slab_packed:
      return "conv-slab-packed";
    case OrganizationKind::native_dual_pool:
      return "native-dual-pool";
  }
  return "";
}

/// The paper's name: "S0", "S1", "S2" or "D0".
constexpr const char* paper_name(OrganizationKind kind) noexcept {
  switch (kind) {
    case OrganizationKind::coarse_page:
      return "S0";
    case OrganizationKind::recurrent_paged:
      return "S1";
    case OrganizationKind::conv_slab_packed:
      return "S2";
    case OrganizationKind::native_dual_pool:
      return "D0";
  }
  return "";
}

/// Pools of the organization: one shared, or attention (0) and recurrent (1).
constexpr int pool_count(OrganizationKind kind) noexcept {
  return kind == OrganizationKind::native_dual_pool ? 2 : 1;
}
/// The pool that recurrent states are taken from; attention is always pool 0.
constexpr int state_pool(OrganizationKind kind) noexcept { return pool_count(kind) - 1; }

/// Bytes of one unit of the pool, in one layer; 0 for a pool that the organization lacks. Over its
/// layers a unit takes layout.group_layers() times as much.
template <state_layout L>
constexpr Bytes unit_bytes(OrganizationKind kind, const L& layout, int pool = 0) noexcept {
  if (pool < 0 || pool >= pool_count(kind)) return 0;
  switch (kind) {
    case OrganizationKind::coarse_page:
      return layout.coarse_page_bytes();
    case OrganizationKind::recurrent_paged:
    case OrganizationKind::conv_slab_packed:
      return layout.page_bytes();
    case OrganizationKind::native_dual_pool:
      return pool == 0 ? layout.native_unit_bytes() : layout.composite_bytes();
  }
  return 0;
}

/// Tokens of one attention object of the organization.
template <state_layout L>
constexpr Tokens block_tokens(OrganizationKind kind, const L& layout) noexcept {
  return kind == OrganizationKind::native_dual_pool ? layout.native_block_tokens()
                                                    : layout.block_tokens();
}

/// Tokens between checkpoints of the organization; a multiple of block_tokens().
template <state_layout L>
constexpr Tokens checkpoint_tokens(OrganizationKind kind, const L& layout) noexcept {
  return kind == OrganizationKind::native_dual_pool ? layout.native_interval()
                                                    : layout.checkpoint_tokens();
}

/// Units that belong to one recurrent state alone, over all its layer groups. A slot of a shared
/// slab (S2) is not counted.
template <state_layout L>
constexpr std::uint64_t own_state_units(OrganizationKind kind, const L& layout) noexcept {
  std::uint64_t const groups = layout.recurrent_groups();
  switch (kind) {
    case OrganizationKind::coarse_page:
    case OrganizationKind::native_dual_pool:
      return groups;
    case OrganizationKind::recurrent_paged:
      return groups * (std::uint64_t{layout.members()} + layout.conv_pages());
    case OrganizationKind::conv_slab_packed:
      return groups * (std::uint64_t{layout.members()} +
                       (layout.slots_per_slab() == 0 ? layout.conv_pages() : 0U));
  }
  return 0;
}

/// Slab pages for the convolution slots of `states` states without a hole, m of equation (3):
/// ceil(states x recurrent groups / slots). 0 when a slot is larger than a page.
template <state_layout L>
constexpr std::uint64_t ideal_slabs(const L& layout, std::uint64_t states) noexcept {
  if (layout.slots_per_slab() == 0) return 0;
  return ceil_div<std::uint64_t>(detail::saturating_product(states, layout.recurrent_groups()),
                                 layout.slots_per_slab());
}

/// One number of units per pool, in 64 bits: a demand may exceed every pool.
struct UnitDemand {
  std::uint64_t of[max_pools] = {0, 0};

  constexpr std::uint64_t operator[](int pool) const noexcept { return of[pool]; }
  constexpr bool fits(const PoolUnits& available) const noexcept {
    return of[0] <= available[0] && of[1] <= available[1];
  }
  friend constexpr bool operator==(const UnitDemand&, const UnitDemand&) = default;
};

/// What one sequence holds at its longest: its tokens, and by default the state that it writes plus
/// the destination that the next boundary needs.
struct SequenceDemand {
  Tokens tokens = 0;
  Units states = 2;
};

/// Units for `sequences` sequences that share nothing, convolution slots packed without a hole;
/// numbers that do not fit 64 bits stay at the largest one.
template <state_layout L>
constexpr UnitDemand units_needed(OrganizationKind kind, const L& layout, SequenceDemand demand,
                                  std::uint64_t sequences = 1) noexcept {
  std::uint64_t const blocks = ceil_div<std::uint64_t>(demand.tokens, block_tokens(kind, layout)) *
                               layout.attention_groups();
  std::uint64_t const states = detail::saturating_product(sequences, demand.states);
  std::uint64_t recurrent = detail::saturating_product(states, own_state_units(kind, layout));
  if (kind == OrganizationKind::conv_slab_packed)
    recurrent = detail::saturating_sum(recurrent, ideal_slabs(layout, states));
  UnitDemand need;
  need.of[0] = detail::saturating_product(sequences, blocks);
  int const pool = state_pool(kind);
  need.of[pool] = detail::saturating_sum(need.of[pool], recurrent);
  return need;
}

/// How many such sequences fit in `available` units at once. Subtract reserved units (the engine's
/// null page, one per pool) from a plan's units before the call. A demand of nothing returns 0.
template <state_layout L>
constexpr std::uint64_t sequences_that_fit(OrganizationKind kind, const L& layout,
                                           PoolUnits available, SequenceDemand demand) noexcept {
  if (units_needed(kind, layout, demand) == UnitDemand{}) return 0;
  std::uint64_t low = 0;  // fits
  std::uint64_t high = std::uint64_t{1} << 33;
  while (high - low > 1) {
    std::uint64_t const middle = low + (high - low) / 2;
    (units_needed(kind, layout, demand, middle).fits(available) ? low : high) = middle;
  }
  return low;
}

/// How D0 divides its bytes, in parts per million, so that plans need no floating point.
struct PoolSplit {
  std::uint32_t attention_ppm = 500000;

  static constexpr std::uint32_t whole = 1000000;
  constexpr std::uint32_t recurrent_ppm() const noexcept { return whole - attention_ppm; }
  constexpr bool sound() const noexcept { return attention_ppm > 0 && attention_ppm < whole; }
  friend constexpr bool operator==(const PoolSplit&, const PoolSplit&) = default;
};

/// The published splits (Table B-3).
inline constexpr PoolSplit falcon_split{527383};
inline constexpr PoolSplit granite_split{199699};

/// The split with its attention fraction moved by so many percentage points: Table E-12 calls the
/// default moved by -10, -5, +5 and +10 points RM10, RM05, RP05 and RP10. The result stays within
/// one part per million of the ends.
constexpr PoolSplit shifted(PoolSplit split, int points) noexcept {
  std::int64_t const ppm = std::int64_t{split.attention_ppm} + std::int64_t{points} * 10000;
  if (ppm < 1) return {1};
  if (ppm > PoolSplit::whole - 1) return {PoolSplit::whole - 1};
  return {static_cast<std::uint32_t>(ppm)};
}

namespace detail {

/// floor(bytes x ppm / 10^6) without overflow.
constexpr Bytes share(Bytes bytes, std::uint32_t ppm) noexcept {
  return bytes / PoolSplit::whole * ppm + bytes % PoolSplit::whole * ppm / PoolSplit::whole;
}

}  // namespace detail

/// The split in which an expected mix fills both D0 pools at once: its attention bytes against its
/// recurrent bytes, rounded to the nearest part per million.
template <state_layout L>
constexpr PoolSplit split_for(const L& layout, SequenceDemand mix) noexcept {
  auto const kind = OrganizationKind::native_dual_pool;
  UnitDemand const need = units_needed(kind, layout, mix);
  std::uint64_t a = detail::saturating_product(need[0], unit_bytes(kind, layout, 0));
  std::uint64_t r = detail::saturating_product(need[1], unit_bytes(kind, layout, 1));
  while (a > (std::uint64_t{1} << 42) || r > (std::uint64_t{1} << 42)) {
    a >>= 1;
    r >>= 1;
  }
  if (a + r == 0) return {};
  std::uint64_t const ppm = (a * PoolSplit::whole + (a + r) / 2) / (a + r);
  if (ppm < 1) return {1};
  if (ppm > PoolSplit::whole - 1) return {PoolSplit::whole - 1};
  return {static_cast<std::uint32_t>(ppm)};
}

/// An amount of memory and what it covers.
struct Budget {
  enum class Scope : std::uint8_t {
    per_layer,   ///< planner bytes of one layer; shared pools round to the nearest unit
    all_layers,  ///< bytes over all layers; never exceeded
  };
  Scope scope = Scope::per_layer;
  Bytes bytes = 0;
};

constexpr Budget bytes_per_layer(Bytes bytes) noexcept { return {Budget::Scope::per_layer, bytes}; }
constexpr Budget bytes_over_all_layers(Bytes bytes) noexcept {
  return {Budget::Scope::all_layers, bytes};
}
/// The budget that the paper labels b<number>: so many nominal planner units per layer.
template <state_layout L>
constexpr Budget nominal_budget(const L& layout, Units number) noexcept {
  return bytes_per_layer(detail::saturating_product(number, layout.planner_bytes()));
}

/// What a budget buys. Units include every page that the caller reserves, such as an engine's null
/// page: where one unit of each pool is reserved, the caller uses units[pool] - 1.
struct BudgetPlan {
  OrganizationKind kind = OrganizationKind::coarse_page;
  PoolUnits units{};
  Bytes unit_bytes[max_pools] = {0, 0};  ///< of one unit in one layer
  Units group_layers = 0;                ///< layers that a unit spans
  PoolSplit split{};                     ///< used by D0 only

  /// Planned bytes of one pool in one layer.
  constexpr Bytes pool_bytes(int pool) const noexcept { return units[pool] * unit_bytes[pool]; }
  /// Planned bytes in one layer, the scope of Table B-2.
  constexpr Bytes layer_bytes() const noexcept { return pool_bytes(0) + pool_bytes(1); }
  /// Planned bytes over all layers.
  constexpr Bytes total_bytes() const noexcept { return layer_bytes() * group_layers; }
};

/// The units of each pool that the budget buys (Table B-2). Shared pools round a per-layer budget
/// to the nearest unit and a total down; D0 divides first and rounds each pool down. Fails with a
/// sentence when a pool would be empty, too large for 32-bit indices, or the split is degenerate.
template <state_layout L>
Result<BudgetPlan> plan_budget(OrganizationKind kind, const L& layout, Budget budget,
                               PoolSplit split = {}) {
  BudgetPlan plan;
  plan.kind = kind;
  plan.group_layers = layout.group_layers();
  plan.split = split;
  bool const dual = kind == OrganizationKind::native_dual_pool;
  bool const total = budget.scope == Budget::Scope::all_layers;
  std::string const scope = total ? " bytes over all layers" : " bytes per layer";
  if (dual && !split.sound())
    return Failure{"split: an attention fraction of " + std::to_string(split.attention_ppm) +
                   " parts per million leaves one pool without memory; choose 1 to 999999"};
  if (budget.bytes > detail::largest_bytes)
    return Failure{"budget: " + std::to_string(budget.bytes) + scope +
                   " exceed 2^62; check the unit of the number"};
  for (int pool = 0; pool < pool_count(kind); ++pool) {
    Bytes const unit = unit_bytes(kind, layout, pool);
    Bytes const divisor = total ? unit * layout.group_layers() : unit;
    Bytes bytes = budget.bytes;
    if (dual) bytes = detail::share(bytes, pool == 0 ? split.attention_ppm : split.recurrent_ppm());
    std::uint64_t count = bytes / divisor;
    if (!dual && !total && bytes % divisor >= divisor - bytes % divisor) ++count;
    std::string const what =
        dual ? (pool == 0 ? "the attention pool" : "the recurrent pool") : "the pool";
    if (count == 0)
      return Failure{"budget: " + std::to_string(budget.bytes) + scope + " leave " + what + " " +
                     std::to_string(bytes) + ", less than one unit of " + std::to_string(divisor) +
                     "; give more memory" + (dual ? " or move the split" : "")};
    std::uint64_t limit = detail::largest_index;
    if (kind == OrganizationKind::conv_slab_packed && layout.slots_per_slab() != 0)
      limit /= layout.slots_per_slab();  // slots are numbered by 32-bit indices
    if (count > limit)
      return Failure{"budget: " + std::to_string(budget.bytes) + scope + " give " + what + " " +
                     std::to_string(count) + " units, more than the " + std::to_string(limit) +
                     " that 32-bit indices reach; use larger blocks or less memory"};
    plan.units[pool] = static_cast<Units>(count);
    plan.unit_bytes[pool] = unit;
  }
  if (detail::saturating_product(plan.layer_bytes(), plan.group_layers) > detail::largest_bytes)
    return Failure{"budget: " + std::to_string(budget.bytes) + scope +
                   " exceed 2^62 over all layers; check the unit of the number"};
  return plan;
}

HYBRIDSTATE_NAMESPACE_END
