// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/convolution.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Queues the convolution of a batch whose states have elements of type `state`. All pointers are
/// device memory, the tables of lines too. Sixteen-byte accesses where all addresses, strides and
/// parts are multiples of 16 bytes and channels of 16 bytes of the state, single elements
/// elsewhere. Neither waits nor allocates. cudaErrorInvalidValue: a width other than 2 to 4, or
/// more than 65535 sequences or tiles of 64 tokens of a sequence.
cudaError_t launch_convolution(const ConvolutionStep& step, ElementType state, cudaStream_t stream);
cudaError_t launch_convolution(const ConvolutionRuns& runs, ElementType state, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
