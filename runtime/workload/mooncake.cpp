// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/mooncake.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "workload/json_line.hpp"

namespace hybridstate::runtime {

namespace {

using detail::JsonField;

/// Reads the fields of one line after another; every complaint names file and line.
class LineReader {
 public:
  explicit LineReader(const std::string& name) : name_(name) {
    fields_[0].name = "timestamp";
    fields_[1].name = "input_length";
    fields_[2].name = "output_length";
    fields_[3].name = "hash_ids";
  }

  Request read(std::uint64_t number, std::string_view line) {
    line_ = number;
    std::string const reason = detail::parse_json_line(line, fields_);
    if (!reason.empty()) fail(reason);
    Request request;
    request.arrival_ns = timestamp_ns();
    request.prompt_tokens = length(fields_[1]);
    request.output_tokens = length(fields_[2]);
    read_content(request);
    return request;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    detail::fail_line(name_, line_, reason);
  }

  void require_present(const JsonField& f) const {
    if (f.kind == JsonField::Kind::absent) fail(fmt::format("\"{}\" is missing", f.name));
  }

  /// A whole or fractional number of milliseconds up to 2^31.
  std::int64_t timestamp_ns() const {
    const JsonField& f = fields_[0];
    require_present(f);
    bool const number = f.kind == JsonField::Kind::unsigned_number ||
                        f.kind == JsonField::Kind::negative_number ||
                        f.kind == JsonField::Kind::real_number;
    if (!number) fail(fmt::format("\"timestamp\" is {}, not a number", name_of(f.kind)));
    if (f.real < 0)
      fail(fmt::format("\"timestamp\" is {} but must not be negative", detail::shown(f.text)));
    if (!(f.real <= 0x1p31)) {
      fail(
          fmt::format("\"timestamp\" {} is above 2^31; it counts milliseconds from the start of "
                      "the trace",
                      detail::shown(f.text)));
    }
    if (f.kind == JsonField::Kind::unsigned_number)
      return static_cast<std::int64_t>(f.number) * 1'000'000;
    return static_cast<std::int64_t>(f.real * 1e6 + 0.5);
  }

  Tokens length(const JsonField& f) const {
    require_present(f);
    if (f.kind == JsonField::Kind::negative_number)
      fail(fmt::format("\"{}\" is {} but must be at least 1", f.name, detail::shown(f.text)));
    if (f.kind == JsonField::Kind::real_number)
      fail(
          fmt::format("\"{}\" is {}, not a whole number of tokens", f.name, detail::shown(f.text)));
    if (f.kind != JsonField::Kind::unsigned_number)
      fail(fmt::format("\"{}\" is {}, not a number", f.name, name_of(f.kind)));
    if (f.number == 0) fail(fmt::format("\"{}\" is 0 but must be at least 1", f.name));
    if (f.number > max_trace_length)
      fail(fmt::format("\"{}\" {} is above {}", f.name, f.text, max_trace_length));
    return static_cast<Tokens>(f.number);
  }

  void read_content(Request& request) const {
    const JsonField& f = fields_[3];
    require_present(f);
    if (f.kind == JsonField::Kind::other_array) {
      fail(
          fmt::format("\"hash_ids\" has something other than an id (a whole number >= 0) at "
                      "position {}",
                      f.bad_element + 1));
    }
    if (f.kind != JsonField::Kind::unsigned_array)
      fail(fmt::format("\"hash_ids\" is {}, not an array of ids", name_of(f.kind)));
    std::size_t const needed = ceil_div(request.prompt_tokens, mooncake_block_tokens);
    if (f.array.size() != needed) {
      fail(fmt::format("\"hash_ids\" has {} ids but input_length {} needs {}", f.array.size(),
                       request.prompt_tokens, needed));
    }
    request.content.reserve(needed);
    Tokens left = request.prompt_tokens;
    for (std::uint64_t const id : f.array) {
      if (id > max_mooncake_id) {
        fail(fmt::format("\"hash_ids\" holds {}, above the largest id {}", id, max_mooncake_id));
      }
      Tokens const tokens = std::min(left, mooncake_block_tokens);
      request.content.push_back({mooncake_stream(id, tokens), 0, tokens});
      left -= tokens;
    }
  }

  const std::string& name_;
  std::uint64_t line_ = 0;
  std::array<JsonField, 4> fields_;
};

}  // namespace

Workload parse_mooncake(std::string_view text, const std::string& name,
                        const TraceOptions& options) {
  detail::check(options);
  Workload workload;
  workload.name = "mooncake";
  workload.description = std::filesystem::path(name).filename().string();
  std::string const filters = describe(options);
  if (!filters.empty()) workload.description += ", " + filters;
  LineReader reader(name);
  detail::for_each_line(text, [&](std::uint64_t number, std::string_view line) {
    workload.requests.push_back(reader.read(number, line));
  });
  if (workload.requests.empty()) throw WorkloadError(fmt::format("{}: holds no requests", name));
  detail::finish_trace(workload, options);
  return workload;
}

Workload read_mooncake(const std::string& path, const TraceOptions& options) {
  return parse_mooncake(detail::read_file(path), path, options);
}

}  // namespace hybridstate::runtime
