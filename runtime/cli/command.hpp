// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "options/usage_error.hpp"

namespace hybridstate::runtime {

/// What the parsed command line asked for; returns the exit code.
using Action = std::function<int()>;

// Each command adds itself to the application and, when chosen, sets `action`. One file each.
void add_compare(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_presets(CLI::App& app, Action& action);
void add_make_model(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_campaign(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);

/// The whole program. Bad input ends with one sentence on stderr and 2; a failure inside with 1.
int run_command_line(int argc, const char* const* argv);

}  // namespace hybridstate::runtime
