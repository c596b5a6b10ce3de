// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <hybridstate/batch/shape.hpp>
#include <hybridstate/device/device.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "executor/carry.hpp"
#include "executor/conditions.hpp"
#include "executor/linear_input.hpp"
#include "executor/named.hpp"
#include "executor/sampling.hpp"
#include "model/falcon_config.hpp"
#include "model/weights.hpp"

namespace hybridstate::runtime {
namespace cpu {
struct Kernels;
}

/// A model to execute: its configuration and views of tensors that outlive the executor.
struct ModelTensors {
  FalconH1Config config;
  TensorView embed, final_norm, lm_head;
  std::vector<LayerWeights> layers;
};
ModelTensors tensors_of(const FalconH1Model& model);

/// A model's geometry when the CPU serves it: keys, values and convolution in BF16, the SSM state
/// as the carry stores it.
inline ModelGeometry geometry_for(const FalconH1Config& config, Carry carry) {
  return config.geometry(2, carry == Carry::fp32 ? 4 : 2, 2);
}

/// One layer's working state in the arena of Carry::bf16_at_grid: its SSM state in FP32. (Its
/// convolution state is in the unit, where it is exact.)
constexpr Bytes working_state_bytes(const ModelGeometry& model) noexcept {
  return model.ssm_bytes() / model.ssm_dtype_bytes * 4;
}

/// Attention units of every layer. `blocks` describes layer 0; its tables are not read.
struct KvArena {
  AttentionBlocks blocks{};
  std::int64_t layer_stride = 0;  ///< bytes from one layer's unit 0 to the next layer's
  Dtype dtype = Dtype::bf16;      ///< BF16 or F32
};

/// Recurrent units of every layer. `ssm` and `conv` describe layer 0; their tables are not read.
struct StateArena {
  SsmPages<> ssm{};
  ConvLines conv{};
  std::int64_t ssm_layer_stride = 0;
  std::int64_t conv_layer_stride = 0;
  Dtype ssm_dtype = Dtype::bf16;   ///< BF16 or F32
  Dtype conv_dtype = Dtype::bf16;  ///< BF16 or F32
  /// Of the arena of working states (Carry::bf16_at_grid), which has one page a state: the units,
  /// which hold the convolution states of both.
  const StateArena* units = nullptr;
};

/// One recurrent state: its member pages and its line (or parts) in an arena.
struct StateRow {
  const StateArena* arena = nullptr;
  std::span<const std::int32_t> pages;
  std::span<const std::int32_t> lines;
};

/// A state to leave behind at a token boundary.
struct StateTarget {
  Tokens boundary = 0;
  StateRow row;
};

/// The tables of a step's batch (batch/tables.hpp), for a pass that keeps a copy of them.
struct StepTables {
  BatchShape shape;
  std::span<const std::int32_t> entries;
  std::span<const ChangedRow> changed;  ///< since the step before; at first every bit was set
};

/// A run of tokens of one sequence.
struct ForwardChunk {
  std::int32_t row = -1;  ///< of the step's tables, which say what the spans below say
  std::span<const TokenId> tokens;
  Tokens begin = 0;                      ///< position of the first token
  Tokens kv_valid_until = 0;             ///< keys and values below are there: nothing is written
  std::span<const std::int32_t> blocks;  ///< attention units from position 0 on
  TailPlace tail;                        ///< of the last of them
  StateRow source;                       ///< the state at `begin`; not read when begin is 0
  /// Boundaries in (begin, begin + tokens] that do not descend; the last is usually the working
  /// state. Rows may equal the source: in place. No two chunks of a batch share a target.
  std::span<const StateTarget> targets;
  bool logits = false;  ///< of the last token
  bool decode = false;  ///< one generated token; matters under a broken condition only

