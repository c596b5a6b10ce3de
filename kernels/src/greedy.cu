// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/greedy.hpp>

#include "dispatch.cuh"

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

cudaError_t launch_greedy(const GreedyRows& rows, cudaStream_t stream) {
  if (rows.n == 0 || rows.n > detail::most_grid_x || rows.rows > detail::most_grid_y)
    return cudaErrorInvalidValue;
  cudaError_t const chunks = rows.n % 4 == 0 && detail::row_vectors(rows.logits)
                                 ? launch(GreedyChunks<true>{rows}, stream)
                                 : launch(GreedyChunks<false>{rows}, stream);
  return chunks != cudaSuccess ? chunks : launch(GreedyChoice{rows}, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
