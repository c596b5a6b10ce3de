// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/device/device.hpp"
#include "executor/device_error.hpp"

#if defined(HYBRIDSTATE_HAVE_KERNELS)

#include <cuda_runtime_api.h>

#include <cstring>
#include <hybridstate/kernels/launch/attention.hpp>
#include <hybridstate/kernels/launch/convolution.hpp>
#include <hybridstate/kernels/launch/linear.hpp>
#include <hybridstate/kernels/launch/rotation.hpp>
#include <hybridstate/kernels/launch/rows.hpp>
#include <hybridstate/kernels/launch/state_update.hpp>
#include <vector>

namespace hybridstate::runtime::device {
namespace {

void must(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw DeviceError(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(bool host_visible) : host_visible_(host_visible) {
    int count = 0;
    cudaError_t const status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0)
      throw DeviceError(std::string("no CUDA device: ") +
                        cudaGetErrorString(status != cudaSuccess ? status : cudaErrorNoDevice) +
                        "; use --executor cpu");
    cudaDeviceProp properties{};
    must(cudaGetDeviceProperties(&properties, 0), "properties");
    name_ = properties.name;
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    must(cudaEventCreateWithFlags(&staged_, cudaEventDisableTiming), "event");
  }
  ~CudaDevice() override {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (void* p : memory_) cudaFree(p);
    if (pinned_ != nullptr) cudaFreeHost(pinned_);
    if (staged_ != nullptr) cudaEventDestroy(staged_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  std::byte* allocate(std::size_t bytes) override {
    void* p = nullptr;
    std::size_t const some = bytes == 0 ? 1 : bytes;
    cudaError_t const status = host_visible_ ? cudaMallocManaged(&p, some) : cudaMalloc(&p, some);
    if (status == cudaErrorMemoryAllocation) {
      std::size_t free = 0;
      std::size_t total = 0;
      cudaMemGetInfo(&free, &total);
      throw DeviceError("the GPU has " + std::to_string(free >> 20) + " MiB free of " +
                        std::to_string(total >> 20) + "; " + std::to_string(bytes >> 20) +
                        " more are needed: give a smaller --memory or --budget");
    }
    must(status, "allocation");
    memory_.push_back(p);
    must(cudaMemsetAsync(p, 0, bytes, stream_), "memset");
    return static_cast<std::byte*>(p);
  }
  const void* resident(const void* host, std::size_t bytes) override {
    std::byte* const p = allocate(bytes);
    must(cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, stream_), "upload");
    must(cudaStreamSynchronize(stream_), "upload");
    return p;
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    must(cudaEventSynchronize(staged_), "upload");  // the last one has left the staging memory
    if (bytes > pinned_bytes_) {
      if (pinned_ != nullptr) must(cudaFreeHost(pinned_), "free");
      pinned_ = nullptr;
      must(cudaMallocHost(&pinned_, bytes), "pinned memory");
      pinned_bytes_ = bytes;
    }
    std::memcpy(pinned_, from, bytes);
    must(cudaMemcpyAsync(to, pinned_, bytes, cudaMemcpyHostToDevice, stream_), "upload");
    must(cudaEventRecord(staged_, stream_), "event");
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
  }
  void wait() override { must(cudaStreamSynchronize(stream_), "step"); }
  void download(void* to, const void* from, std::size_t bytes) override {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
    wait();
  }

  void run(const kernels::EmbeddingJob& job) override { queue(launch_embedding(job, stream_)); }
  void run(const kernels::RmsNormJob& job) override { queue(launch_rms_norm(job, stream_)); }
  void run(const kernels::LinearJob& job) override { queue(launch_linear(job, stream_)); }
  void run(const kernels::ScaleRows& job) override { queue(launch_scale(job, stream_)); }
  void run(const kernels::RotationJob& job) override { queue(launch_rotation(job, stream_)); }
  void run(const kernels::ConvolutionStepJob& job) override {
    queue(launch_convolution(job, stream_));
  }
  void run(const kernels::ConvolutionRunsJob& job) override {
    queue(launch_convolution(job, stream_));
  }
  void run(const kernels::StateUpdateJob& job) override {
    queue(launch_state_update(job, stream_));
  }
  void run(const kernels::StateScanJob& job) override { queue(launch_state_scan(job, stream_)); }
  void run(const kernels::AttentionJob& job) override { queue(launch_attention(job, stream_)); }
  void run(const kernels::GatedNormJob& job) override { queue(launch_gated_norm(job, stream_)); }
  void run(const kernels::SiluProductJob& job) override {
    queue(launch_silu_product(job, stream_));
  }

 private:
  static void queue(cudaError_t status) {
    if (status == cudaErrorInvalidValue)
      throw DeviceError("the kernels do not take the shapes of this model");
    must(status, "launch");
  }

  bool host_visible_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t staged_ = nullptr;
  void* pinned_ = nullptr;
  std::size_t pinned_bytes_ = 0;
  std::vector<void*> memory_;
};

}  // namespace

std::unique_ptr<Device> cuda_device(bool host_visible) {
  return std::make_unique<CudaDevice>(host_visible);
}

}  // namespace hybridstate::runtime::device

#else

namespace hybridstate::runtime::device {

std::unique_ptr<Device> cuda_device(bool) {
  throw DeviceError("this binary was built without CUDA; use --executor cpu");
}

}  // namespace hybridstate::runtime::device

#endif
