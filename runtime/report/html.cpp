// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/html.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "report/page.hpp"
#include "report/summary.hpp"
#include "report/svg.hpp"
#include "report/table.hpp"

namespace hybridstate::runtime {
namespace {

constexpr std::size_t series_colours = 8;
constexpr std::size_t curve_points = 200;
constexpr std::size_t most_timeline_points = 1000;
constexpr std::size_t page_timeline_points = 8000;  ///< over all rows, for the size of the page

// ---- Marks --------------------------------------------------------------------------------------

/// The paper's organizations keep their colours in every report; others take what is left.
std::vector<Look> looks_of(const std::vector<Row>& rows) {
  static constexpr std::array<std::string_view, 4> known = {"S0", "S1", "S2", "D0"};
  std::vector<Look> looks(rows.size());
  std::array<int, series_colours> used{};
  const auto take = [&](std::size_t row, std::size_t slot) {
    const bool again = used[slot] > 0;
    ++used[slot];
    looks[row] = {fmt::format("var(--s{})", slot), again ? "2 3" : slot >= 4 ? "8 3" : ""};
  };
  std::vector<bool> done(rows.size(), false);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].reference) {
      const bool infinite = rows[i].organization.starts_with("infinite");
      looks[i] = {infinite ? "var(--r0)" : "var(--r1)", infinite ? "6 4" : "2 4"};
      done[i] = true;
      continue;
    }
    const auto found = std::find(known.begin(), known.end(), rows[i].organization);
    const auto slot = static_cast<std::size_t>(found - known.begin());
    if (found != known.end() && used[slot] == 0) {
      take(i, slot);
      done[i] = true;
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (done[i]) continue;
    const auto free = std::min_element(used.begin(), used.end());
    take(i, static_cast<std::size_t>(free - used.begin()));
  }
  return looks;
}

std::string tag_of(const std::vector<Row>& rows) {
  const auto simulated =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.simulated; });
  if (simulated == 0) return {};
  return static_cast<std::size_t>(simulated) == rows.size() ? "simulated" : "simulated in part";
}

// ---- Figures ------------------------------------------------------------------------------------

constexpr double figure_width = 560;

double label_gutter(const std::vector<Row>& rows) {
  std::size_t most = 0;
  for (const Row& row : rows) most = std::max(most, letters(row.label));
  return std::clamp(static_cast<double>(most) * 7.0 + 14, 40.0, 186.0);
}

void append_row_label(std::string& out, const Row& row, double x, double y) {
  const std::string text = shortened(row.label, 23);
  fmt::format_to(std::back_inserter(out),
                 R"svg(<text x="{}" y="{}" text-anchor="end"><title>{}</title>{}</text>)svg", at(x),
                 at(y), escape_html(row.label), escape_html(text));
}

