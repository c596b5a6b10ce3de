// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <hybridstate/batch/shape.hpp>
#include <hybridstate/device/device.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// The views of an organization's units for the layer whose unit 0 lies at `base`; the tables are
/// still to be set. `base` is the start of the pool: a state's own offset in it is added here.
template <memory_organization Organization>
AttentionBlocks attention_view(const Organization& o, std::byte* base) noexcept {
  return {base, nullptr, 0, static_cast<std::int64_t>(o.unit_bytes(Organization::attention_pool)),
          kv_strides(o.layout(), o.block_tokens())};
}
template <memory_organization Organization>
SsmPages<> ssm_view(const Organization& o, std::byte* base) noexcept {
  RowAddress const at = o.ssm_address();
  return {
      base + at.base, nullptr, 0, static_cast<std::int64_t>(at.stride),
      Organization::whole_composites ? composite_members(o.layout()) : paged_members(o.layout())};
}
template <memory_organization Organization>
ConvLines conv_view(const Organization& o, std::byte* base) noexcept {
  RowAddress const at = o.conv_address();
  auto const stride = static_cast<std::int64_t>(at.stride);
  return {base + at.base, nullptr, 0, stride, conv_line_count(o) > 1 ? stride : 0};
}

/// A pool in (device) memory: its units in the first layer of every group, then those in the next
/// layer of every group, …, group_layers() times.
struct PoolMemory {
  std::byte* base = nullptr;
  std::int64_t layer_stride = 0;  ///< bytes from a unit in one layer to the same unit in the next
};

/// Bytes of one layer of a pool: the smallest layer_stride.
template <memory_organization Organization>
Bytes layer_bytes(const Organization& o, int pool) noexcept {
  return Bytes{o.pool(pool).capacity()} * o.unit_bytes(pool);
}

/// The views that kernels take, for tables and pools at given addresses. Trivially copyable; the
/// addresses are only computed with. Layers are counted within their kind: attention layers from 0,
/// recurrent layers from 0.
class BatchViews {
 public:
  /// `tables`: what a BatchTables of this shape wrote, or a copy of it in device memory. With one
  /// shared pool, `state` equals `attention`.
  template <memory_organization Organization>
  BatchViews(const Organization& o, const BatchShape& shape, PoolMemory attention, PoolMemory state,
             const std::int32_t* tables) noexcept
      : shape_(shape),
        tables_(tables),
        group_layers_(o.layout().group_layers()),
        attention_layer_stride_(attention.layer_stride),
        state_layer_stride_(state.layer_stride),
        attention_(attention_view(o, attention.base)),
        ssm_(ssm_view(o, state.base)),
        conv_(conv_view(o, state.base)) {}

  /// Blocks [rows][blocks] for reading.
  AttentionBlocks attention(Units layer) const noexcept {
    AttentionBlocks v = attention_;
    v.base += attention_layer_stride_ * (layer % group_layers_);
    v.units = tables_ + shape_.attention(layer / group_layers_);
    v.row_stride = v.tail_stride = shape_.row_entries();
    v.tails = tables_ + BatchShape::tail();
    return v;
  }
  /// The same for writing: nothing below a row's kv_valid_until has an address.
  AttentionWrites attention_writes(Units layer) const noexcept {
    return {attention(layer), tables_ + BatchShape::valid_until(), shape_.row_entries()};
  }
  /// Member pages [rows][members].
  SsmPages<> ssm_source(Units layer) const noexcept { return ssm(layer, shape_.source()); }
  SsmPages<> ssm_destination(Units layer) const noexcept {
    return ssm(layer, shape_.destination());
  }
  SsmPages<> ssm_checkpoint(Units layer, std::uint32_t k) const noexcept {
    return ssm(layer, shape_.checkpoint(k));
  }
  /// Lines [rows][lines].
  ConvLines conv_source(Units layer) const noexcept { return conv(layer, shape_.source()); }
  ConvLines conv_destination(Units layer) const noexcept {
    return conv(layer, shape_.destination());
  }
  ConvLines conv_checkpoint(Units layer, std::uint32_t k) const noexcept {
    return conv(layer, shape_.checkpoint(k));
  }
  /// The boundary of row r's k-th checkpoint is entry [r * row_stride()]; negative without one.
  const std::int32_t* boundaries(std::uint32_t k) const noexcept {
    return tables_ + shape_.boundary(k);
  }
  std::int64_t row_stride() const noexcept { return shape_.row_entries(); }

 private:
  std::int64_t group_offset(Units layer) const noexcept {
    return layer / group_layers_ * shape_.group_entries();
  }
  SsmPages<> ssm(Units layer, std::int64_t state) const noexcept {
    SsmPages<> v = ssm_;
    v.base += state_layer_stride_ * (layer % group_layers_);
    v.pages = tables_ + state + group_offset(layer);
    v.row_stride = shape_.row_entries();
    return v;
  }
  ConvLines conv(Units layer, std::int64_t state) const noexcept {
    ConvLines v = conv_;
    v.base += state_layer_stride_ * (layer % group_layers_);
    v.lines = tables_ + state + group_offset(layer) + shape_.members;
    v.row_stride = shape_.row_entries();
    return v;
  }

  BatchShape shape_;
  const std::int32_t* tables_;
  Units group_layers_;
  std::int64_t attention_layer_stride_;
  std::int64_t state_layer_stride_;
  AttentionBlocks attention_;
  SsmPages<> ssm_;
  ConvLines conv_;
};

HYBRIDSTATE_NAMESPACE_END
