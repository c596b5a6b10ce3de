// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "executor/named.hpp"
#include "model/dtype.hpp"

namespace hybridstate::runtime {

/// What the input of a linear layer is rounded to, once per element. Layers whose weights are not
/// BF16 take FP32 always.
enum class LinearInput : std::uint8_t { fp32, bf16 };
constexpr const char* linear_input_name(LinearInput input) noexcept {
  return input == LinearInput::fp32 ? "fp32" : "bf16";
}
/// Nothing for a name that linear_input_name() does not give.
constexpr std::optional<LinearInput> linear_input_named(std::string_view name) noexcept {
  return named(name, {LinearInput::fp32, LinearInput::bf16}, linear_input_name);
}

/// Of a layer with such weights, where the options say `input`.
constexpr LinearInput input_of(Dtype weights, LinearInput input) noexcept {
  return weights == Dtype::bf16 ? input : LinearInput::fp32;
}

}  // namespace hybridstate::runtime
