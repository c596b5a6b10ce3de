// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <hybridstate/device/device.hpp>

#include "executor/carry.hpp"
#include "executor/linear_input.hpp"
#include "model/dtype.hpp"

// The arithmetic of the forward pass. The builds of one source (16 lanes as sixteen scalars, two
// AVX2 registers or one AVX-512 register, this with or without its BF16 dot product) give the same
// bits, and no result depends on how many other rows, tokens or threads there are. The rules:
//
// * Every multiply-add in a reduction is fused, explicitly; everything else rounds each operation.
// * linear: 16 chains, element k in chain (k / 2) mod 16, in order of k from +0; a short last step
//   of 32 is padded with zeros. Then halving: a[i] += a[i + 8], + 4, + 2, + 1.
// * linear of BF16 inputs: the same, but of elements k and k + 1 the odd one first, and subnormal
//   elements and results of a chain are zeros of their sign (numeric::fused_flushed).
// * wide sums (norms, state . C, q . k, the denominator of a split): chain k mod L with
//   L = 16 x (the power of two that covers the 16-element steps), at most 256; a chain starts with
//   its first product. Then halving from L / 2 down to 1. A GPU gives a thread one or more chains.
// * attention: splits of 256 tokens inside spans of 1,024, both counted from position 0. Inside a
//   split: maximum, exponentials, their wide sum, and per output element 4 chains (token mod 4)
//   halved by 2 and 1. The splits of a span are joined in order, then the spans, each rescaled to
//   the larger maximum; the first of either begins the sum.

namespace hybridstate::runtime::cpu {

inline constexpr std::uint32_t split_tokens = 256;  ///< of the attention
inline constexpr std::uint32_t span_tokens = 1024;
inline constexpr std::uint32_t max_head_dim = 512;
inline constexpr std::uint32_t max_state = 1024;

/// Elements of one packed row of n: whole steps of 32.
constexpr std::size_t packed_size(std::size_t n) noexcept { return (n + 31) / 32 * 32; }

/// Elements from one packed row of n to the next: whole cache lines, and never about a multiple of
/// a page. The same columns of several rows, read together, then lie all over the first-level
/// cache.
constexpr std::size_t packed_stride(std::size_t n, LinearInput input) noexcept {
  std::size_t const page = input == LinearInput::bf16 ? 2048 : 1024;
  std::size_t const stride = packed_size(n) + page / 64;
  std::size_t const past = stride % page;
  bool const crowded = n > page / 2 && (past < page / 4 || past > page / 4 * 3 + page / 16);
  return stride + (crowded ? page / 2 : 0);
}

/// y[t][row] = (scale * (W[row] . x[t]) + bias[row]) * post for rows of W and tokens t.
struct Linear {
  const void* weights = nullptr;  ///< [rows][columns], packed
  Dtype dtype = Dtype::f32;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  LinearInput input = LinearInput::fp32;  ///< bf16 only with weights in BF16
  const void* x = nullptr;                ///< rows of such elements that Kernels::pack wrote
  std::size_t x_stride = 0;               ///< elements
  float* y = nullptr;
  std::size_t y_stride = 0;
  float scale = 1;
  const float* bias = nullptr;  ///< null: none
  float post = 1;
};

/// One run of tokens through the causal convolution and SiLU:
/// y[t][c] = silu(bias[c] + sum over i of weights[i][c] * x[t - (width - 1) + i][c]).
struct Convolution {
  std::uint32_t tokens = 0;
  std::uint32_t channels = 0;
  std::uint32_t width = 0;
  const float* weights = nullptr;  ///< tap-major [width][channels]
  const float* bias = nullptr;     ///< null: none
  const float* history = nullptr;  ///< [width - 1][channels], oldest first
  const float* x = nullptr;
  std::size_t x_stride = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

/// A state to leave behind once `after` tokens of a run have been processed.
struct StateStore {
  std::uint32_t after = 0;
  SsmPages<> pages{};
  Dtype dtype = Dtype::f32;
};

/// One run of tokens of one sequence through one head of the recurrence, token by token:
/// S = exp(dt A) S + (dt x) B, y = S . C + D x. A row of S stays in registers over the run.
struct StateUpdate {
  std::uint32_t tokens = 0;
  std::uint32_t begin = 0;  ///< position of the first token
  std::uint32_t head = 0;
  std::uint32_t rows = 0;   ///< of the head
  std::uint32_t state = 0;  ///< elements of a row
  Carry carry = Carry::fp32;
  const float* dt = nullptr;     ///< [t * dt_stride]
  const float* decay = nullptr;  ///< exp(dt A), as dt
  std::size_t dt_stride = 0;
  const float* x = nullptr;  ///< [t * stride + row]
  const float* b = nullptr;  ///< [t * stride + n]
  const float* c = nullptr;
  std::size_t stride = 0;
  float d = 0;
  float* y = nullptr;  ///< [t * y_stride + row]
  std::size_t y_stride = 0;
  const SsmPages<>* source = nullptr;  ///< row 0; null: the zero state
  Dtype source_dtype = Dtype::f32;
  const StateStore* stores = nullptr;  ///< ascending in `after`; row 0 of each
  std::size_t store_count = 0;
};

/// One query token and one KV head: the query heads that share it.
struct Attention {
  AttentionBlocks blocks{};  ///< row 0
  Dtype kv_dtype = Dtype::f32;
  std::uint32_t kv_head = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t heads = 0;     ///< query heads of the group
  std::uint32_t position = 0;  ///< of the query; it attends to [0, position]
  float scale = 1;
  const float* q = nullptr;  ///< [heads][head_dim]
  float* out = nullptr;      ///< [heads][head_dim]
};

struct GatedNorm {
  std::uint32_t width = 0;
  std::uint32_t groups = 1;
  const float* weight = nullptr;  ///< null: no norm, y * silu(z)
  bool norm_before_gate = false;
  float epsilon = 0;
};

/// The kernels of one instruction set. Pointers of different arguments do not overlap, except that
/// `y` may equal `x` where a row is written element by element.
struct Kernels {
  const char* name = "";