/// Horizontal bars of means with whiskers from the smallest to the largest seed.
std::string bars(const std::vector<Row>& rows, const std::vector<Look>& looks,
                 std::optional<double> Summary::* member, double factor, bool with_gain,
                 std::string_view axis, std::string_view label) {
  constexpr double pitch = 34;
  constexpr double thickness = 18;
  constexpr double top = 20;
  const double left = label_gutter(rows);
  const double right = figure_width - (with_gain ? 122 : 66);
  const double bottom = top + pitch * static_cast<double>(rows.size()) + 4;

  double most = 0;
  for (const Row& row : rows)
    most = std::max(most, row.over_seeds(member).max.value_or(0) * factor);
  const Scale x = linear_scale(most, left, right, 5);

  std::string out = open_svg(figure_width, bottom + 42, label);
  append_x_axis(out, x, top, bottom, axis);
  append_text(out, left, 11, "start", "tag", tag_of(rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double middle = top + pitch * (static_cast<double>(i) + 0.5) + 2;
    append_row_label(out, rows[i], left - 8, middle + 4);
    const Spread spread = rows[i].over_seeds(member);
    if (!spread.mean) {
      append_text(out, left + 6, middle + 4, "start", "soft", "no value");
      continue;
    }
    const double mean = spread.mean.value_or(0) * factor;
    const double low = spread.min.value_or(0) * factor;
    const double high = spread.max.value_or(0) * factor;
    fmt::format_to(
        std::back_inserter(out),
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\" style=\"fill:{}\"{}>"
        "<title>{}: mean {}, {} to {} over {} seed{}</title></rect>",
        at(left), at(middle - thickness / 2), at(std::max(x(mean) - left, 0.0)), at(thickness),
        looks[i].colour, rows[i].reference ? " fill-opacity=\".55\"" : "",
        escape_html(rows[i].label), label_text(mean), label_text(low), label_text(high),
        spread.count, spread.count == 1 ? "" : "s");
    double end = x(mean);
    if (spread.count > 1) {
      append_line(out, x(low), middle, x(high), middle, "whisker");
      append_line(out, x(low), middle - 7, x(low), middle + 7, "whisker");
      append_line(out, x(high), middle - 7, x(high), middle + 7, "whisker");
      for (const Summary& summary : rows[i].summaries) {
        if (const auto& value = summary.*member) {
          fmt::format_to(std::back_inserter(out),
                         "<circle cx=\"{}\" cy=\"{}\" r=\"1.8\" class=\"seed\"><title>seed {}: {}"
                         "</title></circle>",
                         at(x(*value * factor)), at(middle), summary.seed,
                         label_text(*value * factor));
        }
      }
      end = std::max(end, x(high));
    }
    std::string text = label_text(mean);
    if (const auto& gain = rows[i].gain.mean; with_gain && gain) {
      text += fmt::format(" ({:+.1f} %)", *gain);
    }
    append_text(out, end + 8, middle + 4, "start", "", text);
  }
  append_line(out, left, top, left, bottom, "axis");
  return out + "</svg>";
}

/// J, A and R of every row.
std::string depth_bars(const std::vector<Row>& rows) {
  struct Part {
    std::string_view name;
    std::string_view colour;
    std::optional<double> Summary::* member;
  };
  static constexpr std::array<Part, 3> parts = {{
      {"J", "var(--ink)", &Summary::adopted_mean},
      {"A", "var(--attention)", &Summary::attention_mean},
      {"R", "var(--ssm)", &Summary::recurrent_mean},
  }};
  constexpr double line = 12;
  constexpr double pitch = 3 * line + 10;
  constexpr double top = 20;
  const double left = label_gutter(rows);
  const double right = figure_width - 60;
  const double bottom = top + pitch * static_cast<double>(rows.size()) + 2;
  double most = 0;
  for (const Row& row : rows) {
    for (const Part& part : parts)
      most = std::max(most, row.over_seeds(part.member).max.value_or(0));
  }
  const Scale x = linear_scale(most, left, right, 5);
  std::string out = legend({{swatch_box("var(--ink)"), "J, adopted joint boundary"},
                            {swatch_box("var(--attention)"), "A, attention prefix"},
                            {swatch_box("var(--ssm)"), "R, recurrent state"}});
  out += open_svg(figure_width, bottom + 42, "Mean depth of J, A and R at first admission");
  append_x_axis(out, x, top, bottom, "mean depth at first admission (tokens)");
  append_text(out, left, 11, "start", "tag", tag_of(rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double first = top + pitch * static_cast<double>(i) + 6;
    append_row_label(out, rows[i], left - 8, first + 1.5 * line + 3);
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const double y = first + line * static_cast<double>(k);
      const Spread spread = rows[i].over_seeds(parts[k].member);
      if (!spread.mean) continue;
      const double mean = spread.mean.value_or(0);
      const double low = spread.min.value_or(mean);
      const double high = spread.max.value_or(mean);
      fmt::format_to(std::back_inserter(out),
                     "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"9\" rx=\"1.5\" "
                     "style=\"fill:{}\"><title>{}: mean {} {} tokens</title></rect>",
                     at(left), at(y), at(std::max(x(mean) - left, 0.0)), parts[k].colour,
                     escape_html(rows[i].label), parts[k].name, grouped(mean));
      double end = x(mean);
      if (spread.count > 1 && high > low) {
        append_line(out, x(low), y + 4.5, x(high), y + 4.5, "whisker");
        end = std::max(end, x(high));
      }
      append_text(out, end + 6, y + 8.5, "start", "small soft",
                  fmt::format("{} {}", parts[k].name, grouped(mean)));
    }
  }
  append_line(out, left, top, left, bottom, "axis");
  return out + "</svg>";
}

/// What one row's curve is drawn from.
struct Curve {
  std::vector<double> pooled;              ///< ascending, all seeds
  std::vector<std::vector<double>> seeds;  ///< ascending, one per run with values
};

/// The shares at which a curve is drawn: even steps, and the far tail where it is steep.
std::vector<double> curve_shares() {
  std::vector<double> shares;
  for (std::size_t i = 0; i <= curve_points; ++i) {
    shares.push_back(100.0 * static_cast<double>(i) / static_cast<double>(curve_points));
  }
  for (const double tail : {99.2, 99.7, 99.9}) shares.push_back(tail);
  std::sort(shares.begin(), shares.end());
  return shares;
}

std::string distribution_plot(const std::vector<Row>& rows, const std::vector<Look>& looks,
                              const std::vector<Curve>& curves, std::string_view axis,
                              std::string_view unit, std::string_view label) {
  constexpr double left = 58;
  constexpr double right = figure_width - 14;
  constexpr double top = 20;
  constexpr double bottom = 300;
  double low = 1e300;
  double high = 0;
  for (const Curve& curve : curves) {
    for (const double value : curve.pooled) {
      if (value > 0) {
        low = std::min(low, value);
        break;
      }
    }
    if (!curve.pooled.empty()) high = std::max(high, curve.pooled.back());
  }
  std::vector<LegendEntry> entries;
  entries.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    entries.push_back({swatch_line(looks[i]), rows[i].label});
  }
  std::string out = legend(entries);
  const Scale x = log_scale(high > 0 ? low : 1, high, left, right);
  Scale y = linear_scale(100, bottom, top, 4);
  y.ticks = {0, 25, 50, 75, 100};
  out += open_svg(figure_width, bottom + 42, label,
                  fmt::format("data-x='{{\"x\":{},\"w\":{},\"lo\":{},\"hi\":{},\"log\":1,"
                              "\"unit\":\"{}\"}}'",
                              at(left), at(right - left), x.low, x.high, unit));
  append_y_axis(out, y, left, right, "requests (%)", 14);
  append_x_axis(out, x, top, bottom, axis);
  append_text(out, left, 11, "start", "tag", tag_of(rows));
  if (high <= 0) {
    append_text(out, (left + right) / 2, (top + bottom) / 2, "middle", "soft", "no values");
  }
  const std::vector<double> shares = curve_shares();
  for (std::size_t i = 0; i < rows.size() && high > 0; ++i) {
    if (rows[i].reference || curves[i].seeds.size() < 2) continue;
    std::string lows;
    std::string highs;
    for (std::size_t k = 0; k < shares.size(); k += 2) {
      double least = 1e300;
      double most = 0;
      for (const std::vector<double>& seed : curves[i].seeds) {
        const double value = percentile(seed, shares[k]).value_or(0);
        least = std::min(least, value);
        most = std::max(most, value);
      }
      lows += fmt::format("{},{} ", at(x(least)), at(y(shares[k])));
      highs.insert(0, fmt::format("{},{} ", at(x(most)), at(y(shares[k]))));
    }
    highs.pop_back();
    fmt::format_to(std::back_inserter(out),
                   R"svg(<polygon points="{}{}" class="band" style="fill:{};opacity:{}"/>)svg",
                   lows, highs, looks[i].colour, rows.size() > 5 ? ".09" : ".14");
  }
  // Reference rows first, so that they lie under the organizations.
  for (const bool references : {true, false}) {
    for (std::size_t i = 0; i < rows.size() && high > 0; ++i) {
      if (rows[i].reference != references || curves[i].pooled.empty()) continue;
      std::string points;
      for (const double share : shares) {
        if (!points.empty()) points += ' ';
        points += at(x(percentile(curves[i].pooled, share).value_or(0))) + "," + at(y(share));
      }
      fmt::format_to(
          std::back_inserter(out),
          "<polyline points=\"{}\" class=\"line\" style=\"stroke:{}\"{}{}{} data-n=\"{}\" "
          "data-y='{{\"y\":{},\"h\":{},\"hi\":100,\"unit\":\"%\"}}'></polyline>",
          points, looks[i].colour, looks[i].dash.empty() ? "" : " stroke-dasharray=\"",
          looks[i].dash, looks[i].dash.empty() ? "" : "\"", escape_html(rows[i].label), at(bottom),
          at(bottom - top));
    }
  }
  append_line(out, left, top, left, bottom, "axis");
  append_line(out, left, top, left, bottom, "cross");
  return out + "</svg>";
}

