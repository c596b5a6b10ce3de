// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "executor/cpu/workers.hpp"
#include "executor/forward_pass.hpp"
#include "executor/rotation.hpp"

namespace hybridstate::runtime::cpu {

/// The forward pass of Falcon-H1 over states in the caller's units. A token's results depend on its
/// sequence's tokens and on the options, and on nothing else: not on the batch, the cuts into
/// chunks, the number of threads or the instruction set. See kernels.hpp for the reduction orders.
class CpuForward final : public ForwardPass {
 public:
  /// Throws ModelError when the configuration exceeds what the kernels take.
  CpuForward(ModelTensors model, const ForwardOptions& options);

  const FalconH1Config& config() const noexcept override { return model_.config; }
  const ForwardOptions& options() const noexcept { return options_; }
  /// Bytes of activations, which are held for max_tokens.
  std::size_t workspace_bytes() const noexcept;

  void run(std::span<const ForwardChunk> chunks, const KvArena& kv,
           std::span<float> logits) override;
  std::byte* allocate(std::size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;

 private:
  struct Layer {
    std::vector<float> input_norm, ff_norm, ssm_norm;
    std::vector<float> conv_weights, conv_bias;  ///< tap-major
    std::vector<float> decay, d, dt_bias;        ///< A = -exp(A_log)
    std::vector<float> q_bias, k_bias, v_bias, o_bias, in_bias, out_bias;
    std::vector<float> gate_bias, up_bias, down_bias;
  };
  struct Run {  ///< one chunk of the batch and the row of its first token
    const ForwardChunk* chunk;
    std::size_t row;
  };
  struct QueryItem {
    std::uint32_t run, kv_head, first, end;
  };
  struct StateItem {
    std::uint32_t run, head;
  };

  /// Rows of inputs of linears, as Kernels::pack writes them, in each type that one of them takes.
  struct Inputs {
    void* fp32 = nullptr;
    void* bf16 = nullptr;
    void*& of(LinearInput input) noexcept { return input == LinearInput::bf16 ? bf16 : fp32; }
  };

  /// Whether a linear of the model takes such inputs.
  bool takes(LinearInput input) const;
  /// Row x of n elements for linears with these weights.
  void pack(const float* x, std::size_t n, std::size_t row, Inputs& to,
            std::initializer_list<const TensorView*> weights) const;
  Linear product(const TensorView& weights, std::uint32_t rows, std::uint32_t columns, Inputs& x,
                 float* y, std::size_t y_stride) const;
  void run_layer(std::size_t l, const KvArena& kv);
  void finish_projections(std::size_t l, const KvArena& kv, const Run& run, std::size_t t);
  void read_history(std::size_t l, std::uint32_t run);
  void write_history(std::size_t l, std::uint32_t run) const;
  void linear(std::span<const Linear> jobs, std::size_t tokens);
  void linear_in_pieces(const Linear& job, std::size_t tokens, std::size_t pieces);

  ModelTensors model_;
  ForwardOptions options_;
  const Kernels* k_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<float> final_norm_;
  Rotation rotation_;
  Workers workers_;

  std::vector<Run> runs_;
  std::vector<std::uint32_t> run_of_;  ///< per row of the batch
  std::vector<QueryItem> queries_;
  std::vector<StateItem> states_;
  std::vector<std::vector<StateStore>> stores_;  ///< per run
  std::vector<SsmPages<>> sources_;              ///< per run, of the current layer
  std::size_t tokens_ = 0;
  std::vector<float> h_, u_, q_, kv_, p_, c_, y_, o_, att_, ssm_, gate_, up_;
  std::vector<float> dt_, decay_, packed_, history_, cosines_, sines_;
  Inputs inputs_[2];                            ///< in packed_, from whole cache lines on
  std::vector<std::vector<std::byte>> memory_;  ///< of allocate()
};

}  // namespace hybridstate::runtime::cpu
