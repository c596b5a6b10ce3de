// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/target.hpp"

inline hybridstate::kernels::StateUpdateJob empty_state_update() {
  hybridstate::kernels::StateUpdateJob job;
  job.in.heads = 24;
  job.in.rows = 128;
  job.state = 256;
  job.source.map.heads_per_page = job.destination.map.heads_per_page = 8;
  return job;
}
inline hybridstate::kernels::StateScanJob empty_state_scan() {
  auto const step = empty_state_update();
  hybridstate::kernels::StateScanJob job;
  job.in = step.in;
  job.state = step.state;
  job.source = job.kept.states = step.source;
  return job;
}

/// Calls use(job) with a job of every kernel, whose batch is empty and whose shapes are not.
template <class Use>
void each_empty_job(Use&& use) {
  using namespace hybridstate::kernels;
  auto const with = [&](auto job, auto shape) {
    shape(job);
    use(job);
  };
  with(AttentionJob{}, [](auto& j) {
    j.batch.kv_heads = 1;
    j.batch.blocks.strides.block_tokens = 16;
    j.head_dim = 128;
  });
  use(empty_state_update());
  use(empty_state_scan());
  with(ConvolutionStepJob{}, [](auto& j) { j.channels = 64; });
  with(ConvolutionRunsJob{}, [](auto& j) { j.channels = 64; });
  with(RotationJob{}, [](auto& j) {
    j.heads = j.kv_heads = 1;
    j.head_dim = 64;
  });
  use(CopyList{});
  use(CopyPages{.count = 0, .most_bytes = 4096});
  with(RmsNormJob{}, [](auto& j) { j.n = 64; });
  with(GatedNormJob{}, [](auto& j) { j.width = 64; });
  with(EmbeddingJob{}, [](auto& j) { j.n = 64; });
  with(SiluProductJob{}, [](auto& j) { j.n = 64; });
  use(ScaleRows{.n = 64});
  use(RoundRows{.n = 64});
  use(AddRows{.n = 64});
  use(LinearJob{});
  use(GreedyRows{.n = 64});
  use(SampleRows{.n = 64});
}
