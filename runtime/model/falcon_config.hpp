// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <hybridstate/geometry/model.hpp>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "model/dtype.hpp"
#include "model/model_error.hpp"

namespace hybridstate::runtime {

/// What the forward pass of a Falcon-H1 model needs from its config.json. Multipliers are the
/// file's doubles. The names in comments are the file's fields where they differ.
struct FalconH1Config {
  std::uint32_t layers = 0;         ///< num_hidden_layers
  std::uint32_t hidden = 0;         ///< hidden_size
  std::uint32_t intermediate = 0;   ///< intermediate_size
  std::uint32_t vocabulary = 0;     ///< vocab_size
  std::uint32_t max_positions = 0;  ///< max_position_embeddings; 0: not said

  std::uint32_t heads = 0;     ///< num_attention_heads
  std::uint32_t kv_heads = 0;  ///< num_key_value_heads
  std::uint32_t head_dim = 0;  ///< even; rotated over its whole width
  double rope_theta = 0;       ///< rope_theta or rope_parameters.rope_theta

  std::uint32_t ssm_heads = 0;     ///< mamba_n_heads, H
  std::uint32_t ssm_head_dim = 0;  ///< mamba_d_head, P
  std::uint32_t ssm_state = 0;     ///< mamba_d_state, N
  std::uint32_t ssm_groups = 1;    ///< mamba_n_groups, G; divides H
  std::uint32_t conv_width = 0;    ///< mamba_d_conv, K; at least 2
  std::uint32_t chunk = 0;         ///< mamba_chunk_size; rounding only; 0: not said

  double norm_epsilon = 0;        ///< rms_norm_eps
  bool gated_norm = false;        ///< mamba_rms_norm
  bool norm_before_gate = false;  ///< mamba_norm_before_gate
  bool conv_bias = true;          ///< mamba_conv_bias
  bool attention_bias = false;    ///< of q, k, v and o
  bool mlp_bias = false;          ///< of gate, up and down
  bool in_proj_bias = false;      ///< mamba_proj_bias
  bool out_proj_bias = false;     ///< projectors_bias
  bool tied = false;              ///< tie_word_embeddings
  bool tied_unsaid = false;       ///< not in the file: lm_head.weight decides, see FalconH1Model

  double embedding_multiplier = 1;
  double lm_head_multiplier = 1;
  double attention_in_multiplier = 1;
  double attention_out_multiplier = 1;
  double key_multiplier = 1;  ///< of K before the rotation; the cache holds multiplied keys
  double ssm_in_multiplier = 1;
  double ssm_out_multiplier = 1;
  std::array<double, 5> ssm_multipliers{1, 1, 1, 1, 1};  ///< z, x, B, C, dt rows of in_proj
  double gate_multiplier = 1;                            ///< mlp_multipliers[0]
  double down_multiplier = 1;                            ///< mlp_multipliers[1]

  double time_step_low = 0;  ///< time_step_limit: dt is clamped to [low, high] after softplus
  double time_step_high = std::numeric_limits<double>::infinity();

  std::optional<Dtype> dtype;           ///< torch_dtype or dtype; a tensor's own dtype counts
  std::optional<std::uint32_t> bos_id;  ///< bos_token_id
  std::vector<std::uint32_t> eos_ids;   ///< eos_token_id, of generation_config.json if it has one
  std::vector<std::string> unread_fields;  ///< fields nobody here knows; they change nothing

  std::uint32_t query_width() const noexcept { return heads * head_dim; }
  std::uint32_t kv_width() const noexcept { return kv_heads * head_dim; }
  std::uint32_t ssm_width() const noexcept { return ssm_heads * ssm_head_dim; }  ///< mamba_d_ssm
  std::uint32_t group_width() const noexcept { return ssm_groups * ssm_state; }  ///< of B; of C
  std::uint32_t conv_channels() const noexcept { return ssm_width() + 2 * group_width(); }
  /// Rows of in_proj: z | x | B | C | dt.
  std::uint32_t in_proj_rows() const noexcept { return ssm_width() + conv_channels() + ssm_heads; }

  /// The geometry of its serving state, `bytes` per element of each kind.
  ModelGeometry geometry(std::uint32_t kv_bytes = 2, std::uint32_t ssm_bytes = 2,
                         std::uint32_t conv_bytes = 2) const noexcept;

  friend bool operator==(const FalconH1Config&, const FalconH1Config&) = default;
};

/// Reads config.json, or that of a folder, and generation_config.json beside it for the end ids.
/// Everything that changes a result must be there; absent are only: head_dim (hidden / heads),
/// mamba_d_ssm (mamba_expand x hidden_size), an unbounded time_step_limit, and the switches of
/// biases, which the tensors confirm. Values that this forward pass does not have (another
/// activation, scaled rotations, quantized weights, ...) are refused. Throws ModelError.
FalconH1Config read_falcon_config(const std::filesystem::path& config_json_or_folder);

/// The same of a text; `file` is its name in messages.
FalconH1Config parse_falcon_config(const std::string& file, const std::string& text);

/// Why these numbers cannot be a model, as the end of a sentence that begins with the field's name
/// in quotation marks; empty when they can.
std::string config_problem(const FalconH1Config& config);

/// A config.json in Hugging Face's spelling that read_falcon_config() reads back, for weights of
/// the given dtype.
std::string falcon_config_json(const FalconH1Config& config, Dtype dtype);

}  // namespace hybridstate::runtime
