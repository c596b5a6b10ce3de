// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "workload/request.hpp"

namespace hybridstate::runtime {

/// A workload that cannot be made: a bad option, an unreadable file or a malformed line. what() is
/// one sentence; for files it begins with the path and the line number.
class WorkloadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The most tokens an input or an output may have: two of them still add up in `Tokens`.
inline constexpr std::uint64_t max_trace_length = (1ULL << 31) - 1;

/// What happens to a request whose input + output exceeds a limit.
struct MaxContext {
  enum class Action : std::uint8_t {
    drop,  ///< the request is removed
    clip,  ///< the prompt keeps its head and loses its end; an output that alone fills the limit
           ///< is cut to limit - 1, which leaves a prompt of one token
  };
  Tokens tokens = 0;  ///< at least 2
  Action action = Action::drop;
};

/// Reads "32768:drop" or "32768:clip".
MaxContext parse_max_context(std::string_view text);

/// What to do with a trace after reading it, in this order: sort by arrival (stable), apply
/// `max_context`, spread equal time stamps, divide times by `rate_scale`, keep the first `limit`.
struct TraceOptions {
  double rate_scale = 1;                  ///< 0.25: a quarter of the trace's request rate
  std::optional<MaxContext> max_context;  ///< unset: no limit on input + output
  std::uint64_t limit = 0;                ///< requests kept after dropping; 0 = all
  bool spread = false;       ///< spread equal time stamps evenly until the trace's next one; the
                             ///< last group is spread over the gap before it
  bool all_at_once = false;  ///< every request arrives at time 0
};

/// "rate scale 0.25, input + output <= 32768 (longer dropped), first 100", empty for the defaults.
std::string describe(const TraceOptions& options);

namespace detail {

/// The whole file; WorkloadError when it cannot be read.
std::string read_file(const std::string& path);

/// Calls f(line number from 1, line) for each line that is not blank; strips a byte order mark,
/// line ends of both kinds and nothing else.
void for_each_line(std::string_view text,
                   const std::function<void(std::uint64_t, std::string_view)>& f);

/// A piece of a user's text for a message: at most 40 characters, others than printable ASCII as
/// '?'.
std::string shown(std::string_view text);

/// Throws the WorkloadError "path: line N: reason".
[[noreturn]] void fail_line(const std::string& path, std::uint64_t line, const std::string& reason);

/// Throws unless the options make sense.
void check(const TraceOptions& options);

/// Sorts, filters, spreads, scales and limits; `requests` hold the trace's own times. Sets counts.
void finish_trace(Workload& workload, const TraceOptions& options);

}  // namespace detail

}  // namespace hybridstate::runtime
