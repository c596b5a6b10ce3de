// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <hybridstate/kernels/element.hpp>
#include <memory>

// Linears by cuBLASLt, where the bits of the numeric contract are not asked for: tensor cores, sums
// in FP32. Only in the library hybridstate::gemm, which needs cuBLASLt.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// y[token][row] = scale * (weights[row] . x[token]); launch_scale() does what follows. All arrays
/// are device memory at multiples of 16 bytes, and rows begin at such.
struct GemmRows {
  const Bf16* weights = nullptr;  ///< [rows][columns], packed
  const Bf16* x = nullptr;        ///< [token][x_stride]
  std::int64_t x_stride = 0;
  float* y = nullptr;  ///< [token][y_stride]; overlaps neither
  std::int64_t y_stride = 0;
  float scale = 1;
  std::uint32_t tokens = 0;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
};

/// Runs linears on the device that was current when it was made; for one thread at a time.
///
/// The algorithm belongs to (rows, columns, tokens rounded up to one of gemm_buckets): cuBLASLt's
/// first proposal without split-K for that many tokens and all of the workspace, kept from its
/// first use on. Equal jobs so give equal bits, but other bits than the exact linear's, another
/// number of tokens may give others, and so may another version of cuBLASLt or another kind of
/// device.
class Gemm {
 public:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

  Gemm();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Finds the algorithm for as many tokens, as run() does at its first use: host work that
  /// a server wants behind it. cudaErrorNotSupported: cuBLASLt has none, or does not run here.
  cudaError_t prepare(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens);

  /// Queues a linear. `workspace`: workspace_bytes of device memory at a multiple of 256, which no
  /// other run uses meanwhile. Does not wait. cudaErrorInvalidValue: an alignment that it does not
  /// take; cudaErrorNotSupported as prepare().
  cudaError_t run(const GemmRows& job, void* workspace, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Numbers of tokens that choose an algorithm; more than the last count as the last.
inline constexpr std::uint32_t gemm_buckets[] = {16, 64, 256, 1024, 4096};

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
