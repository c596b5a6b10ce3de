// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

/// HYBRIDSTATE_TEST_SCALE: the part of their full size that long tests run at, for sanitizers; 1
/// without it.
inline double test_scale() {
  char const* const text = std::getenv("HYBRIDSTATE_TEST_SCALE");
  double const scale = text == nullptr ? 1.0 : std::strtod(text, nullptr);
  return scale > 0 ? scale : 1.0;
}
