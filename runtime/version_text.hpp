// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <hybridstate/version.hpp>
#include <string>

namespace hybridstate::runtime {

/// "major.minor.patch".
inline std::string version_text() {
  return fmt::format("{}.{}.{}", HYBRIDSTATE_VERSION_MAJOR, HYBRIDSTATE_VERSION_MINOR,
                     HYBRIDSTATE_VERSION_PATCH);
}

}  // namespace hybridstate::runtime
