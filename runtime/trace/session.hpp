// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "scheduler/run.hpp"
#include "trace/observer.hpp"
#include "trace/writer.hpp"

namespace hybridstate::runtime {

/// The trace of one run: opens its file, gives the cache its observer, closes with the end record.
/// Without spec.trace there is no file, and an observer that does nothing.
class TraceSession {
 public:
  /// Throws ReportError with one sentence when the file cannot be written.
  TraceSession(const RunSpec& spec, Tokens block_tokens, Tokens checkpoint_tokens);

  TraceObserver observer() noexcept { return {history_ ? &*history_ : nullptr}; }
  /// Ends the file and leaves in spec.trace what is wrong with it.
  void close();

 private:
  TraceSettings* settings_;
  std::optional<TraceWriter> writer_;
  std::optional<StateHistory> history_;
};

}  // namespace hybridstate::runtime
