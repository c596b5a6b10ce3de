// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/format.hpp"

namespace hybridstate::runtime {

/// One JSON object a line: the header, every record, and the end record.
class JsonlExport {
 public:
  /// `end` is absent where a file lacks its end record; so is the line then.
  JsonlExport(const TraceHeader& header, std::optional<TraceEnd> end);
  void add(const TraceRecord& record);
  std::string finish();

 private:
  std::string text_;
  std::optional<TraceEnd> end_;
};

/// Chrome's trace-event JSON, which Perfetto opens: steps, queue lengths and discoverable objects
/// on one process; waiting and running of each request on another. Times are the run's clock in us.
class PerfettoExport {
 public:
  explicit PerfettoExport(const TraceHeader& header);
  void add(const TraceRecord& record);
  std::string finish();

 private:
  struct Open {
    std::int64_t since_ns = 0;
    bool running = false;
    std::uint32_t preemptions = 0;
    Tokens adopted = 0;
  };
  void event(const std::string& json);
  void slice(std::uint64_t request, const Open& open, std::int64_t end_ns);
  void close_step(const TraceRecord& executed);

  std::string text_;
  bool first_ = true;
  TraceRecord step_;
  bool in_step_ = false;
  std::int64_t now_ns_ = 0;
  std::uint64_t attention_ = 0, checkpoints_ = 0;  ///< discoverable
  std::map<std::uint64_t, Open> open_;
  std::vector<std::uint64_t> finished_;  ///< in this step: they end with it
};

}  // namespace hybridstate::runtime
