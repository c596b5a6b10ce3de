// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace hybridstate::runtime {

/// A model's files cannot be read or written; what() is one sentence: which file, which field or
/// tensor, and what would be right. Exit code 2.
class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace hybridstate::runtime
