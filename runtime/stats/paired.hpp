// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Statistics of paired runs: entry s of two spans is the same seed under two arms. All functions
// throw std::invalid_argument with one sentence when their input has no such statistic, and give
// equal bits on every machine.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace hybridstate::runtime {

double arithmetic_mean(std::span<const double> values);
/// With n - 1 below the square root; needs two values.
double sample_deviation(std::span<const double> values);
/// exp of the mean logarithm (G1); all values must be positive.
double geometric_mean(std::span<const double> values);

/// 100 (arm / baseline - 1) of each seed, in percent.
std::vector<double> relative_effects(std::span<const double> arm, std::span<const double> baseline);
/// ln(arm / baseline) of each seed (G2).
std::vector<double> log_ratios(std::span<const double> arm, std::span<const double> baseline);

/// A log effect in percent: 100 (exp(z) - 1).
double percent_effect(double log_effect);

/// Exact two-sided sign-flip test that paired differences are symmetric around 0: the part of all
/// 2^n sign assignments whose sum is at least as far from 0 as the observed one. Differences that
/// agree up to rounding count as equal. 1 to 40 values.
double sign_flip_p(std::span<const double> differences);

/// A test after a first and a second look at the data: min(1, 2 min(first, second)).
double two_look_p(double first, double second);

/// Holm's step-down adjustment over one family, in the order of the input.
std::vector<double> holm(std::span<const double> p);

/// A family of tests that is fixed before any result is known: Holm is only computed over all of
/// it.
class TestFamily {
 public:
  /// Names must differ and there must be at least one.
  TestFamily(std::string name, std::vector<std::string> tests);

  const std::string& name() const noexcept { return name_; }
  const std::vector<std::string>& tests() const noexcept { return tests_; }
  /// Each declared test once, p in [0, 1].
  void set(const std::string& test, double p);
  /// Adjusted p by name; every declared test needs its p.
  std::map<std::string, double> adjusted() const;

 private:
  std::string name_;
  std::vector<std::string> tests_;
  std::map<std::string, double> p_;
};

/// An effect with its two-sided interval.
struct Interval {
  double effect = 0;
  double low = 0;
  double high = 0;
};

/// Paired t interval of the mean at `level`, in the units of the values: mean -/+ t s / sqrt(n).
Interval t_interval(std::span<const double> values, double level = 0.95);
/// The same of log effects, then in percent: 100 (exp(z) - 1) of mean and ends (G3, G4).
Interval percent_t_interval(std::span<const double> log_effects, double level = 0.95);

/// Percentile bootstrap of the mean: seeds are drawn with replacement `resamples` times; the ends
/// are the (1 -/+ level) / 2 quantiles of the resampled means, interpolated linearly between order
/// statistics. The draws come from xoshiro256** under `seed`, a stream of their own.
struct BootstrapOptions {
  double level = 0.95;
  std::uint32_t resamples = 10'000;
  std::uint64_t seed = 0;
};
Interval bootstrap_interval(std::span<const double> values, const BootstrapOptions& options = {});

/// Whether a difference of arms is contained in a margin: the two-sided 90 % paired t interval of
/// 100 ln(arm / baseline) lies inside [-margin, +margin] (Table C-3). Containment is not equality.
struct Containment {
  Interval log_points;  ///< 100 ln(arm / baseline)
  bool contained = false;
};
Containment containment(std::span<const double> arm, std::span<const double> baseline,
                        double margin = 3, double level = 0.90);

/// Throughput of every seed under two policies and two modes of sharing.
struct RetentionRuns {
  std::vector<double> share_base, share_retention;
  std::vector<double> isolate_base, isolate_retention;
};
/// Effects of retention inside each mode and K_ret = SHARE less ISOLATE, formed of each seed's log
/// effects before anything becomes a percentage (G1-G4). Percent.
struct RetentionEffects {
  Interval share;
  Interval isolate;
  Interval interaction;
};
RetentionEffects retention_interaction(const RetentionRuns& runs, double level = 0.95);

}  // namespace hybridstate::runtime
