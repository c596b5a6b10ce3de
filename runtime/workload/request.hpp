// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <string>
#include <vector>

namespace hybridstate::runtime {

/// A stretch of prompt content: tokens [offset, offset + tokens) of a named endless stream. Two
/// prompt positions hold the same token when stream and offset agree; this is how traces that
/// publish block ids instead of tokens say what is shared.
struct ContentRun {
  std::uint64_t stream = 0;
  Tokens offset = 0;
  Tokens tokens = 0;
};

/// One request of a workload, before it is served.
struct Request {
  std::int64_t arrival_ns = 0;
  Tokens prompt_tokens = 0;
  Tokens output_tokens = 0;         ///< tokens to generate, at least 1
  std::uint64_t salt = 0;           ///< requests share cached state only under equal salts
  std::vector<ContentRun> content;  ///< sums to prompt_tokens when `tokens` is empty
  std::vector<TokenId> tokens;      ///< real token ids; empty for length-only and block-id traces
};

/// Requests in arrival order plus how they came about.
struct Workload {
  std::string name;         ///< "paper", "mooncake", "jsonl", "csv"
  std::string description;  ///< one line for headings: parameters or file, filters
  std::vector<Request> requests;
  std::uint64_t dropped = 0;  ///< requests removed by --max-context N:drop
  std::uint64_t clipped = 0;  ///< requests shortened by --max-context N:clip
};

/// Prompt and output tokens of the longest request; 1 for an empty workload.
inline Tokens longest_request(const Workload& workload) {
  Tokens longest = 1;
  for (Request const& r : workload.requests)
    longest = std::max(longest, r.prompt_tokens + r.output_tokens);
  return longest;
}

}  // namespace hybridstate::runtime
