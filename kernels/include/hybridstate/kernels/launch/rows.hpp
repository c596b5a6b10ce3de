// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/rows.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

// Each queues one step over all rows; all pointers are device memory. Sixteen-byte accesses where
// rows and per-element arguments begin at multiples of 16 bytes and have whole groups of four
// elements, single elements elsewhere. None waits or allocates. cudaErrorInvalidValue: a width that
// is not a multiple of its groups, or more CTAs than a launch takes (2^31 - 1; 65535 groups).

cudaError_t launch_rms_norm(const RmsNormRows& rows, ElementType out, cudaStream_t stream);
cudaError_t launch_gated_norm(const GatedNormRows& rows, ElementType out, cudaStream_t stream);
cudaError_t launch_silu_product(const SiluProductRows& rows, ElementType out, cudaStream_t stream);
cudaError_t launch_embedding(const EmbeddingRows& rows, ElementType table, cudaStream_t stream);
cudaError_t launch_scale(const ScaleRows& rows, cudaStream_t stream);
cudaError_t launch_add(const AddRows& rows, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
