// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "campaign/report.hpp"
#include "cli/command.hpp"
#include "report/file.hpp"

namespace hybridstate::runtime {

namespace {

struct ReportOptions {
  std::string folder;
  std::string out;
  std::string json;
};

int report(const ReportOptions& options) {
  std::filesystem::path const folder = options.folder;
  if (!std::filesystem::is_directory(folder))
    throw UsageError(
        fmt::format("{} is no folder; give the one that campaign run --out wrote", options.folder));
  std::filesystem::path const out =
      options.out.empty() ? folder / "report.html" : std::filesystem::path(options.out);
  Results const results{CampaignFolder(folder)};
  CampaignReport const found = report_of(results);
  std::filesystem::path const page_folder = out.has_parent_path() ? out.parent_path() : ".";
  std::string const cells =
      std::filesystem::proximate(folder / "cells", page_folder).generic_string();
  std::string const page = report_html(found, cells);
  if (!options.json.empty()) write_text_atomically(options.json, report_json(found));
  write_text_atomically(out, page);
  fmt::print("{}\n{} is written; figures are {}\n", summary_text(found), out.string(),
             results.cell_count() == 0 ? "missing: no cell was run" : results.figures());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand(
      "report", "A campaign's figures and tables beside the paper's, as one page");
  auto const options = std::make_shared<ReportOptions>();
  command->add_option("DIR", options->folder, "folder of the campaign")->required();
  command->add_option("--out", options->out, "the page (default: report.html in DIR)");
  command->add_option("--json", options->json, "every number of it as JSON");
  command->footer("example:\n  hybridstate campaign run all --out out\n  hybridstate report out");
  command->callback([options, &action] { action = [options] { return report(*options); }; });
}

}  // namespace hybridstate::runtime