  /// The input of a linear, zeros past the end up to packed_size(n) elements. BF16: rounded. FP32:
  /// of each 32 elements the even ones, then the odd ones.
  void (*pack)(const float* x, std::size_t n, LinearInput input, void* y) = nullptr;
  void (*linear)(const Linear& job, std::uint32_t tokens, std::uint32_t first_row,
                 std::uint32_t end_row) = nullptr;
  /// y = weight * x / sqrt(mean(x^2) + epsilon).
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::size_t n,
                   float* y) = nullptr;
  /// y (in place) gated by z and normed per group.
  void (*gated_norm)(const GatedNorm& norm, float* y, const float* z) = nullptr;
  /// y = up * silu(gate).
  void (*silu_product)(const float* gate, const float* up, std::size_t n, float* y) = nullptr;
  /// x *= factor.
  void (*multiply)(float* x, float factor, std::size_t n) = nullptr;
  /// h += a, or h += a + b.
  void (*add)(float* h, const float* a, const float* b, std::size_t n) = nullptr;
  /// Rotates the halves of one head by the angles of one position.
  void (*rotate)(float* head, const float* cosines, const float* sines, std::size_t half) = nullptr;
  void (*convolve)(const Convolution& job, std::uint32_t first_channel,
                   std::uint32_t end_channel) = nullptr;
  void (*update_state)(const StateUpdate& job, std::uint32_t first_row,
                       std::uint32_t end_row) = nullptr;
  void (*attend)(const Attention& job) = nullptr;
  void (*load)(const void* from, Dtype dtype, std::size_t n, float* to) = nullptr;
  /// To F32 or BF16.
  void (*store)(const float* from, Dtype dtype, std::size_t n, void* to) = nullptr;
  /// Rounds to the values that `dtype` (F32 or BF16) can hold.
  void (*round)(float* x, Dtype dtype, std::size_t n) = nullptr;
  void (*exp)(const float* x, std::size_t n, float* y) = nullptr;
};

enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_bf16 };

/// Whether this machine and this build have it.
bool available(Isa isa) noexcept;
/// The kernels, those of Isa::scalar when the instruction set is not available.
const Kernels& kernels(Isa isa) noexcept;
/// The fastest available ones.
const Kernels& best_kernels() noexcept;

namespace detail {
extern const Kernels scalar_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
/// Kernels::linear for BF16 inputs, by the instruction for dot products of BF16.
void linear_avx512_bf16(const Linear& job, std::uint32_t tokens, std::uint32_t first_row,
                        std::uint32_t end_row);
/// Whether that instruction takes the products one by one, flushes and rounds as the rules say.
bool dot_keeps_rules_avx512_bf16() noexcept;
}  // namespace detail

}  // namespace hybridstate::runtime::cpu
