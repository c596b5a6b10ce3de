// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "workload/request.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime {

// Plain traces: one request a line, as JSON objects or as CSV with a header row that names the
// columns in any order.
//
//   arrival        seconds from the start, whole or not; may be missing with `all_at_once`
//   input_length   tokens of the prompt, at least 1
//   input_tokens   instead of the length: the token ids (JSON: an array; CSV: separated by spaces)
//   output_length  tokens to generate, at least 1
//   salt           optional, a word or a number: state is shared only under equal salts
//   prefix_id      optional, a word or a number: the first `prefix_length` tokens are those of
//   prefix_length  every other prompt with this id (as far as both reach); the rest is unique
//
// Without `prefix_id` and `input_tokens` a prompt shares nothing. A missing, null or empty optional
// value means "none". Other JSON fields and CSV columns are ignored. CSV names are compared without
// regard to case, spaces count as underscores, and the names of published usage traces are taken
// too: "Timestamp" for arrival, "Request tokens" and "Response tokens" for the lengths.

Workload read_jsonl(const std::string& path, const TraceOptions& options = {});
Workload read_csv(const std::string& path, const TraceOptions& options = {});

/// The same from text; `name` stands for the file in messages.
Workload parse_jsonl(std::string_view text, const std::string& name,
                     const TraceOptions& options = {});
Workload parse_csv(std::string_view text, const std::string& name,
                   const TraceOptions& options = {});

}  // namespace hybridstate::runtime
