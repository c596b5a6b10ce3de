// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/device/device.hpp"
#include "executor/forward_pass.hpp"
#include "executor/padded_rows.hpp"

namespace hybridstate::runtime::device {

/// What went to the device, since the start.
struct UploadCounts {
  std::uint64_t bytes = 0;       ///< of tables and of what changes with every step
  std::uint64_t table_rows = 0;  ///< changed ones
};

/// The forward pass of Falcon-H1 as kernels of a device. Every reduction has the order of the CPU
/// executor's (kernels.hpp there), so that logits, states, keys and values are the same bits.
///
/// The device keeps a copy of the step's tables (update_tables()), from which kernels read. A step
/// in which every chunk is one token that leaves one state runs through a recording: its arguments
/// depend on the padded number of rows and the rounded length of the longest sequence alone. Rows
/// without a sequence are padding.
///
/// With LinearForm::cublaslt, inputs of linears are rounded to BF16, and the bits are others.
///
/// The units that chunks name lie in memory of the device.
class DeviceForward final : public ForwardPass {
 public:
  /// Throws DeviceError when the device's memory does not hold weights, units and activations, or
  /// for options that the kernels do not have; ModelError for a model that they do not take.
  DeviceForward(ModelTensors model, const ForwardOptions& options, std::unique_ptr<Device> device,
                const ForwardLimits& limits);

  const FalconH1Config& config() const noexcept override { return model_.config; }
  void run(std::span<const ForwardChunk> chunks, const KvArena& kv,
           std::span<float> logits) override;
  void choose(std::span<const ForwardChunk> chunks, const KvArena& kv,
              const SamplingOptions& sampling, std::span<TokenId> choices) override;
  void update_tables(const StepTables& tables) override;
  std::byte* allocate(std::size_t bytes) override { return device_->allocate(bytes); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    device_->copy(to, from, bytes);
  }

  const UploadCounts& uploads() const noexcept { return uploads_; }
  /// How long the host has waited for results; the rest of a step is the host's own.
  std::chrono::nanoseconds waited() const noexcept { return waited_; }
  const RecordingCounts& recordings() const noexcept { return device_->recording_counts(); }

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
  /// Of each row that asks for logits.
  enum class Wanted : std::uint8_t { logits, greedy, drawn };
  /// Memory of the device, and memory of the host that is uploaded into it.
  struct Staged {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    std::size_t bytes = 0;
    bool busy = false;  ///< an upload may still read it
  };
  /// What changes with every step, on the device. R rows; a decode step has a token a row.
  struct StepArrays {
    const std::int32_t *ids, *positions;  ///< [tokens]; of padding: -1
    const std::int32_t* sampled;          ///< [samples]: token rows; decode: [R], -1 behind them
    /// Pages of the arena of working states, -1: in the unit. [R]; decode: [R], else [kept].
    const std::int32_t *working_source, *working_destination;
    // Of other steps:
    const std::int32_t* token_rows;               ///< [tokens]
    const std::int32_t *first, *begin;            ///< [R + 1], [R]
    const std::int32_t *kept_first, *kept_after;  ///< [R + 1], [kept]
    const std::int32_t *kept_pages, *kept_lines;  ///< [kept][members], [kept][lines]
  };

  /// Whether the embedding is the output matrix, too.
  bool tied() const noexcept { return model_.lm_head.data == model_.embed.data; }
  template <class Use>
  void for_each_matrix(Use&& use) const;
  /// Calls use(pointer, floats) for every array of activations.
  template <class Use>
  void for_each_activation(Use&& use);
  std::uint32_t side_by_side_rows() const noexcept;
  std::size_t piece_bytes() const noexcept;
  std::size_t needed_bytes();
  template <class T>
  const T* constants(const std::vector<T>& values);
  Weights weights(const TensorView& tensor, const TensorView& bias);
  Staged staged(std::size_t bytes);
  /// Waits, where it must, until the host may write.
  std::byte* writable(Staged& memory);
  void send(Staged& memory, std::size_t bytes);
  /// Waits for the step, and fetches `bytes` of it.
  void finish(void* to, const void* from, std::size_t bytes);
  std::int32_t* part(std::size_t count, const std::int32_t** on_device);

  /// Queues a batch up to the logits, or (with `sampling`) the choices; how many rows of them are
  /// wanted.
  std::uint32_t compute(std::span<const ForwardChunk> chunks, const KvArena& kv,
                        const SamplingOptions* sampling);
  void write_draws(std::span<const ForwardChunk> chunks, const SamplingOptions& sampling);
  void queue_choices();
  void plan(std::span<const ForwardChunk> chunks);
  void write_decode(std::span<const ForwardChunk> chunks);
  void write_runs(std::span<const ForwardChunk> chunks);
  void queue(const KvArena& kv);
  void queue_layer(std::size_t l, const KvArena& kv);
  bool at_grid() const noexcept { return options_.carry == Carry::bf16_at_grid; }
  /// FP32 states of layer `l` beside the units, in front of which `unit` looks.
  kernels::WorkingStates<> working_states(std::size_t l, const SsmPages<>& unit) const;
  /// Of what linears read.
  kernels::ElementType input_type() const noexcept {
    return options_.linear == LinearForm::exact ? kernels::ElementType::f32
                                                : kernels::ElementType::bf16;
  }
  /// `x` is of the input_type().
  void linear(const Weights& w, std::uint32_t rows, std::uint32_t columns, const float* x, float* y,
              std::int64_t y_stride, std::uint32_t tokens, double scale, double post);

  ModelTensors model_;
  ForwardOptions options_;
  std::unique_ptr<Device> device_;
  ForwardLimits limits_;
  std::vector<Layer> layers_;
  Weights lm_head_, embed_;
  const float* final_norm_ = nullptr;
  const float* factors_ = nullptr;  ///< of the columns of in_proj
  const float *cosines_ = nullptr, *sines_ = nullptr;
  const std::int32_t *counted_ = nullptr, *ones_ = nullptr;  ///< 0, 1, 2, … and 1, 1, 1, …
  float *h_, *u_, *q_, *kv_, *p_, *c_, *y_, *o_, *att_, *ssm_, *gate_, *up_, *logits_;
  std::byte* pieces_ = nullptr;  ///< results of attention's pieces, side by side
  kernels::Candidate* candidates_ = nullptr;
  std::int32_t* choices_ = nullptr;

  BatchShape shape_;
  std::int32_t* tables_ = nullptr;  ///< the device's copy
  Staged changes_, arrays_, draws_;
  UploadCounts uploads_;
  std::chrono::nanoseconds waited_{0};

  // Of the current step.
  const StateArena* states_ = nullptr;   ///< the units
  const StateArena* working_ = nullptr;  ///< beside them; null: no chunk names one
  StepArrays at_{};
  std::size_t used_ = 0;                     ///< integers of arrays_
  std::vector<const ForwardChunk*> of_row_;  ///< null: padding
  bool decode_ = false;
  Wanted wanted_ = Wanted::logits;
  std::uint32_t rows_ = 0, tokens_ = 0, kept_ = 0;
  std::uint32_t samples_ = 0;           ///< rows of logits that are computed
  std::uint32_t longest_ = 0;           ///< tokens of a chunk
  std::uint32_t attention_tokens_ = 0;  ///< of the longest sequence, rounded up; 0: in turn
  std::uint32_t piece_tokens_ = 0;      ///< otherwise
};

}  // namespace hybridstate::runtime::device
