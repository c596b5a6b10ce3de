// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "campaign/findings.hpp"
#include "campaign/paper_readouts.hpp"
#include "campaign/results.hpp"

namespace hybridstate::runtime {

/// A figure of the paper, or one that only we have, and what our cells give for it.
struct ReadoutFinding {
  PaperReadout paper;
  Finding finding;
};

struct QuestionFindings {
  const Question* question = nullptr;
  std::vector<TestFinding> tests;       ///< of every family that reads its experiments
  std::vector<ReadoutFinding> effects;  ///< other effects, with or without a value of the paper
  std::vector<ReadoutFinding> levels;   ///< absolute figures that the paper prints
  std::vector<AimFinding> aims;
  std::size_t declared = 0;   ///< entries of its experiments
  std::size_t present = 0;    ///< of these, with a cell
  std::size_t compared = 0;   ///< effects with a sign of the paper and a value of ours
  std::size_t same_sign = 0;  ///< of these
  std::size_t zero = 0;       ///< of these, where ours is exactly 0 and the paper's is not
};

/// One line of the summary, and of any table of effects.
struct ComparisonRow {
  std::string question;
  std::string name;   ///< the declared test's, or the quantity
  std::string title;  ///< of a test: what it contrasts, where the name does not say it
  std::string unit;
  const Quantity* quantity = nullptr;
  const Finding* finding = nullptr;
  const TestFinding* test = nullptr;  ///< where a declared test decides it
  std::optional<double> paper, paper_low, paper_high, paper_p;
  int paper_sign = 0;
  std::string source;

  /// "same", "other", "zero" where ours is exactly that and the paper's is not, or empty where
  /// there is no sign to compare: levels, and tests of containment.
  std::string verdict() const;
  /// The paper's own result includes zero, or its adjusted p is at least 0.05.
  bool paper_inconclusive() const;
  std::string full_name() const { return title.empty() ? name : name + ": " + title; }
};
ComparisonRow row_of(const std::string& question, const TestFinding& test);
ComparisonRow row_of(const std::string& question, const ReadoutFinding& readout);

/// What a campaign's cells say about every question.
struct CampaignReport {
  const Results* results = nullptr;
  std::vector<QuestionFindings> questions;

  /// The declared tests and the other effects that answer the questions.
  std::vector<ComparisonRow> summary() const;
};
CampaignReport report_of(const Results& results);

/// The summary for a terminal: question, effect, the paper's value, ours, whether the signs agree.
std::string summary_text(const CampaignReport& report);

/// {"schema", "version", "figures", "cells_present", "choices",
///  "questions": [{"id", "question", "cells_declared", "cells_present", "missing",
///  "effects_compared",
///   "same_sign", "aims", "tests", "effects", "levels"}]}; every finding lists the files of its
///   cells by
/// seed. Equal folders give equal bytes.
std::string report_json(const CampaignReport& report);

/// One self-contained page. `cells` is the way from the page to the folder of the cells' files.
std::string report_html(const CampaignReport& report, const std::string& cells);

/// What an aim asks for, what was found, and "reached", "missed" or what keeps it open.
std::string bound_text(const AimFinding& aim);
std::string found_text(const AimFinding& aim);
std::string verdict_text(const AimFinding& aim);

/// A value in the unit of a quantity, as tables show it; effects carry their sign.
std::string value_text(const Quantity& quantity, std::optional<double> value);
/// The paper's value, or only on which side of 0 it lies; empty without one.
std::string paper_text(const ComparisonRow& row);

}  // namespace hybridstate::runtime
