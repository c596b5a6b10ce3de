// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "trace/observer.hpp"

#include <algorithm>

namespace hybridstate::runtime {

TraceRecord& StateHistory::fresh(RecordKind kind) noexcept {
  record_.reset(kind);
  return record_;
}

void StateHistory::on_event(const Event& e) noexcept {
  auto const start = [&](RecordKind kind) -> TraceRecord& {
    TraceRecord& r = fresh(kind);
    r.object = e.object;
    r.cause = e.cause;
    r.request = e.request;
    r.path = e.path;
    r.handle = e.handle;
    r.boundary = e.boundary;
    r.tokens = e.tokens;
    return r;
  };
  switch (e.kind) {
    case EventKind::publish:
      start(RecordKind::publish);
      break;
    case EventKind::loss:
      start(RecordKind::loss);
      break;
    case EventKind::adopt:
      start(RecordKind::adopt);
      break;
    case EventKind::allocate:
      start(RecordKind::allocate);
      break;
    case EventKind::admit: {
      TraceRecord& r = start(RecordKind::admit);
      r.attention = e.attention;
      r.recurrent = e.recurrent;
      r.joint = e.joint;
      break;
    }
    case EventKind::preempt:
      start(RecordKind::preempt);
      break;
    case EventKind::finish:
      start(RecordKind::finish);
      break;
    case EventKind::enter:  // the head of the line; the trace's enter is on_queued()
    case EventKind::reclaim:
    case EventKind::refuse:
      return;
  }
  writer_.record(record_);
}

void StateHistory::on_queued(std::int64_t now, std::uint32_t request, std::uint32_t preemptions,
                             const Prompt& prompt) {
  TraceRecord& r = fresh(RecordKind::enter);
  r.time_ns = now;
  r.request = request;
  r.preemptions = preemptions;
  r.tokens = prompt.length;
  r.salt = prompt.salt;
  if (told_.size() <= request) told_.resize(std::size_t{request} + 1, 0);
  Units const blocks = prompt.length / block_tokens_;
  r.kept = std::min(told_[request], blocks);
  std::uint64_t path = PrefixIndex::path_of_root(prompt.salt, prompt.extra);
  for (Units i = 0; i < blocks; ++i) {
    BlockKey const key =
        prompt.keys.empty()
            ? block_key(prompt.tokens.subspan(std::size_t{i} * block_tokens_, block_tokens_))
            : prompt.keys[i];
    path = PrefixIndex::path_to(path, key);
    if (i >= r.kept) r.chain.push_back(path);
  }
  if (writer_.record(r)) told_[request] = std::max(told_[request], blocks);
}

void StateHistory::on_step(std::int64_t now, Step step, std::uint32_t running,
                           std::uint32_t waiting) {
  TraceRecord& r = fresh(RecordKind::step);
  r.time_ns = now;
  r.step = step;
  r.running = running;
  r.waiting = waiting;
  writer_.record(r);
}

void StateHistory::after_step(std::int64_t now, const StepPlan& plan) {
  TraceRecord& r = fresh(RecordKind::executed);
  r.time_ns = now;
  r.tokens = static_cast<Tokens>(plan.prefill_tokens);
  r.running = static_cast<std::uint32_t>(plan.decode_requests);
  writer_.record(r);
}

}  // namespace hybridstate::runtime
