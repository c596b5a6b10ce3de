// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/kernels/launch/convolution.hpp>

#include "dispatch.cuh"

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {
namespace {

bool line_vectors(const ConvLines& lines) {
  return detail::vectors(lines.base, lines.line_stride, lines.part_bytes);
}
bool input_vectors(const ConvolutionInputs& in, std::uint64_t element) {
  constexpr std::int64_t size = sizeof(float);
  return detail::vectors(in.weights, in.bias, in.x, in.y, in.x_stride * size, in.y_stride * size,
                         in.channels * element);
}

template <template <class, unsigned> class Kernel, class E, class Job>
cudaError_t launch_with(const Job& job, bool vectors, cudaStream_t stream) {
  if (vectors && input_vectors(job, sizeof(E)))
    return launch(Kernel<E, per_vector<E>>{job}, stream);
  return launch(Kernel<E, 1>{job}, stream);
}
template <template <class, unsigned> class Kernel, class Job>
cudaError_t launch_any(const Job& job, ElementType state, bool vectors, cudaStream_t stream) {
  if (job.width < 2 || job.width > most_taps || job.sequences > detail::most_grid_y)
    return cudaErrorInvalidValue;
  return state == ElementType::bf16 ? launch_with<Kernel, Bf16>(job, vectors, stream)
                                    : launch_with<Kernel, float>(job, vectors, stream);
}

}  // namespace

cudaError_t launch_convolution(const ConvolutionStep& step, ElementType state,
                               cudaStream_t stream) {
  bool const vectors =
      line_vectors(step.source) && line_vectors(step.destination) && line_vectors(step.checkpoint);
  return launch_any<ConvolutionUpdate>(step, state, vectors, stream);
}

cudaError_t launch_convolution(const ConvolutionRuns& runs, ElementType state,
                               cudaStream_t stream) {
  constexpr std::uint32_t tile = ConvolutionPrefill<float, 1>::tile_tokens;
  if (quotient_up(runs.most_tokens, tile) > detail::most_grid_y) return cudaErrorInvalidValue;
  bool const vectors = line_vectors(runs.source) && line_vectors(runs.stores);
  return launch_any<ConvolutionPrefill>(runs, state, vectors, stream);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
