// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <hybridstate/device/device.hpp>
#include <hybridstate/organization/concept.hpp>
#include <span>
#include <vector>

#include "executor/cpu/forward.hpp"

namespace hybridstate::runtime::cpu {

/// Real bytes behind the units of an organization, for models whose every layer has attention and
/// recurrent state (one group of each). Per pool: the units of layer 0, then those of layer 1, …
template <memory_organization Organization>
class UnitMemory {
 public:
  explicit UnitMemory(const Organization& organization, bool ssm_fp32)
      : organization_(organization), layers_(organization.layout().group_layers()) {
    for (int pool = 0; pool < Organization::pools; ++pool) {
      layer_bytes_[pool] =
          Bytes{organization.pool(pool).capacity()} * organization.unit_bytes(pool);
      bytes_[pool].resize(static_cast<std::size_t>(layer_bytes_[pool] * layers_));
    }
    auto const& layout = organization.layout();
    int const a = Organization::attention_pool;
    int const s = Organization::state_pool;
    kv_.blocks.base = bytes_[a].data();
    kv_.blocks.unit_stride = static_cast<std::int64_t>(organization.unit_bytes(a));
    kv_.blocks.strides = kv_strides(layout, organization.block_tokens());
    kv_.layer_stride = static_cast<std::int64_t>(layer_bytes_[a]);
    kv_.dtype = layout.model().kv_dtype_bytes == 4 ? Dtype::f32 : Dtype::bf16;

    RowAddress const ssm = organization.ssm_address();
    RowAddress const conv = organization.conv_address();
    states_.ssm.base = bytes_[s].data() + ssm.base;
    states_.ssm.page_stride = static_cast<std::int64_t>(ssm.stride);
    states_.ssm.map =
        Organization::whole_composites ? composite_members(layout) : paged_members(layout);
    states_.conv.base = bytes_[s].data() + conv.base;
    states_.conv.line_stride = static_cast<std::int64_t>(conv.stride);
    states_.conv.part_bytes =
        conv.stride < layout.conv_bytes() ? static_cast<std::int64_t>(conv.stride) : 0;
    states_.ssm_layer_stride = states_.conv_layer_stride =
        static_cast<std::int64_t>(layer_bytes_[s]);
    states_.ssm_dtype = ssm_fp32 ? Dtype::f32 : Dtype::bf16;
    states_.conv_dtype = layout.model().conv_dtype_bytes == 4 ? Dtype::f32 : Dtype::bf16;
  }
  UnitMemory(const UnitMemory&) = delete;
  UnitMemory& operator=(const UnitMemory&) = delete;

  const KvArena& kv() const noexcept { return kv_; }
  const StateArena& states() const noexcept { return states_; }

  std::int32_t block(AttentionHandle a) const noexcept {
    return static_cast<std::int32_t>(organization_.attention_unit(a, 0));
  }
  /// Appends the member pages of a state and its convolution line.
  void append(StateHandle s, std::vector<std::int32_t>& table) const {
    for (Units j = 0; j < states_.ssm.map.members(); ++j)
      table.push_back(static_cast<std::int32_t>(organization_.ssm_page(s, 0, static_cast<int>(j))));
    for (Units j = 0; j < lines(); ++j) table.push_back(line(s, j));
  }
  Units members() const noexcept { return states_.ssm.map.members(); }
  /// Lines of one convolution state: more than one where it is wider than a page.
  Units lines() const noexcept {
    return states_.conv.part_bytes == 0 ? 1 : organization_.layout().conv_pages();
  }
  /// The row whose table starts at `table` (as append() wrote it).
  StateRow row(const std::int32_t* table) const noexcept {
    return {&states_, {table, members()}, {table + members(), lines()}};
  }

  /// All bytes of a pool, and how many of them a layer has.
  std::span<const std::byte> bytes(int pool) const noexcept { return bytes_[pool]; }
  Bytes layer_bytes(int pool) const noexcept { return layer_bytes_[pool]; }

  /// Byte of the first token of a place in layer 0, head 0's key.
  std::int64_t offset(AttentionPlace place) const noexcept {
    return block(place.block) * kv_.blocks.unit_stride + place.offset * kv_.blocks.strides.token;
  }
  /// Copies the first tokens of an attention block, all layers: of a fork, or of a tail.
  void copy_tokens(AttentionPlace from, AttentionPlace to, Tokens tokens) noexcept {
    KvStrides const& k = kv_.blocks.strides;
    auto const bytes = static_cast<std::size_t>(tokens * k.token);
    for (std::uint32_t l = 0; l < layers_; ++l)
      for (std::int64_t head = 0; head < k.value / k.head; ++head)
        for (std::int64_t part : {std::int64_t{0}, k.value}) {
          auto const at = [&](AttentionPlace place) {
            return kv_.blocks.base + l * kv_.layer_stride + offset(place) + head * k.head + part;
          };
          std::memcpy(at(to), at(from), bytes);
        }
  }

 private:
  std::int32_t line(StateHandle s, Units part) const noexcept {
    if constexpr (requires { organization_.conv_page(s, 0, 0); })
      if (lines() > 1)
        return static_cast<std::int32_t>(organization_.conv_page(s, 0, static_cast<int>(part)));
    return static_cast<std::int32_t>(organization_.conv_line(s, 0));
  }

  const Organization& organization_;
  std::uint32_t layers_;
  Bytes layer_bytes_[max_pools] = {0, 0};
  std::vector<std::byte> bytes_[max_pools];
  KvArena kv_;
  StateArena states_;
};

}  // namespace hybridstate::runtime::cpu
