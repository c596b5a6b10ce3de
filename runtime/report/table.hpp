// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "report/result.hpp"
#include "report/summary.hpp"

namespace hybridstate::runtime {

/// One column of the comparison: neighbours with the same group share a heading. `help` is the
/// definition in half a sentence. The cells follow the rows.
struct TableColumn {
  std::string group;
  std::string name;
  std::string help;
  bool numeric = true;
  std::vector<std::string> cells;
};

/// All columns of a comparison, each cell averaged over the seeds of its row ("-" where absent):
/// arithmetic means of the runs' values, so a p99 is the mean of the runs' p99.
std::vector<TableColumn> comparison_columns(const std::vector<Row>& rows);

/// The comparison as text for a terminal. A table wider than `width` is cut between columns into
/// blocks that repeat the row names.
std::string comparison_table(const Comparison& comparison, std::size_t width = 140);

/// Every run of the comparison in full: settings, latency percentiles, counters, occupancy, and the
/// requests that were refused or cut short with their sentences.
std::string run_details(const Comparison& comparison);

void print_comparison(const Comparison& comparison, std::FILE* out = stdout,
                      std::size_t width = 140);
void print_run_details(const Comparison& comparison, std::FILE* out = stdout);

/// Heading lines "name value" shared by all reports: workload, model, device, seeds, then the
/// settings of the comparison.
std::vector<Setting> heading_of(const Comparison& comparison);

/// 1234567 as "1,234,567"; fractions keep `decimals` places.
std::string grouped(double value, int decimals = 0);

/// Bytes with a binary unit, e.g. "1.52 MiB".
std::string bytes_text(double bytes);

}  // namespace hybridstate::runtime
