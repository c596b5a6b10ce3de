// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "executor/device/device.hpp"

namespace harness {

/// A device that computes nothing, for what the host does. Its memory is zeros; of recordings it
/// remembers that they were made.
class IdleDevice final : public hybridstate::runtime::device::Device {
 public:
  using Body = std::function<void()>;

  using Device::run;
  std::string name() const override { return "none"; }
  void require(std::size_t) const override {}
  std::byte* allocate(std::size_t bytes) override {
    memory_.emplace_back(std::calloc(bytes + 1, 1), &std::free);
    return static_cast<std::byte*>(memory_.back().get());
  }
  std::byte* staging(std::size_t bytes) override { return allocate(bytes); }
  const void* resident(const void* host, std::size_t) override { return host; }
  void write(void*, const void*, std::size_t) override {}
  void upload(void*, const void*, std::size_t) override {}
  void copy(void*, const void*, std::size_t) override {}
  void wait() override {}
  void download(void* to, const void*, std::size_t bytes) override {
    std::fill_n(static_cast<std::byte*>(to), bytes, std::byte{0});
  }

  void run(const hybridstate::kernels::EmbeddingJob&) override { ++jobs; }
  void run(const hybridstate::kernels::RmsNormJob&) override { ++jobs; }
  void run(const hybridstate::kernels::LinearJob&) override { ++jobs; }
  void run(const hybridstate::kernels::ScaleRows&) override { ++jobs; }
  void run(const hybridstate::kernels::RotationJob&) override { ++jobs; }
  void run(const hybridstate::kernels::ConvolutionStepJob&) override { ++jobs; }
  void run(const hybridstate::kernels::ConvolutionRunsJob&) override { ++jobs; }
  void run(const hybridstate::kernels::StateUpdateJob&) override { ++jobs; }
  void run(const hybridstate::kernels::StateScanJob&) override { ++jobs; }
  void run(const hybridstate::kernels::AttentionJob&) override { ++jobs; }
  void run(const hybridstate::kernels::GatedNormJob&) override { ++jobs; }
  void run(const hybridstate::kernels::SiluProductJob&) override { ++jobs; }
  void run(const hybridstate::kernels::GreedyRows&) override { ++jobs; }
  void run(const hybridstate::kernels::SampleRows&) override { ++jobs; }
  void run(const hybridstate::kernels::CopyList&) override { ++jobs; }
  void run(const hybridstate::kernels::RoundRows&) override { ++jobs; }

  std::uint64_t jobs = 0;  ///< queued one by one
  bool replays = true;     ///< false: every step is queued anew

 private:
  void record(const hybridstate::runtime::device::RecordingKey& key, const Body& body) override {
    body();
    if (replays) recordings_.add(key, true);
  }
  bool replay(const hybridstate::runtime::device::RecordingKey& key) override {
    return recordings_.find(key) != nullptr;
  }

  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
  hybridstate::runtime::device::Recordings<bool> recordings_;
};

}  // namespace harness
