// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "report/file.hpp"
#include "report/page.hpp"
#include "report/result.hpp"

namespace hybridstate::runtime {

/// One self-contained page: settings, the comparison table, throughput and hit rate with their
/// spread over seeds, latency distributions, depths, and the occupancy of every row's first seed.
/// It loads nothing, follows the reader's light or dark setting, and says "simulated" on every
/// figure whose times come from a model. Long timelines are drawn as time-weighted bucket means.
std::string render_html(const Comparison& comparison);

void write_html(const std::filesystem::path& path, const Comparison& comparison);

}  // namespace hybridstate::runtime
