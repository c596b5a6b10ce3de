// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/core/types.hpp>
#include <hybridstate/device/address.hpp>
#include <hybridstate/geometry/layout.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// Where keys and values lie inside one attention unit of one layer, in bytes. All keys precede all
/// values; within each, a head's tokens lie together.
struct KvStrides {
  std::int64_t token = 0;  ///< from one token of a head to the next
  std::int64_t head = 0;   ///< from one KV head to the next
  std::int64_t value = 0;  ///< from a key to the value of the same token
  std::int32_t block_tokens = 0;

  friend constexpr bool operator==(const KvStrides&, const KvStrides&) = default;
};

/// The strides of a unit of `block_tokens` tokens: layout.block_tokens() in S0, S1 and S2,
/// layout.native_block_tokens() in D0.
template <class Layout>
HYBRIDSTATE_HD constexpr KvStrides kv_strides(const Layout& layout, Tokens block_tokens) noexcept {
  ModelGeometry const model = layout.model();
  KvStrides s;
  s.token = std::int64_t{model.head_dim} * model.kv_dtype_bytes;
  s.head = s.token * block_tokens;
  s.value = s.head * model.rank_kv_heads();
  s.block_tokens = static_cast<std::int32_t>(block_tokens);
  return s;
}

/// The same numbers as compile-time constants, for a StaticLayout.
template <class Layout, Tokens BlockTokens = Layout::block_tokens()>
struct StaticKvStrides {
  static constexpr std::int64_t token = kv_strides(Layout{}, BlockTokens).token;
  static constexpr std::int64_t head = kv_strides(Layout{}, BlockTokens).head;
  static constexpr std::int64_t value = kv_strides(Layout{}, BlockTokens).value;
  static constexpr std::int32_t block_tokens = kv_strides(Layout{}, BlockTokens).block_tokens;
};

/// Where a row's tail lies, a last block that shares its unit with the tails of others: tokens from
/// position `from` on are `shift` tokens further into the unit of their table entry. With parts of
/// 128 tokens, (unit, quarter) is the table's last entry and shift = 128 * quarter.
struct TailPlace {
  std::int32_t from = 0x7fffffff;  ///< no tail, or one at the start of its unit
  std::int32_t shift = 0;
};

/// The attention block tables of a batch, for one layer. `units[row * row_stride + k]` is the unit
/// that holds tokens [k * block_tokens, (k + 1) * block_tokens) of the sequence in that row.
template <class Strides = KvStrides>
struct AttentionBlocksOf {
  std::byte* base = nullptr;            ///< unit 0 of this layer
  const std::int32_t* units = nullptr;  ///< negative: absent
  std::int64_t row_stride = 0;          ///< table entries from one row to the next
  std::int64_t unit_stride = 0;         ///< bytes from one unit to the next
  [[no_unique_address]] Strides strides{};
  /// The TailPlace of row r at entry [r * tail_stride]; null: every block begins its unit.
  const std::int32_t* tails = nullptr;
  std::int64_t tail_stride = 0;

  /// The same tables with strides of another type and the same values.
  template <class Other>
  HYBRIDSTATE_HD constexpr AttentionBlocksOf<Other> with(Other same) const noexcept {
    return {base, units, row_stride, unit_stride, same, tails, tail_stride};
  }

  /// Of the key of `token` (a position in the sequence) in KV head `head`.
  HYBRIDSTATE_HD constexpr ByteOffset key_offset(std::int32_t row, std::int32_t head,
                                                 std::int32_t token) const noexcept {
    if (row < 0 || head < 0 || token < 0) return {};
    std::int32_t const unit = table_entry(units, row_stride, row, token / strides.block_tokens);
    if (unit < 0) return {};
    std::int32_t in_unit = token % strides.block_tokens;
    if (tails != nullptr) {
      const std::int32_t* const tail = tails + std::int64_t{row} * tail_stride;
      if (token >= tail[0]) in_unit += tail[1];
    }
    return {std::int64_t{unit} * unit_stride + std::int64_t{head} * strides.head +
            std::int64_t{in_unit} * strides.token};
  }
  HYBRIDSTATE_HD constexpr ByteOffset value_offset(std::int32_t row, std::int32_t head,
                                                   std::int32_t token) const noexcept {
    ByteOffset const key = key_offset(row, head, token);
    return key ? ByteOffset{key.value + strides.value} : key;
  }
  HYBRIDSTATE_HD constexpr std::byte* addr_key(std::int32_t row, std::int32_t head,
                                               std::int32_t token) const noexcept {
    return address(base, key_offset(row, head, token));
  }
  HYBRIDSTATE_HD constexpr std::byte* addr_value(std::int32_t row, std::int32_t head,
                                                 std::int32_t token) const noexcept {
    return address(base, value_offset(row, head, token));
  }
};

using AttentionBlocks = AttentionBlocksOf<>;

/// The same tables for writing: tokens below a row's `valid_until` were computed by someone else,
/// may be shared, and have no address here.
template <class Strides = KvStrides>
struct AttentionWritesOf {
  AttentionBlocksOf<Strides> blocks{};
  const std::int32_t* valid_until = nullptr;  ///< per row; null: 0 everywhere
  std::int64_t valid_stride = 1;              ///< entries of valid_until from one row to the next

  template <class Other>
  HYBRIDSTATE_HD constexpr AttentionWritesOf<Other> with(Other same) const noexcept {
    return {blocks.with(same), valid_until, valid_stride};
  }

  HYBRIDSTATE_HD constexpr ByteOffset key_offset(std::int32_t row, std::int32_t head,
                                                 std::int32_t token) const noexcept {
    if (row < 0 || token < 0) return {};
    if (valid_until != nullptr && token < table_entry(valid_until, valid_stride, row, 0)) return {};
    return blocks.key_offset(row, head, token);
  }
  HYBRIDSTATE_HD constexpr ByteOffset value_offset(std::int32_t row, std::int32_t head,
                                                   std::int32_t token) const noexcept {
    ByteOffset const key = key_offset(row, head, token);
    return key ? ByteOffset{key.value + blocks.strides.value} : key;
  }
  HYBRIDSTATE_HD constexpr std::byte* addr_key(std::int32_t row, std::int32_t head,
                                               std::int32_t token) const noexcept {
    return address(blocks.base, key_offset(row, head, token));
  }
  HYBRIDSTATE_HD constexpr std::byte* addr_value(std::int32_t row, std::int32_t head,
                                                 std::int32_t token) const noexcept {
    return address(blocks.base, value_offset(row, head, token));
  }
};

using AttentionWrites = AttentionWritesOf<>;

HYBRIDSTATE_NAMESPACE_END
