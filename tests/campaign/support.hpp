// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "campaign/declaration.hpp"
#include "cli/process.hpp"

namespace campaign_test {

/// As a run of all questions with the policies of the simulator declares it.
inline const hybridstate::runtime::Catalogue& catalogue() {
  static hybridstate::runtime::Catalogue const all = [] {
    hybridstate::runtime::CampaignSettings settings;
    settings.mooncake = "0123456789abcdef";
    settings.policies = {"paper", "path-safe"};
    return hybridstate::runtime::declare(settings);
  }();
  return all;
}

/// Different cells of experiments.
inline std::size_t distinct(const std::vector<std::string>& experiments) {
  std::set<std::string> ids;
  for (std::string const& id : experiments)
    for (auto const& entry : catalogue().experiment(id)->entries)
      ids.insert(hybridstate::runtime::cell_id(entry.cell));
  return ids.size();
}

/// The command ends with code 2 and one line that contains `words`.
inline void expect_refused(const std::string& command, const std::string& words) {
  cli_test::Outcome const outcome = cli_test::call(command);
  INFO(command, ": ", outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.find(words) != std::string::npos);
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
}

}  // namespace campaign_test
