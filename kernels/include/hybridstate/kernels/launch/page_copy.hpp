// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/page_copy.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// Queues the copies; the list or the tables lie in device memory. Neither waits nor allocates.
/// cudaErrorInvalidValue: negative bytes, or more than 2^31 - 1 tiles of 32 KiB.
cudaError_t launch_page_copy(const CopyList& items, cudaStream_t stream);
cudaError_t launch_page_copy(const CopyPages& items, cudaStream_t stream);

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
