// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/types.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

enum class PlacementKind : std::uint8_t {
  dense,      ///< every boundary of the grid
  every_kth,  ///< every k-th boundary of the grid
  last_only,  ///< the last full boundary of the prompt
};

/// Which boundaries keep a state. At other boundaries the working state continues in place. The
/// same answer drives what a reserve takes and what an admission counts, so the two cannot drift
/// apart.
struct Placement {
  PlacementKind kind = PlacementKind::dense;
  std::uint32_t every = 1;  ///< k, for every_kth

  static constexpr Tokens never = 0xffffffffU;

  /// The first kept boundary after a position, or `never`. `prompt` is the length at admission.
  constexpr Tokens next(Tokens after, Tokens grid, Tokens prompt) const noexcept {
    if (kind == PlacementKind::last_only) {
      Tokens const last = prompt / grid * grid;
      return last > after ? last : never;
    }
    std::uint64_t const stride = std::uint64_t{grid} * (kind == PlacementKind::dense ? 1U : every);
    std::uint64_t const at = (after / stride + 1) * stride;
    return at >= never ? never : static_cast<Tokens>(at);
  }

  constexpr bool keeps(Tokens boundary, Tokens grid, Tokens prompt) const noexcept {
    return boundary > 0 && next(boundary - 1, grid, prompt) == boundary;
  }

  /// Kept boundaries strictly inside (after, end).
  constexpr Units inside(Tokens after, Tokens end, Tokens grid, Tokens prompt) const noexcept {
    if (end <= after + 1) return 0;
    if (kind == PlacementKind::last_only) return next(after, grid, prompt) < end ? 1 : 0;
    std::uint64_t const stride = std::uint64_t{grid} * (kind == PlacementKind::dense ? 1U : every);
    return static_cast<Units>((end - 1) / stride - after / stride);
  }
};

HYBRIDSTATE_NAMESPACE_END
