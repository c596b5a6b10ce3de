// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/page_copy.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {
namespace {

template <class Items>
cudaError_t launch_copies(const Items& items, cudaStream_t stream) {
  constexpr std::int64_t most_ctas = 0x7fffffff;
  if (items.most_bytes < 0) return cudaErrorInvalidValue;
  if (items.count == 0 || items.most_bytes == 0) return cudaSuccess;
  if (items.most_bytes > most_ctas / items.count * PageCopy<Items>::tile_bytes)
    return cudaErrorInvalidValue;
  return launch(PageCopy<Items>{items}, stream);
}

}  // namespace

cudaError_t launch_page_copy(const CopyList& items, cudaStream_t stream) {
  return launch_copies(items, stream);
}
cudaError_t launch_page_copy(const CopyPages& items, cudaStream_t stream) {
  return launch_copies(items, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
