// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hybridstate::runtime {

/// 1234567 as "1,234,567", exact for every number.
std::string grouped_count(std::uint64_t number);

/// Rows of cells as aligned text with a rule under the first row: the first column to the left, the
/// others to the right. Lines start with `indent` spaces, end without spaces and with '\n'.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows,
                          std::size_t indent = 2);

}  // namespace hybridstate::runtime
