// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "campaign/findings.hpp"

namespace hybridstate::runtime {

/// A figure of the paper as a quantity that our cells give too. Where the paper says only which arm
/// is ahead, there is a sign and no value.
struct PaperReadout {
  Quantity quantity;
  std::optional<double> value;  ///< in the unit of the quantity
  int sign = 0;
  std::optional<double> low, high;  ///< of the printed interval
  std::string source;
  bool headline = false;  ///< belongs into the summary beside the declared tests
};

/// paper_values() and what else the paper prints: single seeds, differences of arms, latency
/// ratios.
std::vector<PaperReadout> paper_readouts();

}  // namespace hybridstate::runtime
