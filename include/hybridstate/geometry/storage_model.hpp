// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <hybridstate/core/config.hpp>
#include <hybridstate/core/contract.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <numeric>
#include <optional>

// Closed forms of Section 3 and Appendix A: what a given set of objects takes. Bytes are those of
// one layer of each group (the paper's normalized scope); layout.group_layers() times as much over
// all layers. Results that do not fit 64 bits stay at the largest number.

HYBRIDSTATE_NAMESPACE_BEGIN

/// A set of live objects, each counted once however many sequences use it.
struct StateSet {
  std::uint64_t attention = 0;              ///< x_A: blocks of layout.block_tokens() tokens
  std::uint64_t recurrent = 0;              ///< x_R: recurrent checkpoints
  std::optional<std::uint64_t> slabs = {};  ///< m: allocated slabs; absent: packed without a hole
  /// x_A,16: D0's attention units; absent: those that hold as many tokens as `attention`.
  std::optional<std::uint64_t> native_attention = {};
};

/// D0's attention units that hold as many tokens as `blocks` blocks of the shared pools.
template <state_layout L>
constexpr std::uint64_t native_blocks(const L& layout, std::uint64_t blocks) noexcept {
  return ceil_div<std::uint64_t>(detail::saturating_product(blocks, layout.block_tokens()),
                                 layout.native_block_tokens());
}

/// Bytes that the attention objects take.
template <state_layout L>
constexpr Bytes attention_bytes(OrganizationKind kind, const L& layout,
                                const StateSet& set) noexcept {
  std::uint64_t const objects =
      kind == OrganizationKind::native_dual_pool
          ? set.native_attention.value_or(native_blocks(layout, set.attention))
          : set.attention;
  return detail::saturating_product(
      {objects, layout.attention_groups(), unit_bytes(kind, layout, 0)});
}

/// Bytes that the recurrent checkpoints take, convolution state and slabs included.
template <state_layout L>
constexpr Bytes recurrent_bytes(OrganizationKind kind, const L& layout,
                                const StateSet& set) noexcept {
  Bytes const unit = unit_bytes(kind, layout, state_pool(kind));
  Bytes own = detail::saturating_product({set.recurrent, own_state_units(kind, layout), unit});
  if (kind == OrganizationKind::conv_slab_packed) {
    std::uint64_t const slabs = set.slabs.value_or(ideal_slabs(layout, set.recurrent));
    own = detail::saturating_sum(own, detail::saturating_product(slabs, unit));
  }
  return own;
}

/// M_X: allocated bytes of the set under an organization. S0: equation (1); S1 and S2: the first
/// lines of (2) and (3); D0: the sum over both pools.
template <state_layout L>
constexpr Bytes stored_bytes(OrganizationKind kind, const L& layout, const StateSet& set) noexcept {
  return detail::saturating_sum(attention_bytes(kind, layout, set),
                                recurrent_bytes(kind, layout, set));
}

/// Bytes that the set fills with state: what remains of stored_bytes() without unused space. The
/// layers that pad the last group hold nothing and are not counted, so this is over all layers.
template <state_layout L>
constexpr Bytes payload_bytes_over_all_layers(const L& layout, const StateSet& set) noexcept {
  return detail::saturating_sum(
      detail::saturating_product(
          {set.attention, layout.attention_block_bytes(), layout.model().attention_layers}),
      detail::saturating_product(
          {set.recurrent, layout.composite_bytes(), layout.model().recurrent_layers}));
}

namespace detail {

/// a - b; exact for storage below 2^63.
constexpr std::int64_t difference(Bytes a, Bytes b) noexcept {
  return a >= b ? static_cast<std::int64_t>(a - b) : -static_cast<std::int64_t>(b - a);
}

}  // namespace detail

/// Bytes that `to` saves against `from` for the same set; negative when it takes more. S0 to S1 is
/// equation (2), S1 to S2 equation (4). Precondition: both store less than 2^63 bytes.
template <state_layout L>
constexpr std::int64_t saved_bytes(OrganizationKind from, OrganizationKind to, const L& layout,
                                   const StateSet& set) noexcept {
  return detail::difference(stored_bytes(from, layout, set), stored_bytes(to, layout, set));
}

/// Whether an allocated number of slabs can hold the checkpoints: the bound of equation (3).
template <state_layout L>
constexpr bool slabs_suffice(const L& layout, std::uint64_t recurrent,
                             std::uint64_t slabs) noexcept {
  return slabs >= ideal_slabs(layout, recurrent);
}

/// Convolution bytes of one dump under S1 and S2, equation (E1): `live` convolution states with
/// pages of their own, against the slab pages that held them.
struct ConvComparison {
  Bytes dedicated = 0;
  Bytes packed = 0;
  std::int64_t saved = 0;
};
template <state_layout L>
constexpr ConvComparison compare_conv(const L& layout, std::uint64_t live,
                                      std::uint64_t slab_pages) noexcept {
  ConvComparison c;
  c.dedicated = detail::saturating_product({live, layout.conv_pages(), layout.page_bytes()});
  c.packed = detail::saturating_product(slab_pages, layout.page_bytes());
  c.saved = detail::difference(c.dedicated, c.packed);
  return c;
}

/// Whether D0's two pools both hold the set; a sum that fits is not enough.
template <state_layout L>
constexpr bool fits_native(const L& layout, Bytes attention_pool, Bytes recurrent_pool,
                           const StateSet& set) noexcept {
  auto const kind = OrganizationKind::native_dual_pool;
  return attention_bytes(kind, layout, set) <= attention_pool &&
         recurrent_bytes(kind, layout, set) <= recurrent_pool;
}

