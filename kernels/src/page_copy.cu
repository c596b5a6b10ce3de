// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/page_copy.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

cudaError_t launch_page_copy(const CopyList& job, cudaStream_t stream) {
  return launch_job(job, stream);
}
cudaError_t launch_page_copy(const CopyPages& job, cudaStream_t stream) {
  return launch_job(job, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
