// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/rotation.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Queues the rotation of all tokens; keys and values are stored as `kv`. All pointers are device
/// memory. Vector accesses where halves of heads are multiples of 4 elements and all addresses and
/// strides of 16 bytes, single elements elsewhere. Neither waits nor allocates.
/// cudaErrorInvalidValue: an odd head_dim, or more CTAs than a launch takes.
cudaError_t launch_rotation(const RotatedRows& rows, ElementType kv, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
