// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <hybridstate/kernels/shell/interpreter.hpp>
#include <vector>

#include "executor/device/device.hpp"
#include "executor/device_error.hpp"

namespace hybridstate::runtime::device {
namespace {

class InterpretedDevice final : public Device {
 public:
  std::string name() const override { return "the CPU, as an interpreter of the kernels"; }
  std::byte* allocate(std::size_t bytes) override {
    memory_.emplace_back(bytes / sizeof(Block) + 1);
    return memory_.back().data()->bytes;
  }
  const void* resident(const void* host, std::size_t) override { return host; }
  void upload(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

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

 private:
  struct alignas(256) Block {
    std::byte bytes[256];
  };

  template <class Job>
  void interpret(const Job& job) {
    if (!kernels::with_kernel(job, [&](const auto& kernel) { interpreter_.run(kernel); }))
      throw DeviceError("the kernels do not take the shapes of this model");
  }

  kernels::Interpreter interpreter_;
  std::vector<std::vector<Block>> memory_;
};

}  // namespace

std::unique_ptr<Device> interpreted_device() { return std::make_unique<InterpretedDevice>(); }

}  // namespace hybridstate::runtime::device
