// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/greedy.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Queues the two launches of the greedy choice; all pointers are device memory. Sixteen-byte
/// accesses where rows begin at multiples of 16 bytes and n is a multiple of 4. Neither waits nor
/// allocates. cudaErrorInvalidValue: no logits, 2^31 of them or more, or more than 65535 rows.
cudaError_t launch_greedy(const GreedyRows& rows, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
