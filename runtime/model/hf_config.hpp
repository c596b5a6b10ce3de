// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <hybridstate/geometry/model.hpp>
#include <stdexcept>
#include <string>

namespace hybridstate::runtime {

/// A config.json that gives no geometry; what() is one sentence: file, field, and what would be
/// right.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a model's config.json says about its serving state.
struct ConfigGeometry {
  std::string family;  ///< its model_type, e.g. "falcon_h1"
  ModelGeometry geometry;
  std::uint32_t total_layers = 0;  ///< with those that keep neither KV nor recurrent state
};

/// Reads a Hugging Face config.json of falcon_h1, granitemoehybrid, bamba, nemotron_h, qwen3_next,
/// qwen3_5 (also its _text and _moe forms, with a "text_config" inside or not), zamba2 or jamba.
/// Fields that the bytes depend on must be there; the only values derived from others are those
/// that the family itself derives: head_dim = hidden_size / num_attention_heads (not Nemotron-H and
/// Qwen; twice that for Zamba2), mamba_d_ssm = mamba_expand x hidden_size, mamba_d_head "auto".
/// KV and convolution state have the model's dtype, and so has the SSM state unless
/// mamba_ssm_dtype or mamba_ssm_cache_dtype names another one. Throws ConfigError.
ConfigGeometry read_geometry(const std::filesystem::path& config_json,
                             std::uint32_t tensor_parallel = 1);

}  // namespace hybridstate::runtime
