// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "options/model_options.hpp"

#include <fmt/format.h>

#include "options/usage_error.hpp"

namespace hybridstate::runtime {

Carry parse_carry(const std::string& text) {
  if (auto const carry = carry_named(text)) return *carry;
  throw UsageError(fmt::format("--carry {}: use fp32, bf16-per-token or bf16-at-grid", text));
}

LinearInput parse_linear_input(const std::string& text) {
  if (auto const input = linear_input_named(text)) return *input;
  throw UsageError(fmt::format("--linear-input {}: use bf16 or fp32", text));
}

Compute parse_compute(const std::string& text, const char* beside) {
  if (auto const compute = compute_named(text)) return *compute;
  throw UsageError(fmt::format("--executor {}: use {}cpu, cuda or interpreted", text, beside));
}

LinearForm parse_linear(const std::string& text, std::string_view executor) {
  auto const form = linear_form_named(text);
  if (!form) throw UsageError(fmt::format("--linear {}: use exact or cublaslt", text));
  if (*form == LinearForm::cublaslt && executor != compute_name(Compute::cuda))
    throw UsageError("--linear cublaslt: cuBLASLt runs on a GPU; add --executor cuda");
  return *form;
}

Arm arm_option(const char* option, const std::string& name) {
  try {
    return parse_arm(name);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace hybridstate::runtime
