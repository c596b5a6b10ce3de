// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace hybridstate::runtime {

/// Bad input from the user: what() is one sentence (what, where, what would be right); exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace hybridstate::runtime
