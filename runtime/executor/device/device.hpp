// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <hybridstate/kernels/attention.hpp>
#include <hybridstate/kernels/convolution.hpp>
#include <hybridstate/kernels/greedy.hpp>
#include <hybridstate/kernels/linear.hpp>
#include <hybridstate/kernels/page_copy.hpp>
#include <hybridstate/kernels/rotation.hpp>
#include <hybridstate/kernels/rows.hpp>
#include <hybridstate/kernels/sampling.hpp>
#include <hybridstate/kernels/state_update.hpp>
#include <memory>
#include <string>

#include "executor/device/recordings.hpp"

namespace hybridstate::runtime::device {

/// y[token][row] = scale * (weights[row] . x[token]) in BF16, as kernels::GemmRows.
struct GemmJob {
  const void* weights = nullptr;  ///< [rows][columns]
  const void* x = nullptr;        ///< [tokens][columns]
  float* y = nullptr;             ///< [tokens][y_stride]
  std::int64_t y_stride = 0;
  float scale = 1;
  std::uint32_t tokens = 0;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
};

/// Memory, and a queue of kernels that run one after the other: a GPU with one stream, or this
/// machine's interpreter. Every failure is a DeviceError.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  /// Throws, unless that much can be allocated.
  virtual void require(std::size_t bytes) const = 0;
  /// Zeroed, at a multiple of 256 bytes; lives as long as the device.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Memory of the host from which upload() reads, zeroed; lives as long as the device.
  virtual std::byte* staging(std::size_t bytes) = 0;
  /// `bytes` of the host that never change, where kernels can read them.
  virtual const void* resident(const void* host, std::size_t bytes) = 0;
  /// For what is set up once: waits, so that `from` may change afterwards.
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  /// In the order of the queue. `from` lies in staging memory and stays as it is until wait().
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// For all that is queued.
  virtual void wait() = 0;
  /// Waits, too.
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;

  /// Queues the kernels that `body` queues, and nothing but kernels, and records them. As long as
  /// the recording of a key is kept, a later call queues the same kernels with the same arguments
  /// instead, without calling `body`.
  void run_recorded(const RecordingKey& key, const std::function<void()>& body) {
    if (replay(key)) {
      ++recording_counts_.replayed;
    } else {
      record(key, body);
      ++recording_counts_.recorded;
    }
  }
  const RecordingCounts& recording_counts() const noexcept { return recording_counts_; }

  virtual void run(const kernels::EmbeddingJob& job) = 0;
  virtual void run(const kernels::RmsNormJob& job) = 0;
  virtual void run(const kernels::LinearJob& job) = 0;
  virtual void run(const kernels::ScaleRows& job) = 0;
  virtual void run(const kernels::RotationJob& job) = 0;
  virtual void run(const kernels::ConvolutionStepJob& job) = 0;
  virtual void run(const kernels::ConvolutionRunsJob& job) = 0;
  virtual void run(const kernels::StateUpdateJob& job) = 0;
  virtual void run(const kernels::StateScanJob& job) = 0;
  virtual void run(const kernels::AttentionJob& job) = 0;
  virtual void run(const kernels::GatedNormJob& job) = 0;
  virtual void run(const kernels::SiluProductJob& job) = 0;
  virtual void run(const kernels::GreedyRows& job) = 0;
  virtual void run(const kernels::SampleRows& job) = 0;
  virtual void run(const kernels::CopyList& job) = 0;
  virtual void run(const kernels::RoundRows& job) = 0;

  /// Before the first GemmJob. Throws where there is no cuBLASLt.
  virtual void prepare_gemm();
  virtual void run(const GemmJob& job);

 private:
  virtual void record(const RecordingKey& key, const std::function<void()>& body) = 0;
  /// False: there is no recording of that key.
  virtual bool replay(const RecordingKey& key) = 0;

  RecordingCounts recording_counts_;
};

/// The kernels on this machine's CPU, interpreted thread by thread: for tests and small models.
std::unique_ptr<Device> interpreted_device();

/// The first CUDA device. DeviceError, with a sentence, when there is none, or this build has no
/// CUDA. With `host_visible` the host can read its memory after wait(), at a price in speed.
std::unique_ptr<Device> cuda_device(bool host_visible);

}  // namespace hybridstate::runtime::device
