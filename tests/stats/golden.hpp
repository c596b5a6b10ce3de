// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace stats_test {

/// What tests/golden/make_statistics.py wrote.
inline const nlohmann::json& golden() {
  static const nlohmann::json values = [] {
    std::ifstream in(std::string(HYBRIDSTATE_TEST_DIR) + "/golden/data/statistics.json");
    REQUIRE(in.good());
    return nlohmann::json::parse(in);
  }();
  return values;
}

}  // namespace stats_test
