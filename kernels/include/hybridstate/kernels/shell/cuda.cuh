// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <hybridstate/kernels/thread.hpp>

// The CUDA shell: a kernel's body as a __global__ function and its launch. Compile with
// -fmad=false, and without -use_fast_math, for the bits of the numeric contract.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// cta_thread of a real GPU.
struct CudaThread {
  __device__ unsigned thread() const { return threadIdx.x; }
  __device__ unsigned block_x() const { return blockIdx.x; }
  __device__ unsigned block_y() const { return blockIdx.y; }
  __device__ unsigned block_z() const { return blockIdx.z; }
  template <class V>
  __device__ V load(const void* from) const {
    __builtin_assume(__isGlobal(from));  // nvcc cannot tell where an address came from memory
    return *static_cast<const V*>(from);
  }
  template <class V>
  __device__ void store(void* to, V value) const {
    __builtin_assume(__isGlobal(to));
    *static_cast<V*>(to) = value;
  }
  __device__ void sync() const { __syncthreads(); }
  __device__ float shuffle_xor(float value, unsigned lane_mask) const {
    return __shfl_xor_sync(0xffffffffU, value, static_cast<int>(lane_mask));
  }
  template <class S>
  __device__ S& shared() const {
    __shared__ S memory;
    return memory;
  }
};

/// CTAs of a kernel that a multiprocessor's registers must have room for: Kernel::least_ctas, where
/// it says so.
template <class Kernel>
inline constexpr int least_ctas = 1;
template <class Kernel>
  requires requires { Kernel::least_ctas; }
inline constexpr int least_ctas<Kernel> = Kernel::least_ctas;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, least_ctas<Kernel>)
    __attribute__((visibility("hidden"))) run_kernel(const __grid_constant__ Kernel kernel) {
  CudaThread thread;
  kernel(thread);
}

/// Queues a kernel; an empty grid queues nothing. Neither waits nor allocates.
template <class Kernel>
cudaError_t launch(const Kernel& kernel, cudaStream_t stream) {
  Grid const grid = kernel.grid();
  if (grid.ctas() == 0) return cudaSuccess;
  void* argument = const_cast<Kernel*>(&kernel);
  return cudaLaunchKernel(run_kernel<Kernel>, dim3(grid.x, grid.y, grid.z), dim3(Kernel::threads),
                          &argument, 0, stream);
}

/// The same for the kernels of a job; cudaErrorInvalidValue if there are none (job.hpp).
template <class Job>
cudaError_t launch_job(const Job& job, cudaStream_t stream) {
  cudaError_t status = cudaSuccess;
  bool const taken = with_kernel(job, [&](const auto& kernel) {
    if (status == cudaSuccess) status = launch(kernel, stream);
  });
  return taken ? status : cudaErrorInvalidValue;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
