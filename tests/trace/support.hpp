// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/analyze.hpp"
#include "trace/reader.hpp"
#include "trace/writer.hpp"

namespace trace_test {

using namespace hybridstate;
using namespace hybridstate::runtime;

/// Keeps a trace in memory; fails from a size on, between two counts of writes, or never.
class MemorySink : public TraceSink {
 public:
  struct Faults {
    std::uint64_t full_at = ~std::uint64_t{0};  ///< most bytes that it holds
    std::uint64_t fail_from = ~std::uint64_t{0};
    std::uint64_t fail_until = 0;  ///< writes [fail_from, fail_until) leave half of theirs behind
    bool can_cut = true;
  };
  explicit MemorySink(std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}
  MemorySink(std::vector<std::uint8_t>& bytes, Faults faults) : bytes_(bytes), faults_(faults) {}

  int write(std::span<const std::uint8_t> bytes, std::size_t& written) override {
    std::uint64_t const number = writes_++;
    written = bytes.size();
    int error = 0;
    if (number >= faults_.fail_from && number < faults_.fail_until) {
      written /= 2;
      error = EIO;
    } else if (bytes_.size() + bytes.size() > faults_.full_at) {
      written = static_cast<std::size_t>(faults_.full_at - bytes_.size());
      error = ENOSPC;
    }
    bytes_.insert(bytes_.end(), bytes.begin(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(written));
    return error;
  }
  int cut(std::uint64_t size) override {
    if (!faults_.can_cut) return EINVAL;
    bytes_.resize(static_cast<std::size_t>(size));
    return 0;
  }

 private:
  std::vector<std::uint8_t>& bytes_;
  Faults faults_;
  std::uint64_t writes_ = 0;
};

inline TraceHeader header(Tokens block = 512, Tokens grid = 512) {
  return {block, grid, "S2", "paper", "by hand"};
}

inline TraceRecord step(Step number, std::int64_t time_ns = 0) {
  TraceRecord r;
  r.kind = RecordKind::step;
  r.step = number;
  r.time_ns = time_ns;
  return r;
}

/// One record of every kind, and one with a long chain.
inline std::vector<TraceRecord> one_of_each() {
  std::vector<TraceRecord> all;
  auto const add = [&](RecordKind kind) -> TraceRecord& {
    TraceRecord r;
    r.kind = kind;
    r.request = 300 + all.size();
    all.push_back(r);
    return all.back();
  };
  TraceRecord& enter = add(RecordKind::enter);
  enter.preemptions = 2;
  enter.time_ns = 123'456'789'012;
  enter.tokens = 3455;
  enter.salt = 0xfedcba9876543210ULL;
  enter.kept = 3;
  for (std::uint64_t i = 0; i < 40; ++i) enter.chain.push_back(i * 0x9e3779b97f4a7c15ULL);
  TraceRecord& begin = add(RecordKind::step);
  begin.request = 0;
  begin.step = 1ULL << 40;
  begin.time_ns = 5;
  begin.running = 63;
  begin.waiting = 200;
  for (ObjectKind object : {ObjectKind::attention, ObjectKind::checkpoint}) {
    TraceRecord& publish = add(RecordKind::publish);
    publish.object = object;
    publish.boundary = 1792;
    publish.handle = 0;
    publish.path = 77;
    TraceRecord& loss = add(RecordKind::loss);
    loss.object = object;
    loss.cause = LossCause::carrier;
    loss.boundary = 0xffffffffU;
    loss.handle = 0x7fffffff;
    loss.path = ~std::uint64_t{0};
    TraceRecord& allocate = add(RecordKind::allocate);
    allocate.object = object;
    allocate.handle = 130;
  }
  TraceRecord& adopt = add(RecordKind::adopt);
  adopt.object = ObjectKind::checkpoint;
  adopt.boundary = 512;
  adopt.handle = -1;
  adopt.path = 3;
  TraceRecord& admit = add(RecordKind::admit);
  admit.cause = LossCause::cleared;
  admit.tokens = 3455;
  admit.boundary = 512;
  admit.attention = 1024;
  admit.recurrent = 1536;
  admit.joint = 2048;
  admit.handle = 9;
  add(RecordKind::preempt).tokens = 17;
  add(RecordKind::finish).tokens = 18;
  TraceRecord& executed = add(RecordKind::executed);
  executed.request = 0;
  executed.time_ns = 6;
  executed.tokens = 2048;
  executed.running = 31;
  return all;
}

inline bool same(const TraceRecord& a, const TraceRecord& b) {
  auto const fields = [](const TraceRecord& r) {
    return std::tuple(r.kind, r.object, r.cause, r.request, r.path, r.salt, r.handle, r.boundary,
                      r.tokens, r.attention, r.recurrent, r.joint, r.preemptions, r.running,
                      r.waiting, r.kept, r.time_ns, r.chain);
  };
  return fields(a) == fields(b);
}

/// A whole trace of these records, written by the writer.
inline std::vector<std::uint8_t> written(const std::vector<TraceRecord>& records,
                                         TraceWriterOptions options = {},
                                         TraceHeader of = header()) {
  std::vector<std::uint8_t> bytes;
  TraceWriter writer(std::make_unique<MemorySink>(bytes), of, "memory", options);
  for (TraceRecord const& r : records) writer.record(r);
  writer.close();
  return bytes;
}

}  // namespace trace_test