// ---- Timeline -----------------------------------------------------------------------------------

/// The lines of a timeline in drawing order; the first six stack.
struct Track {
  std::string_view name;
  std::string_view colour;
};
constexpr std::array<Track, 6> kinds = {{
    {"attention", "var(--attention)"},
    {"SSM", "var(--ssm)"},
    {"conv", "var(--conv)"},
    {"cached", "var(--cached)"},
    {"fenced", "var(--fenced)"},
    {"keyless", "var(--keyless)"},
}};
constexpr std::size_t track_count = kinds.size() + 2;  // and running, waiting

std::array<double, track_count> values_of(const TimelineSample& sample) {
  return {static_cast<double>(sample.attention_referenced),
          static_cast<double>(sample.ssm_referenced),
          static_cast<double>(sample.conv_referenced),
          static_cast<double>(sample.cached),
          static_cast<double>(sample.fenced),
          static_cast<double>(sample.keyless),
          static_cast<double>(sample.running),
          static_cast<double>(sample.waiting)};
}

struct TimelinePoint {
  double seconds = 0;  ///< since the first sample
  std::array<double, track_count> values{};
};

/// The timeline with at most `most` points. A longer one becomes means over equal stretches of
/// time, where a sample holds until the next one.
std::vector<TimelinePoint> timeline_points(std::span<const TimelineSample> timeline,
                                           std::size_t most) {
  std::vector<TimelinePoint> points;
  if (timeline.empty()) return points;
  const std::int64_t start = timeline.front().time_ns;
  const auto seconds = [&](std::size_t i) {
    return static_cast<double>(timeline[i].time_ns - start) / 1e9;
  };
  const double span = seconds(timeline.size() - 1);
  if (timeline.size() <= most || !(span > 0)) {
    const std::size_t count = std::min(timeline.size(), most);
    for (std::size_t i = 0; i < count; ++i) points.push_back({seconds(i), values_of(timeline[i])});
    return points;
  }
  const double width = span / static_cast<double>(most);
  std::size_t sample = 0;
  for (std::size_t bucket = 0; bucket < most; ++bucket) {
    const double begin = width * static_cast<double>(bucket);
    const double end = bucket + 1 == most ? span : begin + width;
    TimelinePoint point;
    point.seconds = (begin + end) / 2;
    double weight = 0;
    for (;;) {
      const bool last = sample + 1 == timeline.size();
      const double from = std::max(seconds(sample), begin);
      const double to = last ? end : std::min(seconds(sample + 1), end);
      if (to > from) {
        const auto values = values_of(timeline[sample]);
        for (std::size_t k = 0; k < track_count; ++k) point.values[k] += values[k] * (to - from);
        weight += to - from;
      }
      if (last || seconds(sample + 1) >= end) break;
      ++sample;
    }
    if (!(weight > 0)) {
      point.values = values_of(timeline[sample]);
    } else {
      for (double& value : point.values) value /= weight;
    }
    points.push_back(point);
  }
  return points;
}

