// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/core/types.hpp>
#include <string>

namespace hybridstate::runtime {

/// "40GiB", "15.2GB", "512MiB", "1000" (bytes). Throws UsageError naming `option`.
Bytes parse_bytes(const std::string& option, const std::string& text);

/// "b63" -> 63; 0 when the text is not of that form.
Units parse_nominal(const std::string& text);

}  // namespace hybridstate::runtime
