// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "campaign/cell.hpp"

namespace hybridstate::runtime {

/// Where a machine keeps what cells only name.
struct CampaignInputs {
  std::string model_folder;   ///< of a real executor
  std::string mooncake_file;  ///< conversation trace
  unsigned threads = 0;       ///< of one cell on the CPU; 0: all
};

/// Runs one cell:
///   {"timebases": {"span_ns", "ledger_s", "output_tokens", "span_output_throughput",
///                  "ledger_output_throughput"},
///    "result": {run_fields()}, "state_history": {as trace analyze --json, without episodes}}
/// `trace_file` holds the state history of a traced cell while it is analyzed.
nlohmann::ordered_json run_cell(const Cell& cell, const CampaignInputs& inputs,
                                const std::string& trace_file);

}  // namespace hybridstate::runtime
