// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <hybridstate/kernels/attention.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Storage type of keys and values.
enum class KvType : std::uint8_t { bf16, f32 };

/// Attention of a batch; all its arrays lie in device memory. Rows of q and out and all addresses
/// of keys and values are multiples of 16 bytes.
struct AttentionJob {
  AttentionBatch batch{};
  KvType kv_type = KvType::bf16;
  std::uint32_t head_dim = 0;      ///< 64, 80, 128 or 256
  std::uint32_t most_queries = 1;  ///< of any sequence; further ones are left out
  /// Where splits go that are computed side by side, which keeps a GPU busy with few sequences;
  /// one query per sequence then. Null: in turn, with less traffic. The same bits.
  SplitResults results{};
};

/// Bytes of the memory that split_results() lays out.
constexpr std::size_t split_results_bytes(std::uint32_t sequences, std::uint32_t query_heads,
                                          std::uint32_t head_dim, std::uint32_t splits) noexcept {
  return std::size_t{sequences} * query_heads * splits *
         (sizeof(Softmax) + head_dim * sizeof(float));
}
/// In memory at a multiple of 16 bytes.
inline SplitResults split_results(void* memory, std::uint32_t sequences, std::uint32_t query_heads,
                                  std::uint32_t head_dim, std::uint32_t splits) noexcept {
  auto* const output = static_cast<float*>(memory);
  std::size_t const floats = std::size_t{sequences} * query_heads * splits * head_dim;
  return {reinterpret_cast<Softmax*>(output + floats), output, splits};
}

/// Queues one kernel, or two with job.results. Neither waits nor allocates. cudaErrorInvalidValue:
/// a head_dim, alignment or stride that it does not take, more than 65,535 sequences or splits, or
/// job.results with runs of several queries.
cudaError_t launch_attention(const AttentionJob& job, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
