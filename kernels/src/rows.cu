// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/rows.hpp>

#include "dispatch.cuh"

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {
namespace {

/// Kernel<E, Vectors> for a type chosen at run time.
template <template <class, bool> class Kernel, class Job>
cudaError_t launch_rows(const Job& job, ElementType element, bool vectors, cudaStream_t stream) {
  bool const bf16 = element == ElementType::bf16;
  if (vectors)
    return bf16 ? launch(Kernel<Bf16, true>{job}, stream)
                : launch(Kernel<float, true>{job}, stream);
  return bf16 ? launch(Kernel<Bf16, false>{job}, stream)
              : launch(Kernel<float, false>{job}, stream);
}

/// Bytes of a step of `out_stride` elements, as detail::vectors() wants them.
std::int64_t out_bytes(std::int64_t out_stride, ElementType out) {
  return out_stride * (out == ElementType::bf16 ? 2 : 4);
}

template <class E, bool Vectors>
using EachEmbedding = EachFour<Embedding<E, Vectors>>;
template <class E, bool Vectors>
using EachSiluProduct = EachFour<SiluProduct<E, Vectors>>;

template <class Job>
bool too_many(const Job& job) {
  return std::uint64_t{job.rows} * quotient_up(job.n, 512U) > detail::most_grid_x;
}

}  // namespace

cudaError_t launch_rms_norm(const RmsNormRows& rows, ElementType out, cudaStream_t stream) {
  if (rows.rows > detail::most_grid_x) return cudaErrorInvalidValue;
  bool const vectors = rows.n % 4 == 0 && detail::row_vectors(rows.h) &&
                       detail::row_vectors(rows.a) && detail::row_vectors(rows.b) &&
                       detail::row_vectors(rows.sum) &&
                       detail::vectors(rows.weight, rows.out, out_bytes(rows.out_stride, out));
  return launch_rows<RmsNorm>(rows, out, vectors, stream);
}

cudaError_t launch_gated_norm(const GatedNormRows& rows, ElementType out, cudaStream_t stream) {
  if (rows.rows > detail::most_grid_x || rows.groups == 0 || rows.groups > detail::most_grid_y ||
      rows.width % rows.groups != 0)
    return cudaErrorInvalidValue;
  bool const vectors = rows.width / rows.groups % 4 == 0 && detail::row_vectors(rows.y) &&
                       detail::row_vectors(rows.z) &&
                       detail::vectors(rows.weight, rows.out, out_bytes(rows.out_stride, out));
  return launch_rows<GatedNorm>(rows, out, vectors, stream);
}

cudaError_t launch_silu_product(const SiluProductRows& rows, ElementType out, cudaStream_t stream) {
  if (too_many(rows)) return cudaErrorInvalidValue;
  bool const vectors = rows.n % 4 == 0 && detail::row_vectors(rows.gate) &&
                       detail::row_vectors(rows.up) &&
                       detail::vectors(rows.out, out_bytes(rows.out_stride, out));
  return launch_rows<EachSiluProduct>(rows, out, vectors, stream);
}

cudaError_t launch_embedding(const EmbeddingRows& rows, ElementType table, cudaStream_t stream) {
  if (too_many(rows)) return cudaErrorInvalidValue;
  bool const vectors =
      rows.n % 4 == 0 && detail::row_vectors(rows.out) && detail::vectors(rows.table);
  return launch_rows<EachEmbedding>(rows, table, vectors, stream);
}

cudaError_t launch_scale(const ScaleRows& rows, cudaStream_t stream) {
  if (too_many(rows)) return cudaErrorInvalidValue;
  if (rows.n % 4 == 0 && detail::row_vectors(rows.x) && detail::vectors(rows.bias, rows.factors))
    return launch(EachFour<Scale<true>>{rows}, stream);
  return launch(EachFour<Scale<false>>{rows}, stream);
}

cudaError_t launch_add(const AddRows& rows, cudaStream_t stream) {
  if (too_many(rows)) return cudaErrorInvalidValue;
  if (rows.n % 4 == 0 && detail::row_vectors(rows.h) && detail::row_vectors(rows.a) &&
      detail::row_vectors(rows.b))
    return launch(EachFour<Add<true>>{rows}, stream);
  return launch(EachFour<Add<false>>{rows}, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
