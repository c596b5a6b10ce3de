// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/attention.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {
namespace {

bool aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

bool valid(const AttentionJob& job) {
  constexpr std::uint32_t most = 65535;  // CTAs in y and z
  const AttentionBatch& b = job.batch;
  KvStrides const s = b.blocks.strides;
  bool const side_by_side = job.results.softmax != nullptr;
  return s.token == std::int64_t{job.head_dim} * (job.kv_type == KvType::bf16 ? 2 : 4) &&
         s.head % 16 == 0 && s.value % 16 == 0 && b.blocks.unit_stride % 16 == 0 &&
         s.block_tokens > 0 && b.q_stride % 4 == 0 && b.out_stride % 4 == 0 && b.group > 0 &&
         b.kv_heads > 0 && b.sequences <= most && job.results.splits <= most &&
         aligned(b.blocks.base) && aligned(b.q) && aligned(b.out) && aligned(job.results.output) &&
         (!side_by_side || (b.first == nullptr && job.most_queries == 1));
}

template <class E, unsigned D, unsigned R>
cudaError_t launch_rows(const AttentionJob& job, cudaStream_t stream) {
  if (job.results.softmax == nullptr)
    return launch(Attention<E, D, R, Splits::in_turn>{job.batch, {}, job.most_queries}, stream);
  cudaError_t const status =
      launch(Attention<E, D, R, Splits::side_by_side>{job.batch, job.results, 1}, stream);
  return status != cudaSuccess ? status
                               : launch(JoinSplits{job.batch, job.results, job.head_dim}, stream);
}

/// With the R that leaves the fewest rows of the last CTA unused; the largest of several.
template <class E, unsigned D, unsigned R, unsigned... Less>
cudaError_t launch_best(const AttentionJob& job, cudaStream_t stream) {
  if constexpr (sizeof...(Less) > 0) {
    std::uint32_t const rows = job.most_queries * job.batch.group;
    auto const computed = [&](unsigned r) { return quotient_up(rows, r) * r; };
    if (((computed(Less) < computed(R)) || ...)) return launch_best<E, D, Less...>(job, stream);
  }
  return launch_rows<E, D, R>(job, stream);
}

}  // namespace

cudaError_t launch_attention(const AttentionJob& job, cudaStream_t stream) {
  if (!valid(job)) return cudaErrorInvalidValue;
  bool const bf16 = job.kv_type == KvType::bf16;
  switch (job.head_dim) {
    case 64:
      return bf16 ? launch_best<Bf16, 64, 8, 4>(job, stream)
                  : launch_rows<float, 64, 8>(job, stream);
    case 80:
      return bf16 ? launch_rows<Bf16, 80, 8>(job, stream) : launch_rows<float, 80, 8>(job, stream);
    case 128:
      return bf16 ? launch_best<Bf16, 128, 8, 6, 4>(job, stream)
                  : launch_rows<float, 128, 8>(job, stream);
    case 256:
      return bf16 ? launch_rows<Bf16, 256, 8>(job, stream)
                  : launch_rows<float, 256, 8>(job, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
