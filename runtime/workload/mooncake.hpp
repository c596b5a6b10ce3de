// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "workload/request.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime {

/// Tokens that one id of a Mooncake trace stands for.
inline constexpr Tokens mooncake_block_tokens = 512;

/// The largest trusted id that fits beside a length in a stream name.
inline constexpr std::uint64_t max_mooncake_id = (1ULL << 54) - 1;

/// The stream of a trace block: one per (id, tokens in it), so that a partial last block never
/// equals the head of a full one.
constexpr std::uint64_t mooncake_stream(std::uint64_t id, Tokens tokens) noexcept {
  return (id << 10) | tokens;
}

/// Reads a trace in the format of the Mooncake project: one JSON object a line with `timestamp`
/// (milliseconds), `input_length`, `output_length` and `hash_ids`, one id for each 512 tokens of
/// the input, the last block possibly partial. Blank lines and other fields are skipped; of a
/// repeated field the last counts. A clipped prompt ends inside a trace block and keeps the stream
/// of that block: its tokens are known to be the head of it.
Workload read_mooncake(const std::string& path, const TraceOptions& options = {});

/// The same from text; `name` stands for the file in messages.
Workload parse_mooncake(std::string_view text, const std::string& name,
                        const TraceOptions& options = {});

}  // namespace hybridstate::runtime