  /// Position behind the last token.
  Tokens end() const noexcept { return begin + static_cast<Tokens>(tokens.size()); }
};

/// What computes the forward pass.
enum class Compute : std::uint8_t {
  cpu,
  interpreted,  ///< the GPU's kernels, interpreted on the CPU
  cuda,
};
constexpr const char* compute_name(Compute compute) noexcept {
  return compute == Compute::cpu ? "cpu" : compute == Compute::interpreted ? "interpreted" : "cuda";
}
/// Nothing for a name that compute_name() does not give.
constexpr std::optional<Compute> compute_named(std::string_view name) noexcept {
  return named(name, {Compute::cpu, Compute::interpreted, Compute::cuda}, compute_name);
}

/// How linears are computed.
enum class LinearForm : std::uint8_t {
  exact,     ///< in the order of the numeric contract
  cublaslt,  ///< on tensor cores: reproducible, but neither exact nor independent of the batch
};
constexpr const char* linear_form_name(LinearForm form) noexcept {
  return form == LinearForm::exact ? "exact" : "cublaslt";
}
/// Nothing for a name that linear_form_name() does not give.
constexpr std::optional<LinearForm> linear_form_named(std::string_view name) noexcept {
  return named(name, {LinearForm::exact, LinearForm::cublaslt}, linear_form_name);
}

struct ForwardOptions {
  Compute compute = Compute::cpu;
  LinearForm linear = LinearForm::exact;  ///< cublaslt: Compute::cuda only
  bool host_visible = false;              ///< units can be read on the host, whatever computes
  Carry carry = Carry::bf16_per_token;
  LinearInput linear_input = LinearInput::bf16;
  Dtype conv_dtype = Dtype::bf16;         ///< what the convolution's inputs are rounded to, always
  std::uint32_t max_tokens = 2048;        ///< of one batch
  unsigned threads = 0;                   ///< 0: all of the machine
  const cpu::Kernels* kernels = nullptr;  ///< of the CPU; null: the fastest
  Condition broken = Condition::none;     ///< none: the exact mode
};

/// Refuses what no forward pass takes: DeviceError names the chunk of the batch and why. `logits`:
/// how many there is room for.
void check_batch(std::span<const ForwardChunk> chunks, const KvArena& kv,
                 const FalconH1Config& config, std::uint32_t max_tokens, std::size_t logits);

/// What a forward pass has to have room for.
struct ForwardLimits {
  std::uint32_t max_sequences = 1;  ///< chunks of a batch
  Tokens max_position = 1;          ///< tokens of the longest sequence
  std::size_t unit_bytes = 0;       ///< that allocate() will be asked for
};

/// Computes batches of chunks on some device.
class ForwardPass {
 public:
  ForwardPass() = default;
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;
  virtual ~ForwardPass() = default;

  virtual const FalconH1Config& config() const noexcept = 0;
  /// Computes a batch of chunks through all layers. `logits` gets one row of `vocabulary` for each
  /// chunk that asks for it, in order. Throws DeviceError before anything is written when a chunk
  /// names no address where one is needed, or the batch is too large.
  virtual void run(std::span<const ForwardChunk> chunks, const KvArena& kv,
                   std::span<float> logits) = 0;
  /// The same where only the token is wanted that a Sampler takes from each row of logits, for the
  /// position behind its chunk.
  virtual void choose(std::span<const ForwardChunk> chunks, const KvArena& kv,
                      const SamplingOptions& sampling, std::span<TokenId> choices);
  /// The tables after each change, in front of the run whose chunks name their rows. A pass that
  /// reads the chunks' spans has no use for them.
  virtual void update_tables(const StepTables&) {}
  /// Memory that units can lie in, zeroed; as long as the pass lives.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Inside that memory, before the next run.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

 private:
  std::vector<float> logits_;  ///< of choose()
  Sampler sampler_;
};

/// The forward pass that the options ask for. Throws DeviceError when a device's memory does not
/// hold weights, units and activations, or for options that it does not have; ModelError for a
/// model that the kernels do not take.
std::unique_ptr<ForwardPass> make_forward_pass(ModelTensors model, const ForwardOptions& options,
                                               const ForwardLimits& limits);

}  // namespace hybridstate::runtime