/// A mix that is repeated until memory is full: attention objects and recurrent checkpoints of one
/// repetition. Attention objects are the organization's own (D0: native units).
struct ObjectMix {
  std::uint64_t attention = 0;
  std::uint64_t recurrent = 0;
};

/// The capacity of an empty mix, which nothing limits.
inline constexpr std::uint64_t unlimited = ~std::uint64_t{0};

/// Whole repetitions of the mix that two static pools hold, equation (D2).
template <state_layout L>
constexpr std::uint64_t native_capacity(const L& layout, Bytes attention_pool, Bytes recurrent_pool,
                                        ObjectMix mix) noexcept {
  auto const kind = OrganizationKind::native_dual_pool;
  StateSet const one{0, mix.recurrent, {}, mix.attention};
  Bytes const a = attention_bytes(kind, layout, one);
  Bytes const r = recurrent_bytes(kind, layout, one);
  std::uint64_t const by_attention = a == 0 ? unlimited : attention_pool / a;
  std::uint64_t const by_recurrent = r == 0 ? unlimited : recurrent_pool / r;
  return by_attention < by_recurrent ? by_attention : by_recurrent;
}

/// Whole repetitions of the mix that one shared pool of `memory` bytes holds when slabs are packed
/// without a hole, equation (A8). Precondition: kind is not native_dual_pool.
template <state_layout L>
constexpr std::uint64_t shared_capacity(OrganizationKind kind, const L& layout, Bytes memory,
                                        ObjectMix mix) noexcept {
  HYBRIDSTATE_EXPECT(pool_count(kind) == 1, "a shared pool; native_capacity() is for two pools",
                     pool_count(kind), memory);
  if (mix.attention == 0 && mix.recurrent == 0) return unlimited;
  if (memory == unlimited) --memory;  // the mark of a number too large must not fit
  std::uint64_t low = 0;
  std::uint64_t high = memory / layout.page_bytes() + 1;  // every repetition takes a page or more
  while (high - low > 1) {
    std::uint64_t const middle = low + (high - low) / 2;
    StateSet const set{detail::saturating_product(middle, mix.attention),
                       detail::saturating_product(middle, mix.recurrent),
                       {},
                       {}};
    (stored_bytes(kind, layout, set) <= memory ? low : high) = middle;
  }
  return low;
}

/// Which of two organizations takes less for a mix. With `kind == at_ratio` both take the same at
/// attention : recurrent, `with_more_attention` takes less when the mix has relatively more
/// attention blocks, and the other one when it has fewer.
struct BreakEven {
  enum class Kind : std::uint8_t { equal, first_always, second_always, at_ratio };
  Kind kind = Kind::equal;
  std::uint64_t attention = 0;
  std::uint64_t recurrent = 0;
  OrganizationKind with_more_attention = OrganizationKind::coarse_page;
};

/// The break-even mix of two organizations in attention blocks of layout.block_tokens() tokens and
/// recurrent checkpoints, for many objects: a slab costs its share per slot. "Always" means for
/// every mix that has both kinds of objects, and counts a tie in one of them as no obstacle.
template <state_layout L>
constexpr BreakEven break_even(OrganizationKind first, OrganizationKind second,
                               const L& layout) noexcept {
  // As many objects as fill whole slabs, so that the shares are whole numbers.
  std::uint64_t const scale = layout.slots_per_slab() == 0 ? 1U : layout.slots_per_slab();
  StateSet const a{scale, 0, {}, {}};
  StateSet const r{0, scale, {}, {}};
  std::int64_t const da = saved_bytes(second, first, layout, a);  // > 0: first takes less
  std::int64_t const dr = saved_bytes(second, first, layout, r);
  BreakEven result;
  if (da == 0 && dr == 0) return result;
  if (da >= 0 && dr >= 0) {
    result.kind = BreakEven::Kind::first_always;
  } else if (da <= 0 && dr <= 0) {
    result.kind = BreakEven::Kind::second_always;
  } else {
    // da x_A + dr x_R = 0
    auto const x_a = static_cast<std::uint64_t>(dr < 0 ? -dr : dr);
    auto const x_r = static_cast<std::uint64_t>(da < 0 ? -da : da);
    std::uint64_t const common = std::gcd(x_a, x_r);
    result.kind = BreakEven::Kind::at_ratio;
    result.attention = x_a / common;
    result.recurrent = x_r / common;
    result.with_more_attention = da > 0 ? first : second;
  }
  return result;
}

/// One row of a comparison of all organizations for one set.
struct StoredSet {
  OrganizationKind kind = OrganizationKind::coarse_page;
  Bytes bytes = 0;        ///< M_X
  double per_budget = 0;  ///< B / M_X: how often the set fits by bytes alone; 0 for an empty set
};

/// M_X and B / M_X under S0, S1, S2 and D0, in this order. For D0 the ratio ignores the split; see
/// native_capacity().
template <state_layout L>
constexpr std::array<StoredSet, 4> compare_storage(const L& layout, const StateSet& set,
                                                   Bytes budget) noexcept {
  std::array<StoredSet, 4> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    OrganizationKind const kind = organization_kinds[i];
    Bytes const bytes = stored_bytes(kind, layout, set);
    rows[i].kind = kind;
    rows[i].bytes = bytes;
    rows[i].per_budget =
        bytes == 0 ? 0.0 : static_cast<double>(budget) / static_cast<double>(bytes);
  }
  return rows;
}

HYBRIDSTATE_NAMESPACE_END