struct ByteUnit {
  std::string_view name;
  double bytes;
};

ByteUnit byte_unit(double most) {
  if (most >= 1024.0 * 1024.0 * 1024.0 * 2) return {"GiB", 1024.0 * 1024.0 * 1024.0};
  if (most >= 1024.0 * 1024.0 * 2) return {"MiB", 1024.0 * 1024.0};
  if (most >= 1024.0 * 2) return {"KiB", 1024.0};
  return {"B", 1};
}

std::string timeline_plot(const Row& row, const std::vector<TimelinePoint>& points,
                          double most_seconds, double most_requests) {
  constexpr double width = 1160;
  constexpr double left = 66;
  constexpr double right = width - 14;
  constexpr double top = 18;
  constexpr double middle = 178;
  constexpr double lower_top = 194;
  constexpr double bottom = 264;

  double most_bytes = 0;
  for (const TimelinePoint& point : points) {
    double sum = 0;
    for (std::size_t k = 0; k < kinds.size(); ++k) sum += point.values[k];
    most_bytes = std::max(most_bytes, sum);
  }
  const ByteUnit unit = byte_unit(most_bytes);
  const Scale x = linear_scale(most_seconds, left, right, 10, true);
  const Scale y = linear_scale(most_bytes / unit.bytes, middle, top, 4, true);
  const Scale requests = linear_scale(most_requests, bottom, lower_top, 2);

  std::string out =
      open_svg(width, bottom + 40, fmt::format("Occupancy over time of {}", row.label),
               fmt::format(R"svg(data-x='{{"x":{},"w":{},"lo":0,"hi":{},"unit":"s"}}')svg",
                           at(left), at(right - left), x.high));
  append_y_axis(out, y, left, right, fmt::format("{} per layer", unit.name), 14);
  append_y_axis(out, requests, left, right, "requests", 14);
  append_x_axis(out, x, top, bottom, "time since the first step (s)");
  append_text(out, left, 11, "start", "tag",
              row.simulated ? std::string("simulated") : std::string());

  // Each kind is drawn from the ground up to its top, the topmost kind first.
  for (std::size_t reversed = 0; reversed < kinds.size(); ++reversed) {
    const std::size_t k = kinds.size() - 1 - reversed;
    std::string outline;
    for (const TimelinePoint& point : points) {
      double sum = 0;
      for (std::size_t below = 0; below <= k; ++below) sum += point.values[below];
      outline += fmt::format("{},{} ", at(x(point.seconds)), at(y(sum / unit.bytes)));
    }
    const double end = x(points.back().seconds);
    outline = fmt::format("{},{} {}{},{}", at(x(points.front().seconds)), at(middle), outline,
                          at(end), at(middle));
    fmt::format_to(
        std::back_inserter(out),
        "<polygon points=\"{}\" class=\"area\" style=\"fill:{}\" data-n=\"{}\" "
        "data-y='{{\"y\":{},\"h\":{},\"hi\":{},\"unit\":\"{}\",\"stack\":1}}'></polygon>",
        outline, kinds[k].colour, kinds[k].name, at(middle), at(middle - top), y.high, unit.name);
  }
  append_line(out, left, middle, right, middle, "axis");
  // Running and waiting requests.
  static constexpr std::array<Track, 2> lines = {{
      {"running", "var(--running)"},
      {"waiting", "var(--waiting)"},
  }};
  for (std::size_t k = 0; k < lines.size(); ++k) {
    std::string path;
    for (const TimelinePoint& point : points) {
      if (!path.empty()) path += ' ';
      path += at(x(point.seconds)) + "," + at(requests(point.values[kinds.size() + k]));
    }
    fmt::format_to(std::back_inserter(out),
                   "<polyline points=\"{}\" class=\"line\" style=\"stroke:{};stroke-width:1.6\" "
                   "data-n=\"{}\" data-y='{{\"y\":{},\"h\":{},\"hi\":{},\"unit\":\"requests\"}}'>"
                   "</polyline>",
                   path, lines[k].colour, lines[k].name, at(bottom), at(bottom - lower_top),
                   requests.high);
  }
  append_line(out, left, top, left, middle, "axis");
  append_line(out, left, lower_top, left, bottom, "axis");
  append_line(out, left, top, left, bottom, "cross");
  return out + "</svg>";
}

