// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/sampling.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

cudaError_t launch_sampling(const SampleRows& job, cudaStream_t stream) {
  return launch_job(job, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
