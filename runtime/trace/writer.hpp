// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trace/format.hpp"

namespace hybridstate::runtime {

/// Where a trace's bytes go.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  /// Appends everything; 0, or the error number, and then `written` bytes may be there.
  virtual int write(std::span<const std::uint8_t> bytes, std::size_t& written) = 0;
  /// Cuts back to a size, so that what a failed write left behind goes; 0 or the error number.
  virtual int cut(std::uint64_t size) = 0;
  /// 0 or the error number.
  virtual int close() { return 0; }
};

/// A file, created or emptied. Throws ReportError with one sentence when it cannot be opened.
std::unique_ptr<TraceSink> open_trace_file(const std::filesystem::path& path);

/// A bounded queue of bytes between one producer and one consumer, without locks.
class ByteRing {
 public:
  /// `bytes` is rounded up to a power of two, at least 64.
  explicit ByteRing(std::size_t bytes);

  std::size_t capacity() const noexcept { return mask_ + 1; }
  /// Producer: a message, or false when there is no room for all of it.
  bool push(std::uint64_t tag, std::span<const std::uint8_t> message) noexcept;
  /// Consumer: appends the next message to `out`; false when there is none.
  bool pop(std::uint64_t& tag, std::vector<std::uint8_t>& out);

 private:
  static constexpr std::size_t head_bytes = 12;  ///< length and tag
  void copy_in(std::uint64_t at, const void* from, std::size_t n) noexcept;
  void copy_out(std::uint64_t at, void* to, std::size_t n) const noexcept;

  std::size_t mask_;
  std::unique_ptr<std::uint8_t[]> bytes_;
  alignas(64) std::atomic<std::uint64_t> written_{0};
  alignas(64) std::atomic<std::uint64_t> read_{0};
};

struct TraceWriterOptions {
  std::size_t ring_bytes = std::size_t{32} << 20;
  std::size_t frame_bytes = std::size_t{64} << 10;  ///< a frame is written when it is this large
  /// Tests: the thread takes nothing before close(), so that the ring fills up for certain.
  bool hold = false;
};

/// Takes records from the scheduler's thread and writes them in the background. record() never
/// waits: when the ring is full the record is dropped and counted, and its sequence number stays
/// unused. A frame that cannot be written is lost and counted, and later ones are tried again.
class TraceWriter {
 public:
  /// Writes the header. Throws ReportError with one sentence when that fails.
  TraceWriter(std::unique_ptr<TraceSink> sink, const TraceHeader& header, std::string name,
              TraceWriterOptions options = {});
  /// Without close() the file gets no end record, as after a crash.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// One thread only. False when it was dropped.
  bool record(const TraceRecord& record) noexcept;
  std::uint64_t dropped() const noexcept { return dropped_; }

  /// Writes what is left and the end record. A second call gives the same answer.
  const TraceEnd& close();
  /// After close(): one sentence when the file is not complete, else empty.
  std::string problem() const;

 private:
  void work();
  void drain();
  void write_frame();
  bool write(std::span<const std::uint8_t> bytes);

  std::unique_ptr<TraceSink> sink_;
  std::string name_;
  TraceWriterOptions options_;
  ByteRing ring_;
  // The producer's.
  std::vector<std::uint8_t> scratch_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t dropped_ = 0;
  // The writing thread's; the constructor's before it starts and close()'s after it ended.
  std::vector<std::uint8_t> frame_;
  std::uint32_t frame_records_ = 0;
  std::uint64_t frame_first_ = 0;
  std::uint64_t size_ = 0;  ///< of the file up to the last good frame
  bool broken_ = false;     ///< what a failed write left behind could not be removed
  int first_error_ = 0;
  TraceEnd end_;
  bool closed_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hybridstate::runtime
