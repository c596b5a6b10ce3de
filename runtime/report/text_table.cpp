// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/text_table.hpp"

#include <algorithm>
#include <cstddef>

namespace hybridstate::runtime {

std::string grouped_count(std::uint64_t number) {
  std::string const digits = std::to_string(number);
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows, std::size_t indent) {
  std::vector<std::size_t> widths;
  for (auto const& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  auto const line = [&](auto&& cell) {
    std::string out(indent, ' ');
    for (std::size_t c = 0; c < widths.size(); ++c) {
      std::string const value = cell(c);
      std::string const space(widths[c] - value.size(), ' ');
      if (c > 0) out += "  ";
      out += c == 0 ? value + space : space + value;
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    text += out + '\n';
  };
  for (std::size_t r = 0; r < rows.size(); ++r) {
    line([&](std::size_t c) { return c < rows[r].size() ? rows[r][c] : std::string(); });
    if (r == 0) line([&](std::size_t c) { return std::string(widths[c], '-'); });
  }
  return text;
}

}  // namespace hybridstate::runtime
