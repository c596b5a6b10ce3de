// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <hybridstate/kernels/launch/attention.hpp>
#include <hybridstate/kernels/launch/convolution.hpp>
#include <hybridstate/kernels/launch/greedy.hpp>
#include <hybridstate/kernels/launch/linear.hpp>
#include <hybridstate/kernels/launch/page_copy.hpp>
#include <hybridstate/kernels/launch/rotation.hpp>
#include <hybridstate/kernels/launch/rows.hpp>
#include <hybridstate/kernels/launch/sampling.hpp>
#include <hybridstate/kernels/launch/state_update.hpp>

#include "gpu/device_memory.hpp"

// Every public launcher by the type of its job, on the default stream.
#define HYBRIDSTATE_TEST_LAUNCH(launcher, Job)                                \
  inline cudaError_t launch_on_device(const hybridstate::kernels::Job& job) { \
    return hybridstate::kernels::launcher(job, nullptr);                      \
  }
HYBRIDSTATE_TEST_LAUNCH(launch_attention, AttentionJob)
HYBRIDSTATE_TEST_LAUNCH(launch_convolution, ConvolutionStepJob)
HYBRIDSTATE_TEST_LAUNCH(launch_convolution, ConvolutionRunsJob)
HYBRIDSTATE_TEST_LAUNCH(launch_rotation, RotationJob)
HYBRIDSTATE_TEST_LAUNCH(launch_rms_norm, RmsNormJob)
HYBRIDSTATE_TEST_LAUNCH(launch_gated_norm, GatedNormJob)
HYBRIDSTATE_TEST_LAUNCH(launch_silu_product, SiluProductJob)
HYBRIDSTATE_TEST_LAUNCH(launch_embedding, EmbeddingJob)
HYBRIDSTATE_TEST_LAUNCH(launch_scale, ScaleRows)
HYBRIDSTATE_TEST_LAUNCH(launch_round, RoundRows)
HYBRIDSTATE_TEST_LAUNCH(launch_add, AddRows)
HYBRIDSTATE_TEST_LAUNCH(launch_linear, LinearJob)
HYBRIDSTATE_TEST_LAUNCH(launch_page_copy, CopyList)
HYBRIDSTATE_TEST_LAUNCH(launch_page_copy, CopyPages)
HYBRIDSTATE_TEST_LAUNCH(launch_greedy, GreedyRows)
HYBRIDSTATE_TEST_LAUNCH(launch_sampling, SampleRows)
HYBRIDSTATE_TEST_LAUNCH(launch_state_update, StateUpdateJob)
HYBRIDSTATE_TEST_LAUNCH(launch_state_scan, StateScanJob)
#undef HYBRIDSTATE_TEST_LAUNCH

/// The target (kernels/target.hpp) that is the first device.
struct Cuda {
  template <class T>
  using Copy = OnDevice<T>;
  template <class Job>
  bool run(const Job& job) {
    cudaError_t const status = launch_on_device(job);
    if (status == cudaErrorInvalidValue) return false;
    must(status);
    must(cudaDeviceSynchronize());
    return true;
  }
};
inline std::array<Cuda, 1> the_device;
