// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "report/page.hpp"
#include "report/table.hpp"

namespace hybridstate::runtime {

std::string shortened(std::string_view text, std::size_t most) {
  std::string result;
  std::size_t count = 0;
  for (const char c : text) {
    const bool starts = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    if (starts && ++count > most) return result + "…";
    result += c;
  }
  return result;
}

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string at(double value) {
  if (!std::isfinite(value)) value = 0;
  std::string text = fmt::format("{:.1f}", value);
  if (text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string tick_text(double value) {
  if (value == 0) return "0";
  if (std::fabs(value) >= 1000) return grouped(value, 0);
  return fmt::format("{:.3g}", value);
}

std::string label_text(double value) {
  const double size = std::fabs(value);
  if (size == 0) return "0";
  return grouped(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

double Scale::operator()(double value) const {
  double part = 0;
  if (logarithmic) {
    part = std::log(std::max(value, low) / low) / std::log(high / low);
  } else {
    part = (value - low) / (high - low);
  }
  return from + std::clamp(part, 0.0, 1.0) * (to - from);
}

namespace {

double nice_step(double range, int wanted) {
  const double raw = range / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double part = raw / power;
  return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

}  // namespace

Scale linear_scale(double most, double from, double to, int wanted, bool exact) {
  Scale scale;
  scale.from = from;
  scale.to = to;
  if (!(most > 0) || !std::isfinite(most)) most = 1;
  const double step = nice_step(most, wanted);
  scale.high = exact ? most : step * std::ceil(most / step * (1 - 1e-12));
  for (int i = 0; step * i <= scale.high * (1 + 1e-9); ++i) scale.ticks.push_back(step * i);
  return scale;
}

Scale range_scale(double least, double most, double from, double to, int wanted) {
  Scale scale;
  scale.from = from;
  scale.to = to;
  if (!(most > least)) most = least + 1;
  const double step = nice_step(most - least, wanted);
  const double first = std::floor(least / step + 1e-9);
  const double last = std::ceil(most / step - 1e-9);
  scale.low = step * first;
  scale.high = step * last;
  for (double i = first; i <= last; ++i) scale.ticks.push_back(step * i);
  return scale;
}

Scale log_scale(double low, double high, double from, double to) {
  Scale scale;
  scale.logarithmic = true;
  scale.from = from;
  scale.to = to;
  if (!(high > 0) || !std::isfinite(high)) high = 1;
  if (!(low > 0)) low = high;
  low = std::max(low, high / 1e6);
  if (high / low < 2) {
    const double middle = std::sqrt(low * high);
    low = middle / 2;
    high = middle * 2;
  }
  scale.low = low;
  scale.high = high;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const auto collect = [&](std::initializer_list<double> parts) {
    scale.ticks.clear();
    for (int power = first; power <= last; ++power) {
      for (const double part : parts) {
        const double tick = part * std::pow(10.0, power);
        if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) scale.ticks.push_back(tick);
      }
    }
  };
  collect({1, 2, 5});
  if (scale.ticks.size() > 9) collect({1, 3});
  if (scale.ticks.size() > 9) collect({1});
  return scale;
}

void append_text(std::string& out, double x, double y, std::string_view anchor,
                 std::string_view css, std::string_view text) {
  if (text.empty()) return;
  fmt::format_to(std::back_inserter(out),
                 R"svg(<text x="{}" y="{}" text-anchor="{}"{}{}{}>{}</text>)svg", at(x), at(y),
                 anchor, css.empty() ? "" : " class=\"", css, css.empty() ? "" : "\"",
                 escape_html(text));
}

void append_line(std::string& out, double x1, double y1, double x2, double y2,
                 std::string_view css) {
  fmt::format_to(std::back_inserter(out),
                 R"svg(<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>)svg", at(x1), at(y1),
                 at(x2), at(y2), css);
}

void append_x_axis(std::string& out, const Scale& x, double top, double bottom,
                   std::string_view title) {
  for (const double tick : x.ticks) {
    append_line(out, x(tick), top, x(tick), bottom, "grid");
    append_text(out, x(tick), bottom + 16, "middle", "soft", tick_text(tick));
  }
  append_line(out, x.from, bottom, x.to, bottom, "axis");
  append_text(out, (x.from + x.to) / 2, bottom + 34, "middle", "soft", title);
}

void append_y_axis(std::string& out, const Scale& y, double left, double right,
                   std::string_view title, double title_x) {
  for (const double tick : y.ticks) {
    append_line(out, left, y(tick), right, y(tick), "grid");
    append_text(out, left - 7, y(tick) + 4, "end", "soft", tick_text(tick));
  }
  const double middle = (y.from + y.to) / 2;
  fmt::format_to(std::back_inserter(out),
                 "<text transform=\"translate({} {}) rotate(-90)\" text-anchor=\"middle\" "
                 "class=\"soft\">{}</text>",
                 at(title_x), at(middle), escape_html(title));
}

std::string open_svg(double width, double height, std::string_view label,
                     std::string_view attributes) {
  return fmt::format(
      R"svg(<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}"{}{}>)svg", at(width),
      at(height), escape_html(label), attributes.empty() ? "" : " ", attributes);
}

}  // namespace hybridstate::runtime
