// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "error_text.hpp"

namespace hybridstate::runtime {

namespace {

namespace fs = std::filesystem;

/// Reads the header; false when the file ends inside of it or its check sum is wrong.
bool read_header(std::span<const std::uint8_t> bytes, const std::string& name, TraceCheck& check) {
  std::size_t const seen = std::min(bytes.size(), sizeof trace_magic);
  if (std::memcmp(bytes.data(), trace_magic, seen) != 0)
    throw TraceError(
        fmt::format(R"("{}" is no state-history trace: it does not begin with "HSTRACE".)", name));
  auto const ends = [&] {
    check.problem = bytes.empty() ? "the file is empty"
                                  : fmt::format("the file ends inside its header, after {} bytes",
                                                bytes.size());
    return false;
  };
  ByteReader in(bytes);
  in.take(sizeof trace_magic);
  std::uint32_t const version = in.u32();
  std::uint32_t const size = in.u32();
  if (!in.good()) return ends();
  if (version != TraceHeader::version)
    throw TraceError(fmt::format("\"{}\" is a trace of version {}; this program reads version {}.",
                                 name, version, TraceHeader::version));
  if (size < in.position() + 12 || size > 1U << 20) {
    check.problem = "the header is damaged";
    return false;
  }
  if (size > bytes.size()) return ends();
  ByteReader tail(bytes.subspan(size - 4, 4));
  if (tail.u32() != crc32(bytes.first(size - 4))) {
    check.problem = "the header is damaged: its check sum is wrong";
    return false;
  }
  check.header.block_tokens = in.u32();
  check.header.checkpoint_tokens = in.u32();
  for (std::string* text : {&check.header.organization, &check.header.policy, &check.header.note}) {
    auto const part = in.take(static_cast<std::size_t>(in.varint()));
    text->assign(part.begin(), part.end());
  }
  if (!in.good() || in.position() + 4 != size || check.header.block_tokens == 0 ||
      check.header.checkpoint_tokens == 0) {
    check.problem = "the header is damaged";
    return false;
  }
  check.good_bytes = size;
  return true;
}

class Frames {
 public:
  Frames(std::span<const std::uint8_t> bytes, TraceCheck& check,
         const std::function<void(const TraceRecord&)>& visit)
      : bytes_(bytes), check_(check), visit_(visit) {}

  void read() {
    while (check_.problem.empty() && check_.good_bytes < bytes_.size()) {
      if (check_.end) {
        check_.problem =
            fmt::format("{} bytes follow the end record", bytes_.size() - check_.good_bytes);
        return;
      }
      one();
    }
    if (!check_.problem.empty()) return;
    if (check_.end)
      compare_with_end(*check_.end);
    else
      check_.problem = fmt::format(
          "the file ends after sequence number {} without an end record: its tail is missing",
          last_sequence());
  }

 private:
  std::string last_sequence() const {
    return check_.records == 0 ? "(none)" : fmt::format("{}", check_.next_sequence - 1);
  }

  void one() {
    std::uint64_t const at = check_.good_bytes;
    ByteReader in(bytes_.subspan(at));
    std::uint32_t const magic = in.u32();
    std::uint32_t const size = in.u32();
    std::uint32_t const records = in.u32();
    std::uint32_t const kind = in.u32();
    std::uint64_t const first = in.u64();
    std::uint32_t const sum = in.u32();
    auto const cut = [&] {
      check_.problem =
          fmt::format("the file ends inside a frame, after sequence number {}: its tail is missing",
                      last_sequence());
    };
    if (!in.good()) return cut();
    auto const damaged = [&](const char* what) {
      check_.problem = fmt::format("the frame at byte {} is damaged: {}", at, what);
    };
    if (magic != frame_magic || size > most_frame_bytes || kind > 1)
      return damaged("it does not begin as a frame");
    if (size > in.left()) return cut();
    auto const payload = in.take(size);
    if (sum != crc32(payload, crc32(bytes_.subspan(at, frame_header_bytes - 4))))
      return damaged("its check sum is wrong");
    if (static_cast<FrameKind>(kind) == FrameKind::end) {
      ByteReader end(payload);
      TraceEnd e;
      for (std::uint64_t* v : {&e.records, &e.dropped, &e.lost, &e.write_errors}) *v = end.u64();
      if (!end.good() || end.left() != 0) return damaged("it is no end record");
      if (first > check_.next_sequence) check_.gaps += first - check_.next_sequence;
      check_.next_sequence = std::max(first, check_.next_sequence);
      check_.end = e;
    } else if (!read_records(payload, records, first)) {
      return damaged("its records cannot be read");
    }
    ++check_.frames;
    check_.good_bytes = at + frame_header_bytes + size;
  }

