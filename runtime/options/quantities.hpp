// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/core/types.hpp>
#include <string>

#include "report/goodput.hpp"

namespace hybridstate::runtime {

/// "40GiB", "15.2GB", "512MiB", "1000" (bytes). Throws UsageError naming `option`.
Bytes parse_bytes(const std::string& option, const std::string& text);

/// "b63" -> 63; 0 when the text is not of that form.
Units parse_nominal(const std::string& text);

/// "ttft:2s,tpot:80ms,e2e:30s" (any of the three), "observed" (the 99th percentile) or
/// "observed:p95". Throws UsageError.
GoodputRule parse_goodput(const std::string& option);

}  // namespace hybridstate::runtime
