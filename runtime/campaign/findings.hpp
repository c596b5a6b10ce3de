// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "campaign/paper_values.hpp"
#include "campaign/results.hpp"

namespace hybridstate::runtime {

/// How the values of the seeds become one.
enum class Form : std::uint8_t {
  level,        ///< arithmetic mean of the arm; no baseline
  geometric,    ///< geometric mean of the arm (G1)
  relative,     ///< mean of 100 (arm / baseline - 1)
  share,        ///< mean of 100 arm / baseline
  difference,   ///< mean of arm - baseline
  log_points,   ///< mean of 100 ln(arm / baseline)
  log_percent,  ///< 100 (exp(mean ln(arm / baseline)) - 1) (G3)
};

/// A figure that cells are read for.
struct Quantity {
  Form form = Form::relative;
  Metric metric = Metric::throughput;
  Contrast contrast;                       ///< empty baseline: a level
  std::optional<Contrast> less = {};       ///< subtracted seed by seed
  std::optional<std::uint64_t> seed = {};  ///< of this seed alone

  bool effect() const {
    return form != Form::level && form != Form::geometric && form != Form::share;
  }
  /// "%", "points" or the metric's title.
  std::string unit() const;
  /// "S1 / S0, b63" or the like.
  std::string text() const;

  friend bool operator==(const Quantity&, const Quantity&) = default;
};
Quantity level(Metric metric, const std::string& experiment, const std::string& point,
               const std::string& arm);
Quantity effect(Form form, Metric metric, const std::string& experiment, const std::string& point,
                const std::string& arm, const std::string& baseline);

struct SeedFinding {
  std::uint64_t seed = 0;
  double value = 0;                      ///< in the unit of the quantity
  std::vector<const CellValues*> cells;  ///< arm, baseline, and those of what is subtracted
};

/// A quantity over the seeds whose cells are all there.
struct Finding {
  std::vector<SeedFinding> seeds;
  std::size_t declared = 0;  ///< seeds that all its arms declare
  std::optional<double> value;
  std::optional<double> low, high;
  IntervalKind interval = IntervalKind::range;

  bool complete() const { return declared > 0 && seeds.size() == declared; }
  std::size_t positive() const;
  std::size_t negative() const;
  /// "simulated" or "measured"; empty without cells.
  std::string figures() const;
};
Finding find(const Results& results, const Quantity& quantity,
             IntervalKind interval = IntervalKind::range);

/// A declared test, decided by its family's rule. p, adjusted and decision are there only when all
/// declared seeds of all tests of the family are, since the family is decided together.
struct TestFinding {
  const Family* family = nullptr;
  const Test* test = nullptr;
  Quantity quantity;
  Quantity shown;  ///< with the chosen headroom in place of "f=selected"
  Finding finding;
  std::optional<double> p;         ///< after the two looks, where they are declared
  std::optional<double> adjusted;  ///< Holm over the family
  std::string decision;
  const PaperTest* paper = nullptr;
};
std::vector<TestFinding> decide(const Results& results, const Family& family);

/// An aim against what was found.
struct AimFinding {
  const Aim* aim = nullptr;
  Quantity quantity;            ///< at the place that is worst so far
  Finding finding;              ///< there
  std::size_t places = 0;       ///< with a value
  std::optional<bool> reached;  ///< once all places have one
};
AimFinding judge(const Results& results, const Aim& aim);

/// Whether the signs of two effects agree.
bool same_sign(double ours, double papers);

}  // namespace hybridstate::runtime
