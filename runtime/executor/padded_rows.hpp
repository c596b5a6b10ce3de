// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace hybridstate::runtime {

/// Rows of a decode step of so many sequences: a power of two up to 8, then a multiple of 8, at
/// most `most`. So few recordings (device/device.hpp) serve all steps.
constexpr std::uint32_t padded_rows(std::uint32_t sequences, std::uint32_t most) noexcept {
  std::uint32_t const rows = sequences <= 8 ? std::bit_ceil(sequences) : (sequences + 7) / 8 * 8;
  return std::min(rows, most);
}

}  // namespace hybridstate::runtime
