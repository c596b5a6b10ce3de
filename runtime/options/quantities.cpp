// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "options/quantities.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>

#include "options/usage_error.hpp"

namespace hybridstate::runtime {
namespace {

/// A positive number and the rest behind it; absent when there is none.
std::optional<double> positive_number(std::string_view text, std::string_view& rest) {
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !(value > 0) || value > 1e9) return std::nullopt;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<double> milliseconds(std::string_view text) {
  std::string_view unit;
  const std::optional<double> value = positive_number(text, unit);
  if (!value || (unit != "s" && unit != "ms")) return std::nullopt;
  return unit == "s" ? *value * 1000 : *value;
}

}  // namespace

Bytes parse_bytes(const std::string& option, const std::string& text) {
  struct Suffix {
    std::string_view name;
    double bytes;
  };
  static constexpr Suffix suffixes[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view const rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (Suffix const& suffix : suffixes) {
    if (error != std::errc{} || rest != suffix.name) continue;
    double const bytes = value * suffix.bytes;
    if (!(bytes >= 1) || bytes >= 0x1p62) break;
    return static_cast<Bytes>(std::floor(bytes));
  }
  throw UsageError(fmt::format(
      "{} {}: not an amount of memory; write a positive number with B, kB, MB, GB, TB, KiB, MiB, "
      "GiB or TiB, such as 20GiB",
      option, text));
}

Units parse_nominal(const std::string& text) {
  if (text.size() < 2 || text[0] != 'b') return 0;
  Units number = 0;
  auto const [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? number : 0;
}

GoodputRule parse_goodput(const std::string& option) {
  const std::string_view text = option;
  const auto wrong = [&] {
    return UsageError(fmt::format(
        "--goodput {}: use thresholds such as ttft:2s,tpot:80ms,e2e:30s (each once, in s or ms), "
        "or observed:p99 with a percentile above 0 and at most 100",
        option));
  };
  GoodputRule rule;
  if (text.starts_with("observed")) {
    std::string_view rest = text.substr(8);
    rule.observed_percent = 99;
    if (rest.empty()) return rule;
    if (!rest.starts_with(":p")) throw wrong();
    rule.observed_percent = positive_number(rest.substr(2), rest);
    if (!rule.observed_percent || *rule.observed_percent > 100 || !rest.empty()) throw wrong();
    return rule;
  }
  for (std::size_t at = 0, comma = 0; comma != std::string_view::npos; at = comma + 1) {
    comma = text.find(',', at);
    const std::string_view part = text.substr(at, comma == text.npos ? comma : comma - at);
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos) throw wrong();
    const std::string_view name = part.substr(0, colon);
    std::optional<double>* const threshold = name == "ttft"   ? &rule.ttft_ms
                                             : name == "tpot" ? &rule.tpot_ms
                                             : name == "e2e"  ? &rule.e2e_ms
                                                              : nullptr;
    if (threshold == nullptr || *threshold) throw wrong();
    *threshold = milliseconds(part.substr(colon + 1));
    if (!*threshold) throw wrong();
  }
  return rule;
}

}  // namespace hybridstate::runtime