// ---- Page ---------------------------------------------------------------------------------------

std::string settings_block(const Comparison& comparison) {
  std::string out = "<div class=\"card\"><dl>";
  for (const Setting& setting : heading_of(comparison)) {
    const bool wide = setting.value.size() > 34;
    out += fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>", wide ? " class=\"wide\"" : "",
                       escape_html(setting.name),
                       escape_html(setting.value.empty() ? "yes" : setting.value));
  }
  return out + "</dl></div>\n";
}

/// The row names and the columns [first, last).
std::string table_part(const std::vector<Row>& rows, const std::vector<Look>& looks,
                       const std::vector<TableColumn>& columns, std::size_t first,
                       std::size_t last) {
  std::string groups = "<th class=\"name\"></th>";
  std::string names = fmt::format("<th class=\"name\">{}</th>", escape_html(columns[0].name));
  for (std::size_t i = first; i < last;) {
    std::size_t end = i + 1;
    while (end < last && !columns[i].group.empty() && columns[end].group == columns[i].group) {
      ++end;
    }
    const std::string span = end - i > 1 ? fmt::format(" colspan=\"{}\"", end - i) : "";
    groups += fmt::format("<th{}>{}</th>", span, escape_html(columns[i].group));
    i = end;
  }
  for (std::size_t i = first; i < last; ++i) {
    names += fmt::format("<th title=\"{}\">{}</th>", escape_html(columns[i].help),
                         escape_html(columns[i].name));
  }
  std::string out = "<div class=\"scroll\"><table><thead><tr>" + groups + "</tr><tr>" + names +
                    "</tr></thead><tbody>\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const bool first_reference = rows[r].reference && r > 0 && !rows[r - 1].reference;
    out += fmt::format("<tr{}>", !rows[r].reference ? ""
                                 : first_reference  ? " class=\"reference first-reference\""
                                                    : " class=\"reference\"");
    out += fmt::format(
        R"svg(<td class="name"><span class="key" style="background:{}"></span>{}</td>)svg",
        looks[r].colour, escape_html(columns[0].cells[r]));
    for (std::size_t i = first; i < last; ++i) {
      out += "<td>" + escape_html(columns[i].cells[r]) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>";
}

std::string summary_table(const std::vector<Row>& rows, const std::vector<Look>& looks) {
  const std::vector<TableColumn> columns = comparison_columns(rows);
  // Rates and latencies above, reuse and memory below.
  std::size_t cut = 1;
  while (cut < columns.size() && columns[cut].name != "J") ++cut;
  std::string out = "<div class=\"card\">" + table_part(rows, looks, columns, 1, cut) +
                    table_part(rows, looks, columns, cut, columns.size()) +
                    "<details><summary>What the columns mean</summary><p>";
  for (std::size_t i = 1; i < columns.size(); ++i) {
    const std::string group = columns[i].group.empty() ? "" : columns[i].group + " ";
    out += fmt::format("<b>{}{}</b>: {}. ", escape_html(group), escape_html(columns[i].name),
                       escape_html(columns[i].help));
  }
  out +=
      "Values are arithmetic means over seeds; a p99 is the mean of the runs’ p99.</p>"
      "</details></div>\n";
  return out;
}

std::array<std::string, 3> latency_figures(const Comparison& comparison,
                                           const std::vector<Row>& rows,
                                           const std::vector<Look>& looks) {
  std::array<std::string, 3> figures;
  struct Kind {
    std::vector<double> Latencies::* values;
    double factor;
    std::string_view title;
    std::string_view axis;
    std::string_view unit;
  };
  static constexpr std::array<Kind, 3> latency_kinds = {{
      {&Latencies::ttft_ms, 1e-3, "Time to first token", "time to first token (s, log scale)", "s"},
      {&Latencies::e2e_ms, 1e-3, "End-to-end latency", "end-to-end latency (s, log scale)", "s"},
      {&Latencies::tpot_ms, 1, "Time per output token", "time per output token (ms, log scale)",
       "ms"},
  }};
  std::array<std::vector<Curve>, 3> curves;
  for (auto& kind : curves) kind.resize(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const std::size_t run : rows[r].runs) {
      const Latencies values = latencies(comparison.runs[run]);
      for (std::size_t k = 0; k < latency_kinds.size(); ++k) {
        std::vector<double> seed = values.*latency_kinds[k].values;
        for (double& value : seed) value *= latency_kinds[k].factor;
        Curve& curve = curves[k][r];
        curve.pooled.insert(curve.pooled.end(), seed.begin(), seed.end());
        if (!seed.empty()) curve.seeds.push_back(std::move(seed));
      }
    }
  }
  for (std::size_t k = 0; k < latency_kinds.size(); ++k) {
    bool several = false;
    for (Curve& curve : curves[k]) {
      std::sort(curve.pooled.begin(), curve.pooled.end());
      several = several || curve.seeds.size() > 1;
    }
    figures[k] = figure(latency_kinds[k].title,
                        several ? "share of completed requests; line: all seeds, band: "
                                  "smallest to largest"
                                : "share of completed requests",
                        distribution_plot(rows, looks, curves[k], latency_kinds[k].axis,
                                          latency_kinds[k].unit, latency_kinds[k].title));
  }
  return figures;
}

