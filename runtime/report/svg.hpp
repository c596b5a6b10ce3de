// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// Pieces of plots as SVG text. Their looks are classes of the style sheet of page.hpp.

namespace hybridstate::runtime {

/// The first `most` letters, with an ellipsis where some are left out.
std::string shortened(std::string_view text, std::size_t most);
/// Code points.
std::size_t letters(std::string_view text);
/// A coordinate with one decimal at most.
std::string at(double value);
std::string tick_text(double value);
/// Three significant digits for labels on marks.
std::string label_text(double value);

/// From values to pixels; what lies outside is drawn on the edge.
struct Scale {
  double low = 0;
  double high = 1;
  double from = 0;  ///< pixels
  double to = 1;
  bool logarithmic = false;
  std::vector<double> ticks;

  double operator()(double value) const;
};

/// From 0 to at least `most`; ends on a tick unless `exact`.
Scale linear_scale(double most, double from, double to, int wanted, bool exact = false);
/// From a tick at or below `least` to one at or above `most`.
Scale range_scale(double least, double most, double from, double to, int wanted);
Scale log_scale(double low, double high, double from, double to);

struct Look {
  std::string colour;  ///< "var(--s0)"
  std::string dash;    ///< "" is solid
};

/// `css` are classes; nothing is appended for an empty text.
void append_text(std::string& out, double x, double y, std::string_view anchor,
                 std::string_view css, std::string_view text);
void append_line(std::string& out, double x1, double y1, double x2, double y2,
                 std::string_view css);
void append_x_axis(std::string& out, const Scale& x, double top, double bottom,
                   std::string_view title);
void append_y_axis(std::string& out, const Scale& y, double left, double right,
                   std::string_view title, double title_x);
std::string open_svg(double width, double height, std::string_view label,
                     std::string_view attributes = "");

}  // namespace hybridstate::runtime
