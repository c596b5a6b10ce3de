// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "executor/forward_pass.hpp"
#include "scheduler/run.hpp"

namespace hybridstate::runtime {

/// "fp32", "bf16-per-token" or "bf16-at-grid"; UsageError otherwise.
Carry parse_carry(const std::string& text);

/// "fp32" or "bf16"; UsageError otherwise.
LinearInput parse_linear_input(const std::string& text);
inline constexpr const char* linear_input_help =
    "what linear layers with BF16 weights round their inputs to: bf16 or fp32 (no rounding)";

/// "cpu", "cuda" or "interpreted"; UsageError otherwise, naming what `beside` adds to these.
Compute parse_compute(const std::string& text, const char* beside = "");

/// "exact" or, with the executor "cuda", "cublaslt"; UsageError otherwise.
LinearForm parse_linear(const std::string& text, std::string_view executor);

/// parse_arm with the option's name in the sentence.
Arm arm_option(const char* option, const std::string& name);

}  // namespace hybridstate::runtime
