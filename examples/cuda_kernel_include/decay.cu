// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// A kernel of one's own: it includes device/ and asks for addresses.
#include <cuda_runtime.h>

#include <memory>

#include "decay.hpp"

namespace {

/// A block takes one head of one row.
template <class Map>
__global__ void decay(hybridstate::SsmPages<Map> pages, std::int32_t elements, float factor) {
  auto const head = static_cast<std::int32_t>(blockIdx.x);
  auto const row = static_cast<std::int32_t>(blockIdx.y);
  for (auto e = static_cast<std::int32_t>(threadIdx.x); e < elements;
       e += static_cast<std::int32_t>(blockDim.x))
    decay_element(pages, row, head, e, factor);
}

struct Free {
  void operator()(void* p) const { static_cast<void>(cudaFree(p)); }
};

/// A copy of host memory on the device; null when there is no room.
template <class T>
std::unique_ptr<T, Free> upload(std::span<const T> host) {
  void* p = nullptr;
  if (cudaMalloc(&p, host.size_bytes()) != cudaSuccess) return nullptr;
  std::unique_ptr<T, Free> device(static_cast<T*>(p));
  if (cudaMemcpy(p, host.data(), host.size_bytes(), cudaMemcpyHostToDevice) != cudaSuccess)
    return nullptr;
  return device;
}

}  // namespace

const char* decay_on_device(States states, std::span<std::byte> pool,
                            std::span<const std::int32_t> tables, float factor) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return "there is no CUDA device";
  auto const bytes = upload(std::span<const std::byte>(pool));
  auto const rows = upload(tables);
  if (!bytes || !rows) return "the device has no room";
  states.pages.base = bytes.get() + (states.pages.base - pool.data());
  states.pages.pages = rows.get() + (states.pages.pages - tables.data());
  dim3 const grid(static_cast<unsigned>(states.heads), static_cast<unsigned>(states.rows));
  decay<<<grid, 128>>>(states.pages, states.elements, factor);
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess)
    error = cudaMemcpy(pool.data(), bytes.get(), pool.size_bytes(), cudaMemcpyDeviceToHost);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
