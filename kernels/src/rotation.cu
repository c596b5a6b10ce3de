// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/rotation.hpp>

#include "dispatch.cuh"

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

cudaError_t launch_rotation(const RotatedRows& rows, ElementType kv, cudaStream_t stream) {
  std::uint64_t const pairs =
      (std::uint64_t{rows.heads} + 2 * std::uint64_t{rows.kv_heads}) * (rows.head_dim / 2);
  if (rows.head_dim % 2 != 0 || rows.tokens * pairs > detail::most_grid_x)
    return cudaErrorInvalidValue;
  AttentionBlocks const& units = rows.to.blocks;
  bool const vectors =
      rows.head_dim % 8 == 0 && detail::row_vectors(rows.q) && detail::row_vectors(rows.q_out) &&
      detail::row_vectors(rows.k) && detail::row_vectors(rows.v) &&
      detail::vectors(rows.cosines, rows.sines, units.base, units.unit_stride, units.strides.token,
                      units.strides.head, units.strides.value);
  if (kv == ElementType::bf16)
    return vectors ? launch(RotateAndStore<Bf16, 4>{rows}, stream)
                   : launch(RotateAndStore<Bf16, 1>{rows}, stream);
  return vectors ? launch(RotateAndStore<float, 4>{rows}, stream)
                 : launch(RotateAndStore<float, 1>{rows}, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
