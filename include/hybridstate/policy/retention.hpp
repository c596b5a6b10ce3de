// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/config.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// Which running sequences keep a demanded boundary alive (paper section 4.5, Q8 and Q9).
enum class RetentionMode : std::uint8_t {
  none,
  producer,  ///< the one that computed its checkpoint
  holders,   ///< every one that computed or adopted it
};

enum class RetentionYield : std::uint8_t {
  never,
  before_preemption,  ///< before a reserve fails: least demanded first, then shallowest, then
                      ///< oldest
};

/// Boundaries that `distinct` requesters have asked for keep their reference while a holder runs,
/// instead of becoming cached at the holder's next step. Decided when the boundary would be given
/// back, on the count at that moment. A sequence that runs alone always yields, so that retention
/// can never make it fail.
struct Retention {
  RetentionMode mode = RetentionMode::none;
  std::uint32_t distinct = 2;  ///< K: 1 to max_counted_requesters + 1
  RetentionYield yield = RetentionYield::never;
};

/// Checkpoint pinning at preemption (paper Appendix B.2): a preempted sequence keeps a reference on
/// the rightmost boundary of its path if `distinct` requesters have asked for it, until it is
/// admitted again. R0, R1, R2 are K = 3, 2, 1. Pins hold at most `protection_budget` of each pool,
/// and go, the longest preempted first, before the head of the line would be refused while nothing
/// runs.
struct Pinning {
  std::uint32_t distinct = 0;  ///< K; 0: off
  double protection_budget = 0.10;
};

HYBRIDSTATE_NAMESPACE_END
