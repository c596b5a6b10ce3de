// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/rows.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

cudaError_t launch_rms_norm(const RmsNormJob& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_gated_norm(const GatedNormJob& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_silu_product(const SiluProductJob& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_embedding(const EmbeddingJob& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_scale(const ScaleRows& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_round(const RoundRows& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_add(const AddRows& job, cudaStream_t stream) { return launch_job(job, stream); }

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
