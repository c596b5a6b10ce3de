// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/plan.hpp"

#include <fmt/format.h>

#include <string_view>

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

std::string collect_call(const CampaignPlan& plan) {
  return "hybridstate campaign collect " + shell_quote(plan.folder);
}

}  // namespace

std::string shell_quote(const std::string& text) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:,+=";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char const c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + '\'';
}

std::string slurm_text(const CampaignPlan& plan) {
  std::size_t const count[2] = {plan.stages[0].size(), plan.stages[1].size()};
  std::string text = fmt::format(
      "#!/bin/bash\n"
      "# {} cells, one array task each. Submit from the folder that the paths start in: bash "
      "this.\n"
      "# A cluster takes at most MaxArraySize tasks an array; plan fewer questions at a time if\n"
      "# that is less.\n"
      "set -euo pipefail\n",
      count[0] + count[1]);
  for (int s = 0; s < 2; ++s) {
    text += fmt::format("stage{}=(\n", s + 1);
    for (PlannedCell const& cell : plan.stages[s]) text += "  " + cell_id(cell.cell) + '\n';
    text += ")\n";
  }
  text += fmt::format(
      "case \"${{1:-submit}}\" in\n"
      "  1) exec {0} --cell \"${{stage1[$SLURM_ARRAY_TASK_ID]}}\" ;;\n"
      "  2) exec {0} --cell \"${{stage2[$SLURM_ARRAY_TASK_ID]}}\" ;;\n"
      "  choose) exec {0} --stage 1 ;;  # what failed again, then the choices\n"
      "  rest) {0}; exec {1} ;;         # what the choices added, then the merged files\n"
      "esac\n"
      "{0} --declare-only\n",
      plan.run, collect_call(plan));
  std::string last;
  auto const submit = [&](const std::string& variable, const std::string& options,
                          const std::string& argument) {
    text += fmt::format("{}=$(sbatch --parsable{}{} \"$0\" {})\n", variable,
                        last.empty() ? "" : fmt::format(" --dependency=afterany:\"${}\"", last),
                        options, argument);
    last = variable;
  };
  if (count[0] > 0) submit("first", fmt::format(" --array=0-{}", count[0] - 1), "1");
  if (count[1] > 0) {
    submit("choice", "", "choose");
    submit("second", fmt::format(" --array=0-{}", count[1] - 1), "2");
  }
  submit("rest", "", "rest");
  return text;
}

std::string parallel_text(const CampaignPlan& plan) {
  std::string text = fmt::format(
      "#!/bin/bash\n# {} cells for GNU parallel; add -j or --sshlogin to the two calls.\n"
      "set -euo pipefail\n{} --declare-only\n",
      plan.stages[0].size() + plan.stages[1].size(), plan.run);
  for (int s = 0; s < 2; ++s) {
    if (plan.stages[s].empty()) continue;
    text += "parallel <<'CELLS'\n";
    for (PlannedCell const& cell : plan.stages[s])
      text += fmt::format("{} --cell {}\n", plan.run, cell_id(cell.cell));
    text += "CELLS\n";
    if (s == 0 && !plan.stages[1].empty()) text += plan.run + " --stage 1\n";
  }
  return text + plan.run + '\n' + collect_call(plan) + '\n';
}

std::string plan_json_text(const CampaignPlan& plan) {
  Json j = {{"schema", 1}, {"declare", plan.run + " --declare-only"}};
  for (int s = 0; s < 2; ++s) {
    Json stage = {{"stage", s + 1}, {"cells", Json::array()}};
    for (PlannedCell const& planned : plan.stages[s]) {
      std::string const id = cell_id(planned.cell);
      Json settings;
      for (auto const& [name, value] : settings_of(planned.cell)) settings[name] = value;
      stage["cells"].push_back({{"id", id},
                                {"file", "cells/" + cell_stem(planned.cell) + ".json"},
                                {"command", fmt::format("{} --cell {}", plan.run, id)},
                                {"settings", std::move(settings)}});
    }
    // What has to have run before the next stage may begin.
    stage["then"] = s == 0 ? plan.run + " --stage 1" : plan.run;
    j["stages"].push_back(std::move(stage));
  }
  j["collect"] = collect_call(plan);
  return j.dump(1) + '\n';
}

}  // namespace hybridstate::runtime
