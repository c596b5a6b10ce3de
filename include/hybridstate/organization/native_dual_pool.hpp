// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/organization/pooled.hpp>

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
class NativeDualPool : public detail::CompositeOrganization<Layout, 2> {
  using Base = detail::CompositeOrganization<Layout, 2>;

 public:
  /// The native grid of the layout (16 tokens; the recurrent interval).
  NativeDualPool(Layout layout, PoolUnits units)
      : NativeDualPool(layout, units,
                       DualPoolGrid{layout.native_block_tokens(), layout.native_interval()}) {}
  NativeDualPool(Layout layout, PoolUnits units, DualPoolGrid grid)
      : Base(problem(layout, units, grid), layout, units), grid_(grid) {}
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

  Tokens block_tokens() const noexcept { return grid_.block_tokens; }
  Tokens checkpoint_tokens() const noexcept { return grid_.checkpoint_tokens; }
  Bytes unit_bytes(int pool) const noexcept {
    return pool == 0 ? this->layout_.kv_bytes_per_token() * grid_.block_tokens
                     : this->layout_.composite_bytes();
  }
  RowAddress ssm_address() const noexcept { return {0, unit_bytes(1)}; }
  RowAddress conv_address() const noexcept { return {this->layout_.ssm_bytes(), unit_bytes(1)}; }
  UnitUse unit_use(int pool) const noexcept {
    return pool == 0 ? UnitUse{this->blocks_.width(), 0, 0} : UnitUse{0, this->states_.width(), 0};
  }

 private:
  DualPoolGrid grid_;
};

static_assert(memory_organization<NativeDualPool<>>);

HYBRIDSTATE_NAMESPACE_END
