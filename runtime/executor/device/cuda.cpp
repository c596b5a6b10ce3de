// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/device/device.hpp"
#include "executor/device_error.hpp"

#if defined(HYBRIDSTATE_HAVE_KERNELS)

#include <cuda_runtime_api.h>

#include <algorithm>
#include <hybridstate/kernels/launch/attention.hpp>
#include <hybridstate/kernels/launch/convolution.hpp>
#include <hybridstate/kernels/launch/greedy.hpp>
#include <hybridstate/kernels/launch/linear.hpp>
#include <hybridstate/kernels/launch/page_copy.hpp>
#include <hybridstate/kernels/launch/rotation.hpp>
#include <hybridstate/kernels/launch/rows.hpp>
#include <hybridstate/kernels/launch/sampling.hpp>
#include <hybridstate/kernels/launch/state_update.hpp>
#if defined(HYBRIDSTATE_HAVE_GEMM)
#include <hybridstate/kernels/launch/gemm.hpp>
#endif
#include <memory>
#include <utility>
#include <vector>

namespace hybridstate::runtime::device {
namespace {

/// An error that is not of the device stays the runtime's "last error", which the next launch would
/// report as its own: it is taken here.
void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw DeviceError(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

/// Owns a handle of the runtime.
template <class Handle, auto Destroy>
class Owned {
 public:
  explicit Owned(Handle handle = nullptr) noexcept : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) static_cast<void>(Destroy(handle_));
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_;
};
using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using DeviceMemory = Owned<void*, cudaFree>;
using PinnedMemory = Owned<void*, cudaFreeHost>;

class CudaDevice final : public Device {
 public:
  using Device::run;
  explicit CudaDevice(bool host_visible) : host_visible_(host_visible) {
    int count = 0;
    cudaError_t const status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
      static_cast<void>(cudaGetLastError());
      throw DeviceError(std::string("no CUDA device: ") +
                        cudaGetErrorString(status != cudaSuccess ? status : cudaErrorNoDevice) +
                        "; use --executor cpu");
    }
    must(cudaSetDevice(0), "device 0");
    cudaDeviceProp properties{};
    must(cudaGetDeviceProperties(&properties, 0), "properties");
    name_ = properties.name;
    cudaStream_t stream = nullptr;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    stream_ = Stream(stream);
  }
  ~CudaDevice() override { static_cast<void>(cudaStreamSynchronize(stream_.get())); }

  std::string name() const override { return name_; }
  void require(std::size_t bytes) const override {
    std::size_t free = 0;
    std::size_t total = 0;
    must(cudaMemGetInfo(&free, &total), "memory");
    if (bytes > free) refuse(bytes, free, total);
  }
  std::byte* allocate(std::size_t bytes) override {
    void* p = nullptr;
    std::size_t const some = std::max<std::size_t>(bytes, 1);
    cudaError_t const status = host_visible_ ? cudaMallocManaged(&p, some) : cudaMalloc(&p, some);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      std::size_t free = 0;
      std::size_t total = 0;
      must(cudaMemGetInfo(&free, &total), "memory");
      refuse(bytes, free, total);
    }
    must(status, "allocation");
    memory_.emplace_back(p);
    must(cudaMemsetAsync(p, 0, some, stream_.get()), "memset");
    wait();  // the host may look at it at once
    return static_cast<std::byte*>(p);
  }
  std::byte* staging(std::size_t bytes) override {
    void* p = nullptr;
    std::size_t const some = std::max<std::size_t>(bytes, 1);
    must(cudaMallocHost(&p, some), "pinned memory");
    pinned_.emplace_back(p);
    std::fill_n(static_cast<std::byte*>(p), some, std::byte{0});
    return static_cast<std::byte*>(p);
  }
  const void* resident(const void* host, std::size_t bytes) override {
    std::byte* const p = allocate(bytes);
    write(p, host, bytes);
    return p;
  }
  void write(void* to, const void* from, std::size_t bytes) override {
    upload(to, from, bytes);
    wait();
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()), "upload");
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_.get()), "copy");
  }
  void wait() override { must(cudaStreamSynchronize(stream_.get()), "step"); }
  void download(void* to, const void* from, std::size_t bytes) override {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()), "download");
    wait();
  }

  void run(const kernels::EmbeddingJob& job) override { queue(launch_embedding(job, on())); }
  void run(const kernels::RmsNormJob& job) override { queue(launch_rms_norm(job, on())); }
  void run(const kernels::LinearJob& job) override { queue(launch_linear(job, on())); }
  void run(const kernels::ScaleRows& job) override { queue(launch_scale(job, on())); }
  void run(const kernels::RotationJob& job) override { queue(launch_rotation(job, on())); }
  void run(const kernels::ConvolutionStepJob& job) override {
    queue(launch_convolution(job, on()));
  }
  void run(const kernels::ConvolutionRunsJob& job) override {
    queue(launch_convolution(job, on()));
  }
  void run(const kernels::StateUpdateJob& job) override { queue(launch_state_update(job, on())); }
  void run(const kernels::StateScanJob& job) override { queue(launch_state_scan(job, on())); }
  void run(const kernels::AttentionJob& job) override { queue(launch_attention(job, on())); }
  void run(const kernels::GatedNormJob& job) override { queue(launch_gated_norm(job, on())); }
  void run(const kernels::SiluProductJob& job) override { queue(launch_silu_product(job, on())); }
  void run(const kernels::GreedyRows& job) override { queue(launch_greedy(job, on())); }
  void run(const kernels::SampleRows& job) override { queue(launch_sampling(job, on())); }
  void run(const kernels::CopyList& job) override { queue(launch_page_copy(job, on())); }
  void run(const kernels::RoundRows& job) override { queue(launch_round(job, on())); }

