// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/convolution.hpp>

// Launchers queue on the stream and return: they neither wait nor allocate. Every pointer of a job
// is device memory. cudaErrorInvalidValue: with_kernel() refuses the job; nothing was queued.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Sixteen-byte accesses where all addresses, strides and parts are multiples of 16 bytes and
/// channels of 16 bytes of the state, single elements elsewhere. The tables of lines are device
/// memory too.
cudaError_t launch_convolution(const ConvolutionStepJob& job, cudaStream_t stream);
cudaError_t launch_convolution(const ConvolutionRunsJob& job, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
