// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "campaign/declaration.hpp"

namespace hybridstate::runtime {

/// Which of the declared seeds are taken: all, the first N of every list ("first:3"), or those in
/// ranges ("42000-42003,0-2").
class SeedFilter {
 public:
  SeedFilter() = default;
  /// Throws std::invalid_argument with one sentence.
  explicit SeedFilter(const std::string& text);

  bool takes(const Experiment& experiment, const Entry& entry) const;
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::optional<std::uint64_t> first_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

/// Questions to run and the seeds of each.
using Selection = std::map<std::string, SeedFilter>;

/// A cell and every place that it has in the declarations.
struct PlannedCell {
  Cell cell;
  nlohmann::ordered_json uses;
};

/// The selected cells of a stage, each once, in the order in which a device would run them.
std::vector<PlannedCell> planned_cells(const Catalogue& catalogue, const Selection& selection,
                                       int stage);

/// The folder of a campaign:
///   campaign.json     declarations, written before the first cell
///   cells/NAME.json   one file a cell, see cell_stem()
///   choices.json      what the selection cells chose, written before what confirms it
///   cells.json, cells.csv   all cells, written by collect
class CampaignFolder {
 public:
  explicit CampaignFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path cell_path(const Cell& cell) const;

  /// Creates the folder and writes campaign.json, with the selection added to one that is there.
  /// Throws std::invalid_argument when that one has other settings or declarations.
  void declare(const CampaignSettings& settings, const Catalogue& catalogue,
               const Selection& selection) const;
  /// What campaign.json says; throws ReportError when it is missing, damaged, or
  /// declares other experiments than this version does.
  std::pair<CampaignSettings, Selection> declared() const;

  /// The cell's file if it is whole and of this version and place. Else nothing, and `problem`
  /// says why; it is empty when there is no file.
  std::optional<nlohmann::ordered_json> load(const PlannedCell& cell, std::string& problem) const;
  /// Completes `result` by what identifies the cell, and writes it.
  void save(const PlannedCell& cell, const nlohmann::ordered_json& result) const;

  void write_choices(const Choices& choices) const;
  /// Empty when there are none yet.
  Choices choices() const;

  /// Merges all selected cells into cells.json and cells.csv; the stems of missing ones come back.
  std::vector<std::string> collect() const;

 private:
  std::filesystem::path path_;
};

}  // namespace hybridstate::runtime