#if defined(HYBRIDSTATE_HAVE_GEMM)
  void prepare_gemm() override {
    gemm_ = std::make_unique<kernels::Gemm>();
    gemm_workspace_ = allocate(kernels::Gemm::workspace_bytes);
  }
  void run(const GemmJob& job) override {
    kernels::GemmRows rows;
    rows.weights = static_cast<const kernels::Bf16*>(job.weights);
    rows.x = static_cast<const kernels::Bf16*>(job.x);
    rows.x_stride = job.columns;
    rows.y = job.y;
    rows.y_stride = job.y_stride;
    rows.scale = job.scale;
    rows.tokens = job.tokens;
    rows.rows = job.rows;
    rows.columns = job.columns;
    cudaError_t const status = gemm_->run(rows, gemm_workspace_, on());
    if (status == cudaErrorInvalidValue || status == cudaErrorNotSupported)
      throw DeviceError("cuBLASLt does not take the shapes of this model here; use --linear exact");
    must(status, "cuBLASLt");
  }
#endif

 private:
  [[noreturn]] static void refuse(std::size_t bytes, std::size_t free, std::size_t total) {
    throw DeviceError("the GPU has " + std::to_string(free >> 20) + " MiB free of " +
                      std::to_string(total >> 20) + ", but weights, units and activations need " +
                      std::to_string((bytes >> 20) + 1) +
                      "; give a smaller --memory, --budget or --cap");
  }
  static void queue(cudaError_t status) {
    if (status == cudaErrorInvalidValue)
      throw DeviceError("the kernels do not take the shapes of this model");
    must(status, "launch");
  }
  cudaStream_t on() const noexcept { return stream_.get(); }

  /// Runs the kernels once as they are, which loads them, and captures them for the next time.
  void record(const RecordingKey& key, const std::function<void()>& body) override {
    body();
    must(cudaStreamBeginCapture(on(), cudaStreamCaptureModeRelaxed), "capture");
    cudaGraph_t captured = nullptr;
    try {
      body();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(on(), &captured));
      Graph const dropped(captured);
      throw;
    }
    must(cudaStreamEndCapture(on(), &captured), "capture");
    Graph const graph(captured);
    cudaGraphExec_t executable = nullptr;
    must(cudaGraphInstantiate(&executable, graph.get(), 0), "graph");
    graphs_.add(key, GraphExec(executable));
  }
  bool replay(const RecordingKey& key) override {
    GraphExec const* const graph = graphs_.find(key);
    if (graph == nullptr) return false;
    must(cudaGraphLaunch(graph->get(), on()), "graph");
    return true;
  }

  bool host_visible_;
  std::string name_;
  // The stream goes last: what it might still use is there when it ends.
  Stream stream_;
  std::vector<DeviceMemory> memory_;
  std::vector<PinnedMemory> pinned_;
  Recordings<GraphExec> graphs_;
#if defined(HYBRIDSTATE_HAVE_GEMM)
  std::unique_ptr<kernels::Gemm> gemm_;
  std::byte* gemm_workspace_ = nullptr;
#endif
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
