// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/trace_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

namespace hybridstate::runtime {

MaxContext parse_max_context(std::string_view text) {
  std::size_t const colon = text.find(':');
  std::string_view const number = text.substr(0, colon);
  std::string_view const action =
      colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  MaxContext result;
  auto const [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), result.tokens);
  bool const good_number = error == std::errc{} && end == number.data() + number.size();
  if (!good_number || result.tokens < 2 || (action != "drop" && action != "clip")) {
    throw WorkloadError(fmt::format(
        "the context limit \"{}\" is not of the form TOKENS:drop or TOKENS:clip with at least 2 "
        "tokens, for example 32768:drop",
        detail::shown(text)));
  }
  result.action = action == "drop" ? MaxContext::Action::drop : MaxContext::Action::clip;
  return result;
}

std::string describe(const TraceOptions& options) {
  std::string text;
  auto const add = [&](const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
  };
  if (options.max_context) {
    bool const drop = options.max_context->action == MaxContext::Action::drop;
    add(fmt::format("input + output <= {} (longer {})", options.max_context->tokens,
                    drop ? "dropped" : "clipped"));
  }
  if (options.all_at_once) {
    add("all at time 0");
  } else {
    if (options.spread) add("equal time stamps spread");
    if (options.rate_scale != 1) add(fmt::format("rate scale {}", options.rate_scale));
  }
  if (options.limit != 0) add(fmt::format("first {}", options.limit));
  return text;
}

namespace detail {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw WorkloadError(fmt::format("{}: cannot be opened for reading", path));
  std::string text;
  char buffer[1 << 16];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0)
    text.append(buffer, static_cast<std::size_t>(file.gcount()));
  if (file.bad() || !file.eof()) throw WorkloadError(fmt::format("{}: cannot be read", path));
  return text;
}

void for_each_line(std::string_view text,
                   const std::function<void(std::uint64_t, std::string_view)>& f) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    std::size_t const end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) f(number, line);
  }
}

std::string shown(std::string_view text) {
  std::string result;
  for (char const c : text.substr(0, 40)) result += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > 40) result += "...";
  return result;
}

void fail_line(const std::string& path, std::uint64_t line, const std::string& reason) {
  throw WorkloadError(fmt::format("{}: line {}: {}", path, line, reason));
}

void check(const TraceOptions& options) {
  if (!(options.rate_scale > 0) || !std::isfinite(options.rate_scale)) {
    throw WorkloadError(fmt::format(
        "the rate scale {} is not a positive number; 0.25 replays a trace at a quarter of its rate",
        options.rate_scale));
  }
  if (options.max_context && options.max_context->tokens < 2) {
    throw WorkloadError(
        fmt::format("a context limit of {} tokens leaves no room for an input and an output token",
                    options.max_context->tokens));
  }
}

namespace {

void clip(Request& request, Tokens limit) {
  if (request.output_tokens >= limit) request.output_tokens = limit - 1;
  Tokens const prompt = std::min(request.prompt_tokens, limit - request.output_tokens);
  if (!request.tokens.empty()) request.tokens.resize(prompt);
  Tokens left = prompt;
  std::size_t kept = 0;
  while (kept < request.content.size() && left > 0) {
    ContentRun& run = request.content[kept++];
    run.tokens = std::min(run.tokens, left);
    left -= run.tokens;
  }
  request.content.resize(kept);
  request.prompt_tokens = prompt;
}

void apply_max_context(Workload& workload, MaxContext limit) {
  auto& requests = workload.requests;
  auto const too_long = [&](const Request& r) {
    return std::uint64_t{r.prompt_tokens} + r.output_tokens > limit.tokens;
  };
  if (limit.action == MaxContext::Action::drop) {
    workload.dropped += std::erase_if(requests, too_long);
    return;
  }
  for (Request& request : requests) {
    if (!too_long(request)) continue;
    clip(request, limit.tokens);
    ++workload.clipped;
  }
}

/// `stamps` are the trace's distinct times before anything was dropped.
void spread_arrivals(std::vector<Request>& requests, const std::vector<std::int64_t>& stamps) {
  std::size_t stamp = 0;
  for (std::size_t first = 0; first < requests.size();) {
    std::int64_t const at = requests[first].arrival_ns;
    std::size_t last = first;
    while (last < requests.size() && requests[last].arrival_ns == at) ++last;
    while (stamps[stamp] != at) ++stamp;
    std::int64_t gap = 0;
    if (stamp + 1 < stamps.size())
      gap = stamps[stamp + 1] - at;
    else if (stamp > 0)
      gap = at - stamps[stamp - 1];
    auto const n = static_cast<std::int64_t>(last - first);
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t const shift = gap / n * i + gap % n * i / n;
      requests[first + static_cast<std::size_t>(i)].arrival_ns = at + shift;
    }
    first = last;
  }
}

void scale_arrivals(std::vector<Request>& requests, double rate_scale) {
  for (Request& request : requests) {
    double const scaled = static_cast<double>(request.arrival_ns) / rate_scale;
    if (!(scaled < 0x1p62)) {
      throw WorkloadError(fmt::format(
          "the rate scale {} moves an arrival to {} s, beyond the clock's range of 146 years",
          rate_scale, scaled * 1e-9));
    }
    request.arrival_ns = static_cast<std::int64_t>(scaled + 0.5);
  }
}

}  // namespace

void finish_trace(Workload& workload, const TraceOptions& options) {
  auto& requests = workload.requests;
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.arrival_ns < b.arrival_ns; });
  std::vector<std::int64_t> stamps;
  if (options.spread) {
    for (const Request& request : requests) stamps.push_back(request.arrival_ns);
    stamps.erase(std::unique(stamps.begin(), stamps.end()), stamps.end());
  }
  if (options.max_context) apply_max_context(workload, *options.max_context);
  if (options.all_at_once) {
    for (Request& request : requests) request.arrival_ns = 0;
  } else {
    if (options.spread) spread_arrivals(requests, stamps);
    if (options.rate_scale != 1) scale_arrivals(requests, options.rate_scale);
  }
  if (options.limit != 0 && requests.size() > options.limit)
    requests.resize(static_cast<std::size_t>(options.limit));
}

}  // namespace detail

}  // namespace hybridstate::runtime
