// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "cli/model_options.hpp"

#include <fmt/format.h>

#include "cli/command.hpp"

namespace hybridstate::runtime {

cpu::Carry parse_carry(const std::string& text) {
  if (text == "fp32") return cpu::Carry::fp32;
  if (text == "bf16-per-token") return cpu::Carry::bf16_per_token;
  if (text == "bf16-at-grid") return cpu::Carry::bf16_at_grid;
  throw UsageError(fmt::format("--carry {}: use fp32, bf16-per-token or bf16-at-grid", text));
}

Arm arm_option(const char* option, const std::string& name) {
  try {
    return parse_arm(name);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace hybridstate::runtime
