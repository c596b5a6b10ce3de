// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "campaign/report.hpp"

namespace hybridstate::runtime {

/// The seeds of a finding, each with its value and links to its cells, folded.
std::string cells_html(const Quantity& quantity, const Finding& finding, const std::string& cells);

/// The figures of a question: the paper's, redrawn, and some of ours. Empty where it has none.
std::string figures_html(const CampaignReport& report, const QuestionFindings& question,
                         const std::string& cells);

}  // namespace hybridstate::runtime
