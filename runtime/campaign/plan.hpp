// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "campaign/folder.hpp"

namespace hybridstate::runtime {

/// The text as one word of a shell.
std::string shell_quote(const std::string& text);

/// A campaign for another scheduler: every cell is one call, and the cells of stage 2 wait until
/// the choices of stage 1 are written.
struct CampaignPlan {
  std::string folder;
  std::string run;  ///< the call that all jobs begin with: "hybridstate campaign run Q6 --out out"
  std::vector<PlannedCell> stages[2];
};

/// A script that submits itself with sbatch: one array per stage, one cell a task.
std::string slurm_text(const CampaignPlan& plan);
/// A script for GNU parallel: one line a cell.
std::string parallel_text(const CampaignPlan& plan);
std::string plan_json_text(const CampaignPlan& plan);

}  // namespace hybridstate::runtime
