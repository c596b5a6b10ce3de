// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/state_update.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

cudaError_t launch_state_update(const StateUpdateJob& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_state_scan(const StateScanJob& job, cudaStream_t stream) {
  return launch_job(job, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
