// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// Throws with the runtime's own words.
inline void must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// Whether there is a device; says why not, once, in the words that mark a test as skipped.
inline bool have_device() {
  static cudaError_t const status = [] {
    int count = 0;
    cudaError_t const error = cudaGetDeviceCount(&count);
    cudaError_t const found = error == cudaSuccess && count == 0 ? cudaErrorNoDevice : error;
    if (found != cudaSuccess) std::printf("no CUDA device: %s\n", cudaGetErrorString(found));
    return found;
  }();
  return status == cudaSuccess;
}

/// A copy of host memory on the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host) : bytes_(host.size() * sizeof(T)) {
    void* p = nullptr;
    must(cudaMalloc(&p, bytes_ + 1));
    memory_.reset(p);
    must(cudaMemcpy(p, host.data(), bytes_, cudaMemcpyHostToDevice));
  }
  T* get() const { return static_cast<T*>(memory_.get()); }
  void download(std::vector<T>& host) const {
    must(cudaMemcpy(host.data(), memory_.get(), bytes_, cudaMemcpyDeviceToHost));
  }

 private:
  struct Free {
    void operator()(void* p) const { cudaFree(p); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_;
};
