// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/svg.hpp"

namespace hybridstate::runtime {

/// One value of a chart: a whisker from low to high, a dot for each seed, and the value that
/// somebody else published, as a hollow diamond.
struct ChartMark {
  std::optional<double> value, low, high;
  std::vector<std::pair<std::string, double>> dots;  ///< name and value
  std::optional<double> published;
  bool ring = false;  ///< set apart by a ring
  std::string title;  ///< shown under the pointer
};

enum class ChartKind : std::uint8_t { bars, line, points };

struct ChartSeries {
  std::string name;
  Look look;
  ChartKind kind = ChartKind::bars;
  bool hollow = false;           ///< points that are rings
  std::vector<ChartMark> marks;  ///< one a category
};

/// Values of several series over the same categories.
struct Chart {
  std::string label;  ///< for readers that see no picture
  std::string tag;    ///< "simulated"
  std::string x_title, y_title;
  std::vector<std::string> categories;
  std::vector<ChartSeries> series;
  bool from_zero = true;  ///< the value axis contains 0
  int decimals = 0;       ///< of the labels on bars
};

std::string chart_svg(const Chart& chart);
/// Its series, and the diamond where there is one.
std::string chart_legend(const Chart& chart);

}  // namespace hybridstate::runtime
