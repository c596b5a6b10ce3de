// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace hybridstate::runtime {

/// A device that cannot be used or described; what() is one sentence for the user.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace hybridstate::runtime
