// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "workload/mooncake.hpp"
#include "workload/paper.hpp"
#include "workload/plain.hpp"
#include "workload/request.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime {

enum class WorkloadKind : std::uint8_t { paper, mooncake, jsonl, csv };

/// A parsed "--workload": where requests come from.
struct WorkloadSpec {
  WorkloadKind kind = WorkloadKind::paper;
  std::string file;  ///< empty for the paper's generator

  /// Traces are the same for every seed.
  bool seeded() const noexcept { return kind == WorkloadKind::paper; }
};

/// Reads "paper", "mooncake:FILE", "jsonl:FILE" or "csv:FILE".
WorkloadSpec parse_workload_spec(std::string_view text);

/// Parameters of all kinds; each kind reads its own.
struct WorkloadOptions {
  PaperWorkloadOptions paper;
  TraceOptions trace;
};

/// Draws or reads the workload; throws WorkloadError.
Workload make_workload(const WorkloadSpec& spec, const WorkloadOptions& options = {});
Workload make_workload(std::string_view spec, const WorkloadOptions& options = {});

/// Numbers of a workload for headings and reports.
struct WorkloadTotals {
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  Tokens longest_prompt = 0;
  std::int64_t last_arrival_ns = 0;
};
WorkloadTotals totals(const Workload& workload) noexcept;

/// The description and what came of it: "...; 11185 requests (846 dropped), mean input 8628.5,
/// mean output 341.6, last arrival 3537.0 s".
std::string heading(const Workload& workload);

}  // namespace hybridstate::runtime
