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
  junction,   ///< that, the newest boundary of decode, and where the prompt left a known path
};

/// What a placement has to know of a request.
struct RequestBoundaries {
  Tokens prompt = 0;    ///< length at admission
  Tokens junction = 0;  ///< where the prompt left a known path that others follow; 0: nowhere
};

/// Which boundaries keep a state. At other boundaries the working state continues in place. The
/// same answer drives what a reserve takes and what an admission counts, so the two cannot drift
/// apart.
struct Placement {
  PlacementKind kind = PlacementKind::dense;
  std::uint32_t every = 1;  ///< k, for every_kth

  static constexpr Tokens never = 0xffffffffU;

  /// The first kept boundary after a position, or `never`.
  constexpr Tokens next(Tokens after, Tokens grid, RequestBoundaries of) const noexcept {
    Tokens const last = of.prompt / grid * grid;
    if (kind == PlacementKind::last_only) return last > after ? last : never;
    if (kind == PlacementKind::junction) {
      Tokens const junction = of.junction / grid * grid;
      if (junction > after && junction < last) return junction;
      if (last > after) return last;
    }
    std::uint64_t const stride =
        std::uint64_t{grid} * (kind == PlacementKind::every_kth ? every : 1U);
    std::uint64_t const at = (after / stride + 1) * stride;
    return at >= never ? never : static_cast<Tokens>(at);
  }

  constexpr bool keeps(Tokens boundary, Tokens grid, RequestBoundaries of) const noexcept {
    return boundary > 0 && next(boundary - 1, grid, of) == boundary;
  }

  /// Kept boundaries strictly inside (after, end).
  constexpr Units inside(Tokens after, Tokens end, Tokens grid,
                         RequestBoundaries of) const noexcept {
    if (end <= after + 1) return 0;
    if (kind == PlacementKind::last_only) return next(after, grid, of) < end ? 1 : 0;
    Units kept = 0;
    if (kind == PlacementKind::junction) {
      Tokens const last = of.prompt / grid * grid;
      for (; after < last; ++kept) {
        after = next(after, grid, of);
        if (after >= end) return kept;
      }
    }
    std::uint64_t const stride =
        std::uint64_t{grid} * (kind == PlacementKind::every_kth ? every : 1U);
    return kept + static_cast<Units>((end - 1) / stride - after / stride);
  }
};

HYBRIDSTATE_NAMESPACE_END
