// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "trace/export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace hybridstate::runtime {

namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Microseconds with all nanoseconds, without a floating-point number in between.
std::string us(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace

JsonlExport::JsonlExport(const TraceHeader& h, std::optional<TraceEnd> end) : end_(end) {
  text_ = fmt::format(R"({{"kind":"header","version":{},"organization":{},"policy":{},"note":{},)"
                      R"("block_tokens":{},"checkpoint_tokens":{}}})"
                      "\n",
                      TraceHeader::version, quoted(h.organization), quoted(h.policy),
                      quoted(h.note), h.block_tokens, h.checkpoint_tokens);
}

void JsonlExport::add(const TraceRecord& r) {
  auto out = std::back_inserter(text_);
  fmt::format_to(out, R"({{"seq":{},"step":{},"kind":"{}")", r.sequence, r.step, kind_name(r.kind));
  auto const number = [&](const char* name, auto value) {
    fmt::format_to(out, R"(,"{}":{})", name, value);
  };
  auto const name = [&](const char* key, const char* value) {
    fmt::format_to(out, R"(,"{}":"{}")", key, value);
  };
  // 64-bit hashes as text: readers of JSON numbers round them.
  auto const hash = [&](const char* key, std::uint64_t value) {
    fmt::format_to(out, R"(,"{}":"{:016x}")", key, value);
  };
  bool const timed = r.kind == RecordKind::step || r.kind == RecordKind::executed;
  if (!timed) number("request", r.request);
  if (timed || r.kind == RecordKind::enter) number("time_ns", r.time_ns);
  switch (r.kind) {
    case RecordKind::step:
      number("running", r.running);
      number("waiting", r.waiting);
      break;
    case RecordKind::executed:
      number("prefill_tokens", r.tokens);
      number("decode_requests", r.running);
      break;
    case RecordKind::enter:
      number("preemptions", r.preemptions);
      number("tokens", r.tokens);
      hash("salt", r.salt);
      number("kept", r.kept);
      text_ += R"(,"chain":[)";
      for (std::size_t i = 0; i < r.chain.size(); ++i)
        fmt::format_to(out, R"({}"{:016x}")", i == 0 ? "" : ",", r.chain[i]);
      text_ += ']';
      break;
    case RecordKind::publish:
    case RecordKind::loss:
    case RecordKind::adopt:
      name("object", object_name(r.object));
      if (r.kind == RecordKind::loss) name("cause", cause_name(r.cause));
      number("boundary", r.boundary);
      number("handle", r.handle);
      hash("path", r.path);
      break;
    case RecordKind::allocate:
      name("object", r.object == ObjectKind::checkpoint ? "state" : object_name(r.object));
      number("handle", r.handle);
      break;
    case RecordKind::admit:
      number("tokens", r.tokens);
      number("adopted", r.boundary);
      number("a", r.attention);
      number("r", r.recurrent);
      number("j", r.joint);
      number("sequence", r.handle);
      if (r.cause != LossCause::none) name("dropped", cause_name(r.cause));
      break;
    case RecordKind::preempt:
    case RecordKind::finish:
      number("tokens", r.tokens);
      break;
  }
  text_ += "}\n";
}

std::string JsonlExport::finish() {
  if (end_)
    text_ += fmt::format(R"({{"kind":"end","records":{},"dropped":{},"lost":{},"write_errors":{}}})"
                         "\n",
                         end_->records, end_->dropped, end_->lost, end_->write_errors);
  return std::move(text_);
}

PerfettoExport::PerfettoExport(const TraceHeader& h) {
  text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
  event(fmt::format(R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":{}}}}})",
                    quoted("scheduler, " + h.organization)));
  event(R"({"ph":"M","pid":2,"name":"process_name","args":{"name":"requests"}})");
}

void PerfettoExport::event(const std::string& json) {
  text_ += first_ ? "\n" : ",\n";
  first_ = false;
  text_ += json;
}

void PerfettoExport::slice(std::uint64_t request, const Open& open, std::int64_t end_ns) {
  std::string const args = open.running ? fmt::format(R"({{"adopted":{},"preemptions":{}}})",
                                                      open.adopted, open.preemptions)
                                        : fmt::format(R"({{"preemptions":{}}})", open.preemptions);
  event(fmt::format(R"({{"ph":"X","pid":2,"tid":{},"name":"{}","ts":{},"dur":{},"args":{}}})",
                    request, open.running ? "running" : "waiting", us(open.since_ns),
                    us(end_ns - open.since_ns), args));
}

void PerfettoExport::add(const TraceRecord& r) {
  switch (r.kind) {
    case RecordKind::step:
      step_ = r;
      in_step_ = true;
      now_ns_ = r.time_ns;
      event(fmt::format(
          R"({{"ph":"C","pid":1,"name":"requests","ts":{},"args":{{"running":{},"waiting":{}}}}})",
          us(r.time_ns), r.running, r.waiting));
      break;
    case RecordKind::executed:
      close_step(r);
      break;
    case RecordKind::enter:
      now_ns_ = std::max(now_ns_, r.time_ns);
      open_[r.request] = {r.time_ns, false, r.preemptions, 0};
      break;
    case RecordKind::admit:
      if (auto const it = open_.find(r.request); it != open_.end()) {
        slice(r.request, it->second, now_ns_);
        it->second = {now_ns_, true, it->second.preemptions, r.boundary};
      }
      break;
    case RecordKind::preempt:
      if (auto const it = open_.find(r.request); it != open_.end()) {
        slice(r.request, it->second, now_ns_);
        open_.erase(it);
      }
      break;
    case RecordKind::finish:
      finished_.push_back(r.request);
      break;
    case RecordKind::publish:
      ++(r.object == ObjectKind::attention ? attention_ : checkpoints_);
      break;
    case RecordKind::loss: {
      std::uint64_t& count = r.object == ObjectKind::attention ? attention_ : checkpoints_;
      if (count > 0) --count;
      break;
    }
    case RecordKind::adopt:
    case RecordKind::allocate:
      break;
  }
}

void PerfettoExport::close_step(const TraceRecord& executed) {
  now_ns_ = std::max(now_ns_, executed.time_ns);
  if (in_step_)
    event(fmt::format(R"({{"ph":"X","pid":1,"tid":1,"name":"step","ts":{},"dur":{},)"
                      R"("args":{{"step":{},"prefill_tokens":{},"decode_requests":{}}}}})",
                      us(step_.time_ns), us(now_ns_ - step_.time_ns), step_.step, executed.tokens,
                      executed.running));
  in_step_ = false;
  event(fmt::format(
      R"({{"ph":"C","pid":1,"name":"discoverable","ts":{},"args":{{"attention":{},"checkpoints":{}}}}})",
      us(now_ns_), attention_, checkpoints_));
  for (std::uint64_t request : finished_)
    if (auto const it = open_.find(request); it != open_.end()) {
      slice(request, it->second, now_ns_);
      open_.erase(it);
    }
  finished_.clear();
}

std::string PerfettoExport::finish() {
  for (auto const& [request, open] : open_) slice(request, open, std::max(now_ns_, open.since_ns));
  open_.clear();
  text_ += "\n]}\n";
  return std::move(text_);
}

}  // namespace hybridstate::runtime