  bool read_records(std::span<const std::uint8_t> payload, std::uint32_t records,
                    std::uint64_t first) {
    ByteReader in(payload);
    for (std::uint32_t i = 0; i < records; ++i) {
      std::uint64_t skipped = 0;
      if (!decode_record(in, record_, skipped)) return false;
      // A lost frame before this one leaves a larger gap than the record knows of.
      std::uint64_t const sequence = i == 0 ? first : check_.next_sequence + skipped;
      if (sequence < check_.next_sequence + skipped) return false;
      check_.gaps += sequence - check_.next_sequence;
      check_.next_sequence = sequence + 1;
      record_.sequence = sequence;
      if (record_.kind == RecordKind::step)
        step_ = record_.step;
      else
        record_.step = step_;
      ++check_.records;
      ++check_.of_kind[static_cast<int>(record_.kind)];
      if (visit_) visit_(record_);
    }
    return in.left() == 0;
  }

  void compare_with_end(const TraceEnd& e) {
    if (e.records != check_.records)
      check_.problem = fmt::format("the end record counts {} records, the file holds {}", e.records,
                                   check_.records);
    else if (e.write_errors > 0)
      check_.problem =
          fmt::format("{} writes failed and {} records are lost", e.write_errors, e.lost);
    else if (e.dropped > 0)
      check_.problem =
          fmt::format("{} records were dropped because the writer's ring was full", e.dropped);
    else if (check_.gaps > 0)
      check_.problem = fmt::format("{} sequence numbers are missing", check_.gaps);
  }

  std::span<const std::uint8_t> bytes_;
  TraceCheck& check_;
  const std::function<void(const TraceRecord&)>& visit_;
  TraceRecord record_;
  std::uint64_t step_ = 0;
};

}  // namespace

TraceCheck read_trace(std::span<const std::uint8_t> bytes, const std::string& name,
                      const std::function<void(const TraceRecord&)>& visit) {
  TraceCheck check;
  check.bytes = bytes.size();
  if (bytes.empty()) {
    check.problem = "the file is empty";
    return check;
  }
  if (read_header(bytes, name, check)) Frames(bytes, check, visit).read();
  return check;
}

std::vector<std::uint8_t> load_trace(const fs::path& path) {
  std::error_code error;
  fs::file_status const status = fs::status(path, error);
  auto const fail = [&](const std::string& why) -> std::vector<std::uint8_t> {
    throw TraceError(fmt::format("Cannot read the trace \"{}\": {}.", path.string(), why));
  };
  if (!fs::exists(status)) return fail("there is no such file");
  if (fs::is_directory(status)) return fail("it is a folder, a file is needed");
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(error_text(errno));
  std::vector<std::uint8_t> bytes;
  if (fs::is_regular_file(status))
    bytes.reserve(static_cast<std::size_t>(fs::file_size(path, error)));
  std::vector<char> part(std::size_t{1} << 20);
  while (in.read(part.data(), static_cast<std::streamsize>(part.size())) || in.gcount() > 0)
    bytes.insert(bytes.end(), part.begin(), part.begin() + in.gcount());
  if (in.bad()) return fail(error_text(errno));
  return bytes;
}

}  // namespace hybridstate::runtime
