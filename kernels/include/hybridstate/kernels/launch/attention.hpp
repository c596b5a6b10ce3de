// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/attention.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Queues one kernel, or two with job.results, and returns: it neither waits nor allocates. Every
/// pointer is device memory. cudaErrorInvalidValue: with_kernel() refuses the job; nothing was
/// queued.
cudaError_t launch_attention(const AttentionJob& job, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
