// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <hybridstate/device/address.hpp>
#include <hybridstate/organization/concept.hpp>
#include <string>

HYBRIDSTATE_NAMESPACE_BEGIN

/// How large a batch may get.
struct BatchLimits {
  std::uint32_t rows = 256;       ///< the largest batch; max_sequences when slots are the rows
  Tokens sequence_tokens = 0;     ///< of the longest sequence; 0: what the pool can hold
  std::uint32_t checkpoints = 0;  ///< that a row leaves in one step beside its destination
};

/// Where the parts of a row lie, in 32-bit entries from its start:
///
///     valid_until | tail: from, shift | source | destination | boundary, state | boundary, state |
///     … | attention blocks
///
/// A state is [recurrent groups][members + lines]: the member pages of a group, then its
/// convolution lines (several where a convolution state is wider than a page). Attention blocks are
/// [attention groups][blocks]. A model layer L of a kind belongs to group L / group_layers() of it.
struct BatchShape {
  std::uint32_t rows = 0;
  std::uint32_t checkpoints = 0;
  Units blocks = 0;  ///< columns of one attention group
  Units attention_groups = 1;
  Units recurrent_groups = 1;
  Units members = 1;
  Units lines = 1;

  static constexpr std::int64_t valid_until() noexcept { return 0; }
  static constexpr std::int64_t tail() noexcept { return 1; }
  constexpr std::int64_t group_entries() const noexcept { return std::int64_t{members} + lines; }
  constexpr std::int64_t state_entries() const noexcept {
    return group_entries() * recurrent_groups;
  }
  constexpr std::int64_t source(Units group = 0) const noexcept {
    return tail() + 2 + group * group_entries();
  }
  constexpr std::int64_t destination(Units group = 0) const noexcept {
    return source(group) + state_entries();
  }
  /// Of the k-th checkpoint.
  constexpr std::int64_t boundary(std::uint32_t k) const noexcept {
    return destination() + state_entries() + k * (1 + state_entries());
  }
  constexpr std::int64_t checkpoint(std::uint32_t k, Units group = 0) const noexcept {
    return boundary(k) + 1 + group * group_entries();
  }
  constexpr std::int64_t attention(Units group = 0) const noexcept {
    return boundary(checkpoints) + std::int64_t{group} * blocks;
  }
  /// Entries of a row, and from one row to the next.
  constexpr std::int64_t row_entries() const noexcept { return attention(attention_groups); }
  /// Entries of all tables.
  constexpr std::int64_t entries() const noexcept { return row_entries() * rows; }

  friend constexpr bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// A row whose content changed, and the smallest run of its entries that holds every change.
struct ChangedRow {
  std::int32_t row = 0;
  std::int32_t first = 0;  ///< from the row's start
  std::int32_t count = 0;

  friend constexpr bool operator==(const ChangedRow&, const ChangedRow&) = default;
};

/// Convolution lines of one state and group: more than one where it is wider than a page.
template <memory_organization Organization>
Units conv_line_count(const Organization& o) noexcept {
  return o.conv_address().stride < o.layout().conv_bytes() ? o.layout().conv_pages() : 1;
}

template <memory_organization Organization>
BatchShape batch_shape(const Organization& o, const BatchLimits& limits) noexcept {
  BatchShape s;
  s.rows = limits.rows;
  s.checkpoints = limits.checkpoints;
  s.blocks = o.max_attention_blocks();
  if (limits.sequence_tokens != 0)
    s.blocks = std::min(s.blocks, ceil_div(limits.sequence_tokens, o.block_tokens()));
  s.attention_groups = o.layout().attention_groups();
  s.recurrent_groups = o.layout().recurrent_groups();
  s.members = Organization::whole_composites ? 1 : o.layout().members();
  s.lines = conv_line_count(o);
  return s;
}

/// Why tables of these limits cannot work, as one sentence; empty when they can.
template <memory_organization Organization>
std::string problem(const Organization& o, const BatchLimits& limits) {
  auto const text = [](auto value) { return std::to_string(value); };
  constexpr std::uint64_t most = 0x7fffffff;
  if (limits.rows == 0 || limits.rows > most)
    return "batch: " + text(limits.rows) + " rows; give 1 to " + text(most);
  BatchShape const s = batch_shape(o, limits);
  if (std::uint64_t const tokens = std::uint64_t{s.blocks} * o.block_tokens(); tokens > most)
    return "batch: a row of " + text(s.blocks) + " blocks reaches token " + text(tokens) +
           ", but positions are 32 bits wide; limit sequence_tokens to " +
           text(most / o.block_tokens() * o.block_tokens());
  double const entries = static_cast<double>(s.attention_groups) * s.blocks +
                         (2.0 + s.checkpoints) * (1.0 + static_cast<double>(s.state_entries()));
  if (entries > static_cast<double>(most))
    return "batch: a row would have more than " + text(most) +
           " entries; limit sequence_tokens or checkpoints";
  int const pool = Organization::state_pool;
  auto const conv = o.conv_address();
  auto const units = std::int64_t{o.pool(pool).capacity()};
  auto const unit_bytes = static_cast<std::int64_t>(o.unit_bytes(pool));
  std::int64_t const lines =
      conv.stride == 0 ? 1 : unit_bytes / static_cast<std::int64_t>(conv.stride);
  if (!addressable(units, unit_bytes, lines))
    return "batch: " + text(units) + " units of " + text(lines) +
           " lines do not fit into 32-bit lines and 64-bit offsets; make the pool smaller";
  return {};
}

/// Calls put(entry) for the member pages of one group of a state, then for its convolution lines;
/// negative everywhere when the state is absent.
template <memory_organization Organization, class Put>
void for_each_state_entry(const Organization& o, const BatchShape& shape, StateHandle s,
                          Units group, Put&& put) {
  int const g = static_cast<int>(group);
  for (Units m = 0; m < shape.members; ++m)
    put(static_cast<std::int32_t>(o.ssm_page(s, g, static_cast<int>(m))));
  if constexpr (requires { o.conv_page(s, g, 0); })
    if (shape.lines > 1) {
      for (Units part = 0; part < shape.lines; ++part)
        put(static_cast<std::int32_t>(o.conv_page(s, g, static_cast<int>(part))));
      return;
    }
  put(static_cast<std::int32_t>(o.conv_line(s, g)));
}

HYBRIDSTATE_NAMESPACE_END