std::string timeline_figures(const Comparison& comparison, const std::vector<Row>& rows) {
  const std::size_t most =
      std::clamp<std::size_t>(page_timeline_points / rows.size(), 50, most_timeline_points);
  std::vector<std::vector<TimelinePoint>> timelines;
  double most_seconds = 0;
  double most_requests = 0;
  for (const Row& row : rows) {
    const RunResult& run = comparison.runs[row.runs.front()];
    timelines.push_back(timeline_points(run.timeline, most));
    for (const TimelinePoint& point : timelines.back()) {
      most_seconds = std::max(most_seconds, point.seconds);
      most_requests =
          std::max({most_requests, point.values[kinds.size()], point.values[kinds.size() + 1]});
    }
  }
  if (!(most_requests > 0) && !(most_seconds > 0)) return {};

  std::vector<LegendEntry> entries;
  entries.reserve(track_count);
  for (const Track& kind : kinds) {
    entries.push_back({swatch_box(kind.colour), std::string(kind.name)});
  }
  entries.push_back({swatch_line({"var(--running)", ""}), "running requests"});
  entries.push_back({swatch_line({"var(--waiting)", ""}), "waiting requests"});

  std::string out =
      "<h2>Occupancy over time</h2>\n<p class=\"soft\">First seed of every row. "
      "Attention, SSM and conv are units in use by running requests, a conv slab "
      "counting as conv; cached units can still be discovered; keyless ones hold "
      "nothing discoverable; fenced ones wait for work that may still read them. "
      "All rows share the time axis and the request axis.</p>\n" +
      legend(entries) + "<div class=\"figures one\">\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RunResult& run = comparison.runs[rows[i].runs.front()];
    std::string subtitle = fmt::format("seed {}", run.seed);
    if (run.budget_bytes > 0 && !rows[i].reference) {
      subtitle += fmt::format(", {} per layer", bytes_text(static_cast<double>(run.budget_bytes)));
    }
    if (run.timeline.size() > most) {
      subtitle += fmt::format(", {} samples drawn as {} means",
                              grouped(static_cast<double>(run.timeline.size())),
                              grouped(static_cast<double>(most)));
    }
    if (timelines[i].empty()) {
      out += figure(rows[i].label, subtitle, "<p class=\"soft\">No timeline was recorded.</p>");
      continue;
    }
    out += figure(rows[i].label, subtitle,
                  timeline_plot(rows[i], timelines[i], most_seconds, most_requests));
  }
  return out + "</div>\n";
}

}  // namespace

