// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// What launchers answer before they touch a device: these tests need none.

#include <doctest/doctest.h>

#include "gpu/cuda_target.hpp"
#include "kernels/empty_jobs.hpp"

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
  each_empty_job([](const auto& job) { CHECK(launch_on_device(job) == cudaSuccess); });
}
