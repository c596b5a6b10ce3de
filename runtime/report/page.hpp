// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/svg.hpp"

namespace hybridstate::runtime {

/// Text with the five characters that mean something in HTML replaced; control characters that
/// HTML does not allow become spaces.
std::string escape_html(std::string_view text);

/// A page that loads nothing and follows the reader's light or dark setting, around a body of HTML.
/// `more_style` is added to the style sheet.
std::string page_of(std::string_view title, std::string_view body,
                    std::string_view more_style = "");

/// A card with a caption around a body of HTML; both texts are plain.
std::string figure(std::string_view title, std::string_view subtitle, std::string_view body);

std::string swatch_line(const Look& look);
std::string swatch_box(std::string_view colour);

struct LegendEntry {
  std::string swatch;
  std::string text;
};
std::string legend(const std::vector<LegendEntry>& entries);

}  // namespace hybridstate::runtime
