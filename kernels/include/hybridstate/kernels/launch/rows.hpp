// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/rows.hpp>

// Launchers queue on the stream and return: they neither wait nor allocate. Every pointer of a job
// is device memory. cudaErrorInvalidValue: with_kernel() refuses the job; nothing was queued.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

// Sixteen-byte accesses where rows and per-element arguments begin at multiples of 16 bytes and
// have whole groups of four elements, single elements elsewhere.

cudaError_t launch_rms_norm(const RmsNormJob& job, cudaStream_t stream);
cudaError_t launch_gated_norm(const GatedNormJob& job, cudaStream_t stream);
cudaError_t launch_silu_product(const SiluProductJob& job, cudaStream_t stream);
cudaError_t launch_embedding(const EmbeddingJob& job, cudaStream_t stream);
cudaError_t launch_scale(const ScaleRows& job, cudaStream_t stream);
cudaError_t launch_round(const RoundRows& job, cudaStream_t stream);
cudaError_t launch_add(const AddRows& job, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
