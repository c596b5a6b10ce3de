// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/sampling.hpp>

// Launchers queue on the stream and return: they neither wait nor allocate. Every pointer of a job
// is device memory. cudaErrorInvalidValue: with_kernel() refuses the job; nothing was queued.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// One CTA a row. Sixteen-byte accesses where rows begin at multiples of 16 bytes and n is a
/// multiple of 4.
cudaError_t launch_sampling(const SampleRows& job, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
