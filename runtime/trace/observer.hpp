// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/cache/types.hpp>
#include <hybridstate/core/observer.hpp>
#include <hybridstate/index/prefix_index.hpp>
#include <vector>

#include "executor/step_plan.hpp"
#include "trace/writer.hpp"

namespace hybridstate::runtime {

/// The state history of one run: turns what a cache and a scheduler tell their observers into
/// records. It only reads; whether a record was dropped changes nothing for either.
class StateHistory {
 public:
  StateHistory(TraceWriter& writer, Tokens block_tokens)
      : writer_(writer), block_tokens_(block_tokens) {}

  void on_event(const Event& e) noexcept;
  /// `preemptions` of this request so far; `prompt` with the tokens that it generated.
  void on_queued(std::int64_t now, std::uint32_t request, std::uint32_t preemptions,
                 const Prompt& prompt);
  void on_step(std::int64_t now, Step step, std::uint32_t running, std::uint32_t waiting);
  void after_step(std::int64_t now, const StepPlan& plan);

 private:
  TraceRecord& fresh(RecordKind kind) noexcept;

  TraceWriter& writer_;
  Tokens block_tokens_;
  TraceRecord record_;
  std::vector<std::uint32_t> told_;  ///< blocks whose paths the trace has, per request
};

/// The observer that a JointCache holds.
struct TraceObserver {
  static constexpr bool enabled = true;
  StateHistory* history = nullptr;

  void on_event(const Event& e) noexcept {
    if (history != nullptr) history->on_event(e);
  }
};
static_assert(cache_observer<TraceObserver>);

}  // namespace hybridstate::runtime
