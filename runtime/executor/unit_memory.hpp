// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <hybridstate/batch/tables.hpp>
#include <hybridstate/batch/views.hpp>
#include <span>
#include <vector>

#include "executor/forward_pass.hpp"

namespace hybridstate::runtime {

/// Real bytes behind the units of an organization, for models whose every layer has attention and
/// recurrent state (one group of each). Per pool: the units of layer 0, then those of layer 1, …
template <memory_organization Organization>
class UnitMemory {
 public:
  /// In memory of the forward pass that will use it, which outlives this.
  UnitMemory(const Organization& organization, bool ssm_fp32, ForwardPass& forward)
      : organization_(organization),
        forward_(forward),
        shape_(batch_shape(organization, {})),
        layers_(organization.layout().group_layers()) {
    for (int pool = 0; pool < Organization::pools; ++pool) {
      layer_bytes_[pool] = hybridstate::layer_bytes(organization, pool);
      auto const bytes = static_cast<std::size_t>(layer_bytes_[pool] * layers_);
      bytes_[pool] = {forward.allocate(bytes), bytes};
    }
    ModelGeometry const model = organization.layout().model();
    int const a = Organization::attention_pool;
    int const s = Organization::state_pool;
    kv_.blocks = attention_view(organization, bytes_[a].data());
    kv_.layer_stride = static_cast<std::int64_t>(layer_bytes_[a]);
    kv_.dtype = model.kv_dtype_bytes == 4 ? Dtype::f32 : Dtype::bf16;

    states_.ssm = ssm_view(organization, bytes_[s].data());
    states_.conv = conv_view(organization, bytes_[s].data());
    states_.ssm_layer_stride = states_.conv_layer_stride =
        static_cast<std::int64_t>(layer_bytes_[s]);
    states_.ssm_dtype = ssm_fp32 ? Dtype::f32 : Dtype::bf16;
    states_.conv_dtype = model.conv_dtype_bytes == 4 ? Dtype::f32 : Dtype::bf16;
  }
  UnitMemory(const UnitMemory&) = delete;
  UnitMemory& operator=(const UnitMemory&) = delete;

  /// Bytes of all pools.
  static std::size_t needed_bytes(const Organization& organization) noexcept {
    Bytes bytes = 0;
    for (int pool = 0; pool < Organization::pools; ++pool)
      bytes += hybridstate::layer_bytes(organization, pool);
    return static_cast<std::size_t>(bytes * organization.layout().group_layers());
  }

  const KvArena& kv() const noexcept { return kv_; }
  const StateArena& states() const noexcept { return states_; }

  std::int32_t block(AttentionHandle a) const noexcept {
    return static_cast<std::int32_t>(organization_.attention_unit(a, 0));
  }
  /// Appends the member pages of a state and its convolution line (or lines).
  void append(StateHandle s, std::vector<std::int32_t>& table) const {
    for_each_state_entry(organization_, shape_, s, 0,
                         [&](std::int32_t entry) { table.push_back(entry); });
  }
  /// The row whose table starts at `table` (as append() wrote it).
  StateRow row(const std::int32_t* table) const noexcept {
    return {&states_, {table, shape_.members}, {table + shape_.members, shape_.lines}};
  }
  /// The same of a row of batch tables.
  StateRow row(const BatchRow::State& s) const noexcept { return {&states_, s.pages, s.lines}; }

  /// All bytes of a pool, and how many of them a layer has. Readable where the host sees the
  /// forward pass's memory (ForwardOptions::host_visible).
  std::span<const std::byte> bytes(int pool) const noexcept { return bytes_[pool]; }
  Bytes layer_bytes(int pool) const noexcept { return layer_bytes_[pool]; }

  /// Byte of the first token of a place in layer 0, head 0's key.
  std::int64_t offset(AttentionPlace place) const noexcept {
    return block(place.block) * kv_.blocks.unit_stride + place.offset * kv_.blocks.strides.token;
  }
  /// Copies the first tokens of an attention block, all layers: of a fork, or of a tail.
  void copy_tokens(AttentionPlace from, AttentionPlace to, Tokens tokens) {
    KvStrides const& k = kv_.blocks.strides;
    auto const bytes = static_cast<std::size_t>(tokens * k.token);
    for (std::uint32_t l = 0; l < layers_; ++l)
      for (std::int64_t head = 0; head < k.value / k.head; ++head)
        for (std::int64_t part : {std::int64_t{0}, k.value}) {
          auto const at = [&](AttentionPlace place) {
            return kv_.blocks.base + l * kv_.layer_stride + offset(place) + head * k.head + part;
          };
          forward_.copy(at(to), at(from), bytes);
        }
  }

 private:
  const Organization& organization_;
  ForwardPass& forward_;
  BatchShape shape_;
  std::uint32_t layers_;
  Bytes layer_bytes_[max_pools] = {0, 0};
  std::span<std::byte> bytes_[max_pools];
  KvArena kv_;
  StateArena states_;
};

}  // namespace hybridstate::runtime
