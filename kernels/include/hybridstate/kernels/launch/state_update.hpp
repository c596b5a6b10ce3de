// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/state_update.hpp>

// Launchers queue on the stream and return: they neither wait nor allocate. Every pointer of a job
// is device memory. cudaErrorInvalidValue: with_kernel() refuses the job; nothing was queued.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// One token of each sequence, 16 bytes an access: whole heads in a page, rows of 64, 128 or 256
/// elements, all addresses and strides of states, B and C multiples of 16 bytes.
cudaError_t launch_state_update(const StateUpdateJob& job, cudaStream_t stream);
/// Runs of tokens in the recurrent form. The same accesses where the shapes are such, single
/// elements for rows of up to 1024 elements elsewhere.
cudaError_t launch_state_scan(const StateScanJob& job, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
