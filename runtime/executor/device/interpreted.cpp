// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <hybridstate/kernels/shell/interpreter.hpp>
#include <utility>
#include <vector>

#include "executor/device/device.hpp"
#include "executor/device_error.hpp"

namespace hybridstate::runtime::device {
namespace {

class InterpretedDevice final : public Device {
 public:
  using Device::run;
  std::string name() const override { return "the CPU, as an interpreter of the kernels"; }
  void require(std::size_t) const override {}  // the machine's memory is the operating system's
  std::byte* allocate(std::size_t bytes) override {
    memory_.emplace_back(bytes / sizeof(Block) + 1);
    return memory_.back().data()->bytes;
  }
  std::byte* staging(std::size_t bytes) override { return allocate(bytes); }
  const void* resident(const void* host, std::size_t) override { return host; }
  void write(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void upload(void* to, const void* from, std::size_t bytes) override { write(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { write(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { write(to, from, bytes); }

  void wait() override {}

  void run(const kernels::EmbeddingJob& job) override { interpret(job); }
  void run(const kernels::RmsNormJob& job) override { interpret(job); }
  void run(const kernels::LinearJob& job) override { interpret(job); }
  void run(const kernels::ScaleRows& job) override { interpret(job); }
  void run(const kernels::RotationJob& job) override { interpret(job); }
  void run(const kernels::ConvolutionStepJob& job) override { interpret(job); }
  void run(const kernels::ConvolutionRunsJob& job) override { interpret(job); }
  void run(const kernels::StateUpdateJob& job) override { interpret(job); }
  void run(const kernels::StateScanJob& job) override { interpret(job); }
  void run(const kernels::AttentionJob& job) override { interpret(job); }
  void run(const kernels::GatedNormJob& job) override { interpret(job); }
  void run(const kernels::SiluProductJob& job) override { interpret(job); }
  void run(const kernels::GreedyRows& job) override { interpret(job); }
  void run(const kernels::SampleRows& job) override { interpret(job); }
  void run(const kernels::CopyList& job) override { interpret(job); }
  void run(const kernels::RoundRows& job) override { interpret(job); }

 private:
  struct alignas(256) Block {
    std::byte bytes[256];
  };
  /// Jobs as they were: like a CUDA graph, a replay sees no later argument.
  using Recording = std::vector<std::function<void()>>;

  void record(const RecordingKey& key, const std::function<void()>& body) override {
    Recording recording;
    recording_ = &recording;
    try {
      body();
    } catch (...) {
      recording_ = nullptr;
      throw;
    }
    recording_ = nullptr;
    recordings_.add(key, std::move(recording));
  }
  bool replay(const RecordingKey& key) override {
    Recording const* const recording = recordings_.find(key);
    if (recording == nullptr) return false;
    for (auto const& job : *recording) job();
    return true;
  }

  template <class Job>
  void interpret(const Job& job) {
    auto const perform = [this, job] {
      if (!kernels::with_kernel(job, [&](const auto& kernel) { interpreter_.run(kernel); }))
        throw DeviceError("the kernels do not take the shapes of this model");
    };
    perform();
    if (recording_ != nullptr) recording_->emplace_back(perform);
  }

  kernels::Interpreter interpreter_;
  std::vector<std::vector<Block>> memory_;
  Recording* recording_ = nullptr;  ///< under way
  Recordings<Recording> recordings_;
};

}  // namespace

void Device::prepare_gemm() {
  throw DeviceError(name() + ": there is no cuBLASLt here; use --linear exact");
}
void Device::run(const GemmJob&) { prepare_gemm(); }

std::unique_ptr<Device> interpreted_device() { return std::make_unique<InterpretedDevice>(); }

}  // namespace hybridstate::runtime::device
