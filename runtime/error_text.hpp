// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <system_error>

namespace hybridstate::runtime {

/// What the system says about an errno, e.g. "No such file or directory".
inline std::string error_text(int number) { return std::generic_category().message(number); }

}  // namespace hybridstate::runtime
