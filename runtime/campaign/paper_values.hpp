// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

namespace hybridstate::runtime {

/// A figure that the paper prints for an arm of an experiment: a mean over its seeds, or with a
/// baseline the mean of the seedwise effects in percent.
struct PaperValue {
  const char* experiment;  ///< as in the declarations
  const char* point;
  const char* arm;
  const char* baseline;  ///< empty: absolute
  const char* metric;  ///< a name of run_fields() in its unit, or one of timebases / state_history
  double value;
  const char* source;
};

/// What the paper prints for a declared test. Percent, or percentage points for a difference of two
/// relative effects.
struct PaperTest {
  const char* family;
  const char* test;
  double effect;
  std::optional<double> low, high;  ///< of the printed interval
  std::optional<double> p;          ///< adjusted as the family says
  const char* source;
};

std::span<const PaperValue> paper_values();
std::span<const PaperTest> paper_tests();

}  // namespace hybridstate::runtime
