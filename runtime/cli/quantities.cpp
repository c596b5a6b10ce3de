// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "cli/quantities.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "cli/command.hpp"

namespace hybridstate::runtime {

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

}  // namespace hybridstate::runtime
