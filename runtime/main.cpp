// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"

int main(int argc, char** argv) { return hybridstate::runtime::run_command_line(argc, argv); }
