// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "report/result.hpp"

namespace hybridstate::runtime {

/// Latency thresholds of a goodput: given ones, or percentiles of the requests themselves
/// (Appendix B.4, E.8).
struct GoodputRule {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;  ///< given; at least one, unless observed
  std::optional<double> observed_percent;          ///< of E2E and TPOT, the latencies of Table E-13
};

/// The rule as a setting reads it in reports.
std::string goodput_text(const GoodputRule& rule);

/// Fills the goodput of every run. Observed thresholds are those of the same seed: once of the
/// comparator, which is the first row, and once of the union of all rows that are no reference; the
/// union exists from two such rows on.
void add_goodput(Comparison& comparison, const GoodputRule& rule);

}  // namespace hybridstate::runtime
