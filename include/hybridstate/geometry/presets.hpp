// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/config.hpp>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/geometry/model.hpp>
#include <span>
#include <string>
#include <string_view>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A published model whose geometry was confirmed. Element widths are BF16 throughout; use
/// with_ssm_dtype() for an FP32 recurrent state. A loader reads the model's own configuration;
/// presets are for planning and tests.
struct ModelPreset {
  std::string_view name;
  ModelGeometry geometry;
  std::uint32_t total_layers = 0;  ///< with those that keep neither KV nor recurrent state
  /// D0's attention share in parts per million (Table B-3); 0: none published for this model.
  std::uint32_t attention_ppm = 0;
};

namespace detail {

struct KvHeads {
  std::uint32_t count, dim;
};
struct SsmHeads {
  std::uint32_t count, dim, state, groups;
};

constexpr ModelGeometry bf16_model(std::uint32_t attention_layers, std::uint32_t recurrent_layers,
                                   KvHeads kv, SsmHeads ssm) noexcept {
  ModelGeometry m;
  m.attention_layers = attention_layers;
  m.recurrent_layers = recurrent_layers;
  m.kv_heads = kv.count;
  m.head_dim = kv.dim;
  m.ssm_heads = ssm.count;
  m.ssm_head_dim = ssm.dim;
  m.ssm_state = ssm.state;
  m.conv_groups = ssm.groups;
  return m;
}

// Falcon-H1 has KV and recurrent state in every layer. Qwen models use gated delta nets (value
// heads x value dim x key dim, key heads as groups); Jamba uses Mamba-1 (one row per channel).
inline constexpr ModelPreset preset_table[] = {
    {"falcon-h1-tiny-90m", bf16_model(24, 24, {2, 64}, {24, 32, 64, 1}), 24},
    {"falcon-h1-0.5b", bf16_model(36, 36, {2, 64}, {24, 64, 128, 1}), 36},
    {"falcon-h1-1.5b", bf16_model(24, 24, {2, 128}, {48, 64, 256, 1}), 24},
    {"falcon-h1-1.5b-deep", bf16_model(66, 66, {2, 128}, {24, 64, 256, 1}), 66},
    {"falcon-h1-3b", bf16_model(32, 32, {2, 128}, {32, 128, 256, 1}), 32},
    {"falcon-h1-7b", bf16_model(44, 44, {2, 128}, {24, 128, 256, 1}), 44, 527383},
    {"falcon-h1-34b", bf16_model(72, 72, {4, 128}, {32, 128, 256, 2}), 72},
    {"granite-4.0-h-micro", bf16_model(4, 36, {8, 64}, {64, 64, 128, 1}), 40, 199699},
    {"granite-4.0-h-tiny", bf16_model(4, 36, {4, 128}, {48, 64, 128, 1}), 40},
    {"granite-4.0-h-1b", bf16_model(4, 36, {4, 128}, {48, 64, 128, 1}), 40},
    {"bamba-9b", bf16_model(3, 29, {8, 128}, {128, 64, 128, 1}), 32},
    {"nemotron-h-8b", bf16_model(4, 24, {8, 128}, {128, 64, 128, 8}), 52},
    {"nemotron-nano-9b-v2", bf16_model(4, 27, {8, 128}, {128, 80, 128, 8}), 56},
    {"nemotron-3-nano-30b-a3b", bf16_model(6, 23, {2, 128}, {64, 64, 128, 8}), 52},
    {"qwen3-next-80b-a3b", bf16_model(12, 36, {2, 256}, {32, 128, 128, 16}), 48},
    {"qwen3.5-4b", bf16_model(8, 24, {4, 256}, {32, 128, 128, 16}), 32},
    {"qwen3.5-35b-a3b", bf16_model(10, 30, {2, 256}, {32, 128, 128, 16}), 40},
    {"zamba2-1.2b", bf16_model(6, 38, {32, 128}, {64, 64, 128, 1}), 38},
    {"jamba-v0.1", bf16_model(4, 28, {8, 128}, {8192, 1, 16, 0}), 32},
};

}  // namespace detail

/// All presets, in a fixed order.
constexpr std::span<const ModelPreset> presets() noexcept { return detail::preset_table; }

/// The preset of that name, or null.
constexpr const ModelPreset* find_preset(std::string_view name) noexcept {
  for (const ModelPreset& p : detail::preset_table)
    if (p.name == name) return &p;
  return nullptr;
}

/// The names of all presets, separated by ", ".
inline std::string preset_names() {
  std::string names;
  for (const ModelPreset& p : detail::preset_table) {
    if (!names.empty()) names += ", ";
    names += p.name;
  }
  return names;
}

/// The geometry of the preset of that name, or a sentence that lists the known names.
inline Result<ModelGeometry> preset_geometry(std::string_view name) {
  if (const ModelPreset* p = find_preset(name)) return p->geometry;
  return Failure{"model '" + std::string(name) + "' is not a preset; choose one of " +
                 preset_names() + ", or give the geometry itself"};
}

HYBRIDSTATE_NAMESPACE_END
