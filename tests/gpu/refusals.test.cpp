// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// What launchers answer before they touch a device: these tests need none.

#include <doctest/doctest.h>

#include "gpu/cuda_target.hpp"

using namespace hybridstate::kernels;

namespace {

template <class Job, class Change>
cudaError_t launched(Job job, Change change) {
  change(job);
  return launch_on_device(job);
}

}  // namespace

TEST_CASE("launchers refuse what no kernel takes") {
  CHECK(launch_on_device(AttentionJob{}) == cudaErrorInvalidValue);
  CHECK(launch_on_device(GreedyRows{}) == cudaErrorInvalidValue);
  CHECK(launch_on_device(SampleRows{}) == cudaErrorInvalidValue);
  auto const refused = [](auto job, auto change) {
    CHECK(launched(job, change) == cudaErrorInvalidValue);
  };
  refused(ConvolutionStepJob{}, [](auto& j) { j.width = 5; });
  refused(ConvolutionRunsJob{}, [](auto& j) { j.sequences = 65536; });
  refused(RotationJob{}, [](auto& j) { j.head_dim = 7; });
  refused(RmsNormJob{}, [](auto& j) { j.rows = 0x80000000U; });
  refused(GatedNormJob{}, [](auto& j) { j.groups = 0; });
  refused(SiluProductJob{}, [](auto& j) { j.n = 0x7fffffff, j.rows = 600; });
  refused(EmbeddingJob{}, [](auto& j) { j.n = 0x7fffffff, j.rows = 600; });
  refused(ScaleRows{}, [](auto& j) { j.n = 0x7fffffff, j.rows = 600; });
  refused(RoundRows{}, [](auto& j) { j.n = 0x7fffffff, j.rows = 600; });
  refused(AddRows{}, [](auto& j) { j.n = 0x7fffffff, j.rows = 600; });
  refused(LinearJob{}, [](auto& j) { j.rows = 524281; });
  refused(CopyList{}, [](auto& j) { j.most_bytes = -1; });
  refused(CopyPages{}, [](auto& j) { j.most_bytes = -1; });
  refused(StateUpdateJob{}, [](auto& j) { j.state = 96; });
  refused(StateScanJob{}, [](auto& j) { j.state = 1025; });
}

TEST_CASE("empty batches queue nothing") {
  auto const nothing = [](auto job, auto change) { CHECK(launched(job, change) == cudaSuccess); };
  auto const as_is = [](auto&) {};
  nothing(AttentionJob{}, [](auto& j) {
    j.batch.kv_heads = 1;
    j.batch.blocks.strides.block_tokens = 16;
    j.head_dim = 128;
  });
  nothing(ConvolutionStepJob{}, as_is);
  nothing(ConvolutionRunsJob{}, as_is);
  nothing(RotationJob{}, as_is);
  nothing(RmsNormJob{}, as_is);
  nothing(GatedNormJob{}, as_is);
  nothing(SiluProductJob{}, as_is);
  nothing(EmbeddingJob{}, as_is);
  nothing(ScaleRows{}, as_is);
  nothing(RoundRows{}, as_is);
  nothing(AddRows{}, as_is);
  nothing(LinearJob{}, as_is);
  nothing(CopyList{}, as_is);
  nothing(CopyPages{}, as_is);
  nothing(GreedyRows{}, [](auto& j) { j.n = 8; });
  nothing(SampleRows{}, [](auto& j) { j.n = 8; });
  nothing(StateScanJob{}, [](auto& j) { j.in.heads = 1, j.state = 64; });
  nothing(StateUpdateJob{}, [](auto& j) {
    j.in.heads = 1, j.state = 64;
    j.source.map.heads_per_page = j.destination.map.heads_per_page = 1;
  });
}
