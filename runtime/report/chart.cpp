// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/page.hpp"
#include "report/table.hpp"

namespace hybridstate::runtime {

namespace {

constexpr double plot_width = 560;
constexpr double plot_top = 20;
constexpr double plot_bottom = 270;
constexpr double band_part = 0.78;  ///< of a category's width that its marks take
constexpr std::size_t most_labels = 14;

void append_title(std::string& out, const std::string& title) {
  if (!title.empty()) out += "<title>" + escape_html(title) + "</title>";
}

void append_diamond(std::string& out, double x, double y, std::string_view colour,
                    const std::string& title) {
  constexpr double r = 5.5;
  fmt::format_to(
      std::back_inserter(out),
      R"svg(<path d="M{} {}L{} {}L{} {}L{} {}Z" class="published" style="stroke:{}">)svg", at(x),
      at(y - r), at(x + r), at(y), at(x), at(y + r), at(x - r), at(y), colour);
  append_title(out, title);
  out += "</path>";
}

std::vector<double> all_values(const Chart& chart) {
  std::vector<double> values;
  auto const take = [&](std::optional<double> value) {
    if (value) values.push_back(*value);
  };
  for (ChartSeries const& series : chart.series)
    for (ChartMark const& mark : series.marks) {
      for (std::optional<double> const value : {mark.value, mark.low, mark.high, mark.published})
        take(value);
      for (auto const& [name, value] : mark.dots) take(value);
    }
  return values;
}

Scale value_scale(const Chart& chart, std::vector<double> values) {
  if (chart.from_zero || values.empty()) values.push_back(0);
  auto const [least, most] = std::minmax_element(values.begin(), values.end());
  // Room for the values beyond bars.
  double const room = chart.from_zero ? 0.07 * (*most - *least) : 0;
  return range_scale(*least < 0 ? *least - room : *least, *most > 0 ? *most + room : *most,
                     plot_bottom, plot_top, 5);
}

void append_whisker(std::string& out, const ChartMark& mark, double x, const Scale& y) {
  if (!mark.low || !mark.high || *mark.low == *mark.high) return;
  append_line(out, x, y(*mark.low), x, y(*mark.high), "whisker");
  for (double const end : {*mark.low, *mark.high})
    append_line(out, x - 4, y(end), x + 4, y(end), "whisker");
}

void append_dots(std::string& out, const ChartMark& mark, double x, const Scale& y) {
  for (auto const& [name, value] : mark.dots) {
    fmt::format_to(std::back_inserter(out),
                   R"svg(<circle cx="{}" cy="{}" r="1.8" class="seed">)svg", at(x), at(y(value)));
    append_title(out, fmt::format("{}: {}", name, label_text(value)));
    out += "</circle>";
  }
}

void append_bar(std::string& out, const ChartSeries& series, const ChartMark& mark, double value,
                double x, double width, const Scale& y) {
  double const zero = y(std::clamp(0.0, y.low, y.high));
  double const end = y(value);
  fmt::format_to(std::back_inserter(out),
                 R"svg(<rect x="{}" y="{}" width="{}" height="{}" rx="1.5" style="fill:{}">)svg",
                 at(x - width / 2), at(std::min(zero, end)), at(width),
                 at(std::max(std::abs(end - zero), 0.5)), series.look.colour);
  append_title(out, mark.title);
  out += "</rect>";
}

void append_point(std::string& out, const ChartSeries& series, const ChartMark& mark, double value,
                  double x, const Scale& y) {
  fmt::format_to(std::back_inserter(out),
                 R"svg(<circle cx="{}" cy="{}" r="4" style="fill:{};stroke:{};stroke-width:2">)svg",
                 at(x), at(y(value)), series.hollow ? "var(--card)" : series.look.colour,
                 series.look.colour);
  append_title(out, mark.title);
  out += "</circle>";
}

/// The value, beyond everything that is drawn of the mark.
void append_value(std::string& out, const Chart& chart, const ChartMark& mark, double value,
                  double x, const Scale& y) {
  bool const down = value < 0;
  double edge = value;
  for (std::optional<double> const end : {mark.low, mark.high, mark.published})
    if (end) edge = down ? std::min(edge, *end) : std::max(edge, *end);
  double const space = mark.published && edge == *mark.published ? 10 : 5;
  append_text(out, x, down ? y(edge) + space + 9 : y(edge) - space, "middle", "small",
              grouped(value, chart.decimals));
}

}  // namespace

std::string chart_svg(const Chart& chart) {
  std::vector<double> const values = all_values(chart);
  Scale const y = value_scale(chart, values);
  std::size_t widest = 0;
  for (double const tick : y.ticks) widest = std::max(widest, letters(tick_text(tick)));
  double const left = 34 + 7.0 * static_cast<double>(widest);
  double const right = plot_width - 12;
  std::string out =
      open_svg(plot_width, plot_bottom + (chart.x_title.empty() ? 26 : 44), chart.label);
  append_y_axis(out, y, left, right, chart.y_title, 14);
  append_text(out, left, 11, "start", "tag", chart.tag);
  double const band = (right - left) / static_cast<double>(chart.categories.size());
  auto const middle = [&](std::size_t category) {
    return left + band * (static_cast<double>(category) + 0.5);
  };
  for (std::size_t c = 0; c < chart.categories.size(); ++c)
    append_text(out, middle(c), plot_bottom + 17, "middle", "soft", chart.categories[c]);
  append_text(out, (left + right) / 2, plot_bottom + 37, "middle", "soft", chart.x_title);
  if (values.empty())
    append_text(out, (left + right) / 2, (plot_top + plot_bottom) / 2, "middle", "soft", "not run");

  // Bars and points of a category stand side by side; lines run through the middles.
  std::size_t beside = 0;
  for (ChartSeries const& series : chart.series)
    if (series.kind != ChartKind::line) ++beside;
  double const slot = beside == 0 ? 0 : band * band_part / static_cast<double>(beside);
  bool const labels = beside * chart.categories.size() <= most_labels;
  std::size_t place = 0;
  std::string diamonds;  // over everything else
  for (ChartSeries const& series : chart.series) {
    bool const line = series.kind == ChartKind::line;
    double const offset =
        line ? 0 : slot * (static_cast<double>(place++) - static_cast<double>(beside - 1) / 2);
    std::string path;
    for (std::size_t c = 0; line && c < series.marks.size(); ++c)
      if (std::optional<double> const value = series.marks[c].value)
        path += fmt::format("{}{},{}", path.empty() ? "" : " ", at(middle(c)), at(y(*value)));
    if (!path.empty())
      fmt::format_to(std::back_inserter(out),
                     R"svg(<polyline points="{}" class="line" style="stroke:{}"/>)svg", path,
                     series.look.colour);
    for (std::size_t c = 0; c < series.marks.size(); ++c) {
      ChartMark const& mark = series.marks[c];
      double const x = middle(c) + offset;
      if (std::optional<double> const value = mark.value) {
        if (series.kind == ChartKind::bars)
          append_bar(out, series, mark, *value, x, slot * 0.88, y);
        append_whisker(out, mark, x, y);
        append_dots(out, mark, x, y);
        if (series.kind == ChartKind::bars && labels) append_value(out, chart, mark, *value, x, y);
        if (series.kind != ChartKind::bars) append_point(out, series, mark, *value, x, y);
        if (mark.ring)
          fmt::format_to(std::back_inserter(out),
                         R"svg(<circle cx="{}" cy="{}" r="8.5" class="published"/>)svg", at(x),
                         at(y(*value)));
      }
      if (!mark.published) continue;
      // Beside the whisker.
      bool const bars = series.kind == ChartKind::bars;
      append_diamond(diamonds, x + (bars ? 0.27 * slot : std::min(11.0, 0.3 * band)),
                     y(*mark.published), bars ? std::string_view("var(--ink)") : series.look.colour,
                     mark.title);
    }
  }
  out += diamonds;
  if (y.low < 0) append_line(out, left, y(0), right, y(0), "axis");
  append_line(out, left, plot_bottom, right, plot_bottom, "axis");
  append_line(out, left, plot_top, left, plot_bottom, "axis");
  return out + "</svg>";
}

std::string chart_legend(const Chart& chart) {
  std::vector<LegendEntry> entries;
  bool published = false;
  for (ChartSeries const& series : chart.series) {
    for (ChartMark const& mark : series.marks) published = published || mark.published;
    std::string swatch;
    if (series.kind == ChartKind::line) {
      swatch = swatch_line(series.look);
    } else if (series.kind == ChartKind::bars) {
      swatch = swatch_box(series.look.colour);
    } else {
      swatch = fmt::format(
          "<svg width=\"12\" height=\"12\" aria-hidden=\"true\"><circle cx=\"6\" cy=\"6\" r=\"4\" "
          "style=\"fill:{};stroke:{};stroke-width:2\"/></svg>",
          series.hollow ? "var(--card)" : series.look.colour, series.look.colour);
    }
    entries.push_back({swatch, series.name});
  }
  if (published)
    entries.push_back(
        {"<svg width=\"14\" height=\"14\" aria-hidden=\"true\"><path "
         "d=\"M7 1.5L12.5 7L7 12.5L1.5 7Z\" class=\"published\"/></svg>",
         "paper"});
  return legend(entries);
}

}  // namespace hybridstate::runtime
