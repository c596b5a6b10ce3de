// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/device/device.hpp"
#include "executor/forward_pass.hpp"

namespace hybridstate::runtime::device {

/// The forward pass of Falcon-H1 as kernels of a device. Every reduction has the order of the CPU
/// executor's (kernels.hpp there), so that logits, states, keys and values are the same bits.
///
/// Carries: fp32 and bf16-per-token. The units that chunks name lie in memory of the device.
class DeviceForward final : public ForwardPass {
 public:
  /// Throws DeviceError when the device's memory does not hold the weights and activations, or for
  /// options that the kernels do not have; ModelError for a model that they do not take.
  /// `max_sequences`: chunks of a batch. `max_position`: tokens of the longest sequence.
  DeviceForward(ModelTensors model, const ForwardOptions& options, std::unique_ptr<Device> device,
                std::uint32_t max_sequences, Tokens max_position);

  const FalconH1Config& config() const noexcept override { return model_.config; }
  void run(std::span<const ForwardChunk> chunks, const KvArena& kv,
           std::span<float> logits) override;
  std::byte* allocate(std::size_t bytes) override { return device_->allocate(bytes); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    device_->copy(to, from, bytes);
  }

 private:
  struct Weights {
    const void* data = nullptr;
    kernels::ElementType type = kernels::ElementType::bf16;
    const float* bias = nullptr;
  };
  struct Layer {
    const float *input_norm, *ff_norm, *ssm_norm;
    const float *conv_weights, *conv_bias;  ///< tap-major
    const float *a, *d, *dt_bias;           ///< a = -exp(A_log)
    Weights q, k, v, o, in_proj, out_proj, gate, up, down;
  };
  /// Where the tables of a step lie in the uploaded integers.
  struct Tables {
    std::int32_t *ids, *positions, *token_rows;  ///< [tokens]
    std::int32_t *first, *begin;                 ///< [chunks + 1], [chunks]
    std::int32_t *blocks, *valid_until;          ///< [chunks][columns], [chunks]
    std::int32_t* tails;                         ///< [chunks] TailPlace
    std::int32_t *source_pages, *source_lines;   ///< [chunks][members], [chunks][lines]
    std::int32_t *kept_first, *kept_after;       ///< [chunks + 1], [targets]
    std::int32_t *kept_pages, *kept_lines;       ///< [targets][members], [targets][lines]
    std::int32_t* sampled;                       ///< [chunks that want logits]: token rows
  };

  const float* floats(const std::vector<float>& values);
  Weights weights(const TensorView& tensor, const TensorView& bias);
  void build(std::span<const ForwardChunk> chunks);
  void run_layer(std::size_t l, const KvArena& kv, std::uint32_t tokens);
  void linear(const Weights& w, std::uint32_t rows, std::uint32_t columns, const float* x, float* y,
              std::int64_t y_stride, std::uint32_t tokens, double scale, double post);

  ModelTensors model_;
  ForwardOptions options_;
  std::unique_ptr<Device> device_;
  std::uint32_t max_sequences_;
  Tokens max_position_;
  std::vector<Layer> layers_;
  Weights lm_head_, embed_;
  const float* final_norm_ = nullptr;
  const float* factors_ = nullptr;  ///< of the columns of in_proj
  const float *cosines_ = nullptr, *sines_ = nullptr;
  float *h_, *u_, *q_, *kv_, *p_, *c_, *y_, *o_, *att_, *ssm_, *gate_, *up_, *logits_;

  // Of the current step.
  const StateArena* states_ = nullptr;
  std::vector<std::int32_t> integers_;
  std::int32_t* device_integers_ = nullptr;
  std::size_t device_integer_count_ = 0;
  Tables at_{};  ///< on the device
  std::uint32_t chunks_ = 0, columns_ = 0, members_ = 0, lines_ = 0, kept_ = 0, samples_ = 0;
  std::uint32_t longest_ = 0;  ///< tokens of a chunk
};

}  // namespace hybridstate::runtime::device
