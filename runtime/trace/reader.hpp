// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "trace/format.hpp"

namespace hybridstate::runtime {

/// The file cannot be read or is no trace; what() is one sentence for the user.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a trace file holds and whether that is everything.
struct TraceCheck {
  TraceHeader header;
  std::uint64_t bytes = 0;       ///< of the file
  std::uint64_t good_bytes = 0;  ///< up to the last frame that is whole
  std::uint64_t frames = 0;
  std::uint64_t records = 0;
  std::uint64_t of_kind[record_kinds + 1] = {};
  std::uint64_t next_sequence = 0;  ///< after the last record
  std::uint64_t gaps = 0;           ///< sequence numbers that are missing in between
  std::optional<TraceEnd> end;
  std::string problem;  ///< one sentence when the trace is not complete, else empty

  bool complete() const noexcept { return problem.empty(); }
};

/// Reads a trace from memory and calls visit(record) for every record of every whole frame, in
/// order; stops at the first thing that is wrong and says so in `problem`. Throws TraceError when
/// the bytes are not the beginning of a trace, or of another version.
TraceCheck read_trace(std::span<const std::uint8_t> bytes, const std::string& name,
                      const std::function<void(const TraceRecord&)>& visit = {});

/// The bytes of a file; throws TraceError with one sentence.
std::vector<std::uint8_t> load_trace(const std::filesystem::path& path);

}  // namespace hybridstate::runtime
