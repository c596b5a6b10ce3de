// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/page_copy.hpp>

// Launchers queue on the stream and return: they neither wait nor allocate. Every pointer of a job
// is device memory. cudaErrorInvalidValue: with_kernel() refuses the job; nothing was queued.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Any addresses and sizes; sixteen-byte accesses where an item's source and destination are equal
/// modulo 16. The tables of items or units are device memory too.
cudaError_t launch_page_copy(const CopyList& job, cudaStream_t stream);
cudaError_t launch_page_copy(const CopyPages& job, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
