// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

namespace hybridstate::runtime {

/// A progress bar with the time left, drawn on a terminal and silent anywhere else (a pipe, a
/// file). Any number of threads may report progress. The line is wiped by finish() or the
/// destructor, so that only results stay on the screen.
class Progress {
 public:
  /// `total` work items, 0 when unknown. `interactive` overrides the check for a terminal.
  Progress(std::string label, std::uint64_t total, std::FILE* out = stderr,
           std::optional<bool> interactive = std::nullopt);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::uint64_t items = 1);
  void finish();

  std::uint64_t done() const;
  bool interactive() const noexcept { return interactive_; }

 private:
  using Clock = std::chrono::steady_clock;

  void draw(Clock::time_point now);  // with the mutex held

  mutable std::mutex mutex_;
  std::string label_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::FILE* out_;
  bool interactive_;
  bool drawn_ = false;
  bool finished_ = false;
  Clock::time_point start_;
  Clock::time_point last_draw_;
};

/// One line of the bar without control characters, at most `width` columns; for tests.
std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total,
                          double elapsed_seconds, std::size_t width);

/// True when the stream is a terminal that understands cursor control.
bool is_terminal(std::FILE* stream);

}  // namespace hybridstate::runtime
