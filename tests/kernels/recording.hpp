// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <hybridstate/kernels/shell/recorder.hpp>
#include <string>

/// A recording without violations whose predicted traffic is at most 1.02 times the least.
inline void check_traffic(const std::string& kernel,
                          const hybridstate::kernels::Recording& recording, std::uint64_t least) {
  for (std::string const& violation : recording.violations) FAIL_CHECK(violation);
  double const ratio =
      static_cast<double>(recording.total().memory_bytes()) / static_cast<double>(least);
  MESSAGE(kernel << ": predicted / least bytes " << ratio);
  CHECK(ratio >= 1);
  CHECK(ratio <= 1.02);
}
