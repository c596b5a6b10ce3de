// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "executor/named.hpp"

namespace hybridstate::runtime {

inline constexpr std::uint32_t grid_tokens = 256;  ///< where Carry::bf16_at_grid rounds

/// When the running SSM state is rounded to BF16. Outputs use the state before its rounding.
enum class Carry : std::uint8_t { fp32, bf16_per_token, bf16_at_grid };
constexpr const char* carry_name(Carry carry) noexcept {
  return carry == Carry::fp32             ? "fp32"
         : carry == Carry::bf16_per_token ? "bf16-per-token"
                                          : "bf16-at-grid";
}
/// Nothing for a name that carry_name() does not give.
constexpr std::optional<Carry> carry_named(std::string_view name) noexcept {
  return named(name, {Carry::fp32, Carry::bf16_per_token, Carry::bf16_at_grid}, carry_name);
}

}  // namespace hybridstate::runtime
