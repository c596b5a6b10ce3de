// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/falcon_config.hpp"
#include "model/safetensors.hpp"

namespace hybridstate::runtime {

/// One layer's tensors, row-major [out, in]; those that the configuration leaves out are empty.
struct LayerWeights {
  TensorView input_norm;  ///< [hidden], of both branches
  TensorView q, k, v;     ///< [heads x head_dim, hidden], [kv_heads x head_dim, hidden]
  TensorView o;           ///< [hidden, heads x head_dim]
  TensorView q_bias, k_bias, v_bias, o_bias;  ///< attention_bias
  TensorView in_proj;                         ///< [in_proj_rows, hidden]: z | x | B | C | dt
  TensorView in_proj_bias;                    ///< in_proj_bias
  TensorView conv;       ///< [conv_channels, 1, conv_width]; the last tap is the current token
  TensorView conv_bias;  ///< conv_bias
  TensorView a_log, d, dt_bias;              ///< [ssm_heads]
  TensorView ssm_norm;                       ///< [ssm_width], gated_norm
  TensorView out_proj;                       ///< [hidden, ssm_width]
  TensorView out_proj_bias;                  ///< out_proj_bias
  TensorView ff_norm;                        ///< [hidden]
  TensorView gate, up;                       ///< [intermediate, hidden]
  TensorView down;                           ///< [hidden, intermediate]
  TensorView gate_bias, up_bias, down_bias;  ///< mlp_bias
};

/// How a random checkpoint draws a tensor.
enum class Draw : std::uint8_t {
  normal,     ///< N(0, 0.2): matrices, convolutions, biases
  about_one,  ///< 1 + N(0, 0.2): norms and D
  a_log,      ///< log(1 + i) + N(0, 0.2)
  dt_bias,    ///< uniform in [-4, 0)
};

/// One tensor that every layer has under a configuration.
struct LayerTensor {
  std::string suffix;  ///< what follows "model.layers.{l}." in the file
  TensorShape shape;
  Draw draw = Draw::normal;
  TensorView LayerWeights::* slot = nullptr;
};
std::vector<LayerTensor> layer_tensors(const FalconH1Config& config);

std::string layer_tensor_name(std::uint32_t layer, const LayerTensor& tensor);

/// The tensors outside the layers.
inline constexpr const char* embedding_name = "model.embed_tokens.weight";
inline constexpr const char* final_norm_name = "model.final_layernorm.weight";
inline constexpr const char* lm_head_name = "lm_head.weight";

/// A loaded model: its configuration and views of its mapped tensors, each with the dtype that it
/// has in the file.
class FalconH1Model {
 public:
  /// Reads config.json and maps the tensors of a folder. Throws ModelError, which names the first
  /// tensor that is missing, unknown or wrongly shaped.
  static FalconH1Model load(const std::filesystem::path& folder);

  FalconH1Model(FalconH1Model&&) noexcept = default;
  FalconH1Model& operator=(FalconH1Model&&) noexcept = default;

  const FalconH1Config& config() const noexcept { return config_; }  ///< `tied` is settled
  const LayerWeights& layer(std::uint32_t l) const noexcept { return layers_[l]; }
  const TensorView& embed() const noexcept { return embed_; }            ///< [vocabulary, hidden]
  const TensorView& final_norm() const noexcept { return final_norm_; }  ///< [hidden]
  const TensorView& lm_head() const noexcept { return lm_head_; }  ///< tied: the same as embed()

  std::uint64_t parameters() const noexcept { return parameters_; }
  std::uint64_t bytes() const noexcept { return checkpoint_.bytes(); }  ///< of all tensors

 private:
  FalconH1Model(FalconH1Config config, Checkpoint checkpoint)
      : config_(std::move(config)), checkpoint_(std::move(checkpoint)) {}

  FalconH1Config config_;
  Checkpoint checkpoint_;
  std::vector<LayerWeights> layers_;
  TensorView embed_;
  TensorView final_norm_;
  TensorView lm_head_;
  std::uint64_t parameters_ = 0;
};

}  // namespace hybridstate::runtime