std::string render_html(const Comparison& comparison) {
  const std::vector<Row> rows = rows_of(comparison);
  const std::vector<Look> looks = looks_of(rows);
  const std::string tag = tag_of(rows);
  std::string title = comparison.workload_name.empty() ? std::string("Comparison")
                                                       : comparison.workload_name + " workload";
  if (!comparison.model.empty()) title += " on " + comparison.model;

  std::string out;
  if (!tag.empty()) {
    out +=
        "<p class=\"soft\">Times are simulated: the memory management is real, the step times "
        "come from a model.</p>\n";
  }
  out += "<h2>Settings</h2>\n" + settings_block(comparison);
  if (rows.empty()) {
    return page_of(title, out + "<p>No runs.</p>\n");
  }
  out += "<h2>Summary</h2>\n" + summary_table(rows, looks);

  bool several = false;
  for (const Row& row : rows) several = several || row.runs.size() > 1;
  const std::string_view spread =
      several ? "mean over seeds; whiskers: smallest to largest seed, dots: seeds" : "";
  out += "<h2>Throughput, latency and reuse</h2>\n<div class=\"figures\">\n";
  out += figure("Output throughput",
                several           ? "mean and gain over the first row; whiskers: "
                                    "smallest to largest seed"
                : rows.size() > 1 ? "with the gain over the first row"
                                  : "",
                bars(rows, looks, &Summary::output_rate, 1, true, "output tokens per second",
                     "Output throughput"));
  out += figure("Token hit rate", spread,
                bars(rows, looks, &Summary::hit_rate, 100, false,
                     "prompt tokens adopted at first admission (%)", "Token hit rate"));
  for (const std::string& plot : latency_figures(comparison, rows, looks)) out += plot;
  out += figure("Reuse depth", several ? "mean over seeds; whiskers: smallest to largest seed" : "",
                depth_bars(rows));
  out += "</div>\n";
  out += timeline_figures(comparison, rows);
  return page_of(title, out);
}

void write_html(const std::filesystem::path& path, const Comparison& comparison) {
  write_text_atomically(path, render_html(comparison));
}

}  // namespace hybridstate::runtime
