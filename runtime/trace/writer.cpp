// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "trace/writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "error_text.hpp"
#include "report/file.hpp"

namespace hybridstate::runtime {

namespace {

class FileSink : public TraceSink {
 public:
  explicit FileSink(int descriptor) : descriptor_(descriptor) {}
  ~FileSink() override { static_cast<void>(FileSink::close()); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  int write(std::span<const std::uint8_t> bytes, std::size_t& written) override {
    written = 0;
    while (written < bytes.size()) {
      ssize_t const n = ::write(descriptor_, bytes.data() + written, bytes.size() - written);
      if (n < 0) {
        if (errno == EINTR) continue;
        return errno;
      }
      written += static_cast<std::size_t>(n);
    }
    return 0;
  }
  int cut(std::uint64_t size) override {
    auto const at = static_cast<off_t>(size);
    if (::ftruncate(descriptor_, at) != 0) return errno;
    return ::lseek(descriptor_, at, SEEK_SET) < 0 ? errno : 0;
  }
  int close() override {
    if (descriptor_ < 0) return 0;
    return ::close(std::exchange(descriptor_, -1)) == 0 ? 0 : errno;
  }

 private:
  int descriptor_;
};

}  // namespace

std::unique_ptr<TraceSink> open_trace_file(const std::filesystem::path& path) {
  int const descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw ReportError(
        fmt::format("Cannot write the trace \"{}\": {}.", path.string(), error_text(errno)));
  return std::make_unique<FileSink>(descriptor);
}

ByteRing::ByteRing(std::size_t bytes)
    : mask_(std::bit_ceil(std::max<std::size_t>(bytes, 64)) - 1),
      // Not value-initialized: a large ring costs memory only as far as it is used.
      bytes_(new std::uint8_t[mask_ + 1]) {}

void ByteRing::copy_in(std::uint64_t at, const void* from, std::size_t n) noexcept {
  std::size_t const begin = static_cast<std::size_t>(at) & mask_;
  std::size_t const head = std::min(n, capacity() - begin);
  if (head > 0) std::memcpy(bytes_.get() + begin, from, head);
  if (n > head) std::memcpy(bytes_.get(), static_cast<const std::uint8_t*>(from) + head, n - head);
}
void ByteRing::copy_out(std::uint64_t at, void* to, std::size_t n) const noexcept {
  std::size_t const begin = static_cast<std::size_t>(at) & mask_;
  std::size_t const head = std::min(n, capacity() - begin);
  if (head > 0) std::memcpy(to, bytes_.get() + begin, head);
  if (n > head) std::memcpy(static_cast<std::uint8_t*>(to) + head, bytes_.get(), n - head);
}

bool ByteRing::push(std::uint64_t tag, std::span<const std::uint8_t> message) noexcept {
  std::uint64_t const at = written_.load(std::memory_order_relaxed);
  std::size_t const size = head_bytes + message.size();
  if (size > capacity() - static_cast<std::size_t>(at - read_.load(std::memory_order_acquire)))
    return false;
  auto const length = static_cast<std::uint32_t>(message.size());
  copy_in(at, &length, sizeof length);
  copy_in(at + sizeof length, &tag, sizeof tag);
  copy_in(at + head_bytes, message.data(), message.size());
  written_.store(at + size, std::memory_order_release);
  return true;
}

bool ByteRing::pop(std::uint64_t& tag, std::vector<std::uint8_t>& out) {
  std::uint64_t const at = read_.load(std::memory_order_relaxed);
  if (at == written_.load(std::memory_order_acquire)) return false;
  std::uint32_t length = 0;
  copy_out(at, &length, sizeof length);
  copy_out(at + sizeof length, &tag, sizeof tag);
  std::size_t const had = out.size();
  out.resize(had + length);
  copy_out(at + head_bytes, out.data() + had, length);
  read_.store(at + head_bytes + length, std::memory_order_release);
  return true;
}

TraceWriter::TraceWriter(std::unique_ptr<TraceSink> sink, const TraceHeader& header,
                         std::string name, TraceWriterOptions options)
    : sink_(std::move(sink)), name_(std::move(name)), options_(options), ring_(options.ring_bytes) {
  scratch_.reserve(4096);
  frame_.reserve(options_.frame_bytes + 4096);
  std::vector<std::uint8_t> const bytes = encode_header(header);
  std::size_t written = 0;
  if (int const error = sink_->write(bytes, written); error != 0)
    throw ReportError(fmt::format("Cannot write the trace \"{}\": {}.", name_, error_text(error)));
  size_ = bytes.size();
  thread_ = std::thread([this] { work(); });
}

TraceWriter::~TraceWriter() {
  if (closed_) return;
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool TraceWriter::record(const TraceRecord& record) noexcept {
  std::uint64_t const sequence = next_sequence_++;
  scratch_.clear();
  encode_record(scratch_, record, skipped_);
  if (!ring_.push(sequence, scratch_)) {
    ++skipped_;
    ++dropped_;
    return false;
  }
  skipped_ = 0;
  return true;
}

void TraceWriter::work() {
  using namespace std::chrono_literals;
  // The producer never signals, so this thread looks at the ring every millisecond; a frame that is
  // not full goes out when it has waited for a quarter of a second.
  int idle = 0;
  for (;;) {
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, 1ms, [this] { return stop_; });
      stopping = stop_;
    }
    if (options_.hold && !stopping) continue;
    drain();
    if (frame_records_ > 0 && (stopping || ++idle >= 250)) {
      write_frame();
      idle = 0;
    }
    if (stopping) return;
  }
}

void TraceWriter::drain() {
  std::uint64_t sequence = 0;
  while (ring_.pop(sequence, frame_)) {
    if (frame_records_++ == 0) frame_first_ = sequence;
    if (frame_.size() >= options_.frame_bytes) write_frame();
  }
}

void TraceWriter::write_frame() {
  if (write(encode_frame(FrameKind::records, frame_records_, frame_first_, frame_)))
    end_.records += frame_records_;
  else
    end_.lost += frame_records_;
  frame_.clear();
  frame_records_ = 0;
}

bool TraceWriter::write(std::span<const std::uint8_t> bytes) {
  if (broken_) return false;
  std::size_t written = 0;
  int const error = sink_->write(bytes, written);
  if (error == 0) {
    size_ += bytes.size();
    return true;
  }
  ++end_.write_errors;
  if (first_error_ == 0) first_error_ = error;
  if (written > 0 && sink_->cut(size_) != 0) broken_ = true;
  return false;
}

const TraceEnd& TraceWriter::close() {
  if (closed_) return end_;
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  closed_ = true;
  end_.dropped = dropped_;
  static_cast<void>(write(encode_frame(FrameKind::end, 0, next_sequence_, encode_end(end_))));
  if (int const error = sink_->close(); error != 0) {
    ++end_.write_errors;
    if (first_error_ == 0) first_error_ = error;
  }
  return end_;
}

std::string TraceWriter::problem() const {
  if (end_.write_errors > 0)
    return fmt::format(
        "The trace \"{}\" is not complete: {} writes failed ({}), {} records are lost.", name_,
        end_.write_errors, error_text(first_error_), end_.lost);
  if (end_.dropped > 0)
    return fmt::format(
        "The trace \"{}\" is not complete: {} of {} records were dropped because the ring was "
        "full; "
        "a larger --trace-buffer would hold them.",
        name_, end_.dropped, next_sequence_);
  return {};
}

}  // namespace hybridstate::runtime
