// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "stats/paired.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "math/deterministic.hpp"
#include "stats/student.hpp"

namespace hybridstate::runtime {

namespace {

constexpr std::size_t most_sign_flips = 40;
constexpr std::uint64_t bootstrap_stream = 0x626f6f74;  // "boot"

void check_count(const char* what, std::span<const double> values, std::size_t least) {
  if (values.size() < least)
    throw std::invalid_argument(
        fmt::format("{}: {} values; at least {} are needed", what, values.size(), least));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw std::invalid_argument(
          fmt::format("{}: value {} is {}; it must be a finite number", what, i, values[i]));
}

void check_positive(const char* what, std::span<const double> values) {
  check_count(what, values, 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(values[i] > 0))
      throw std::invalid_argument(
          fmt::format("{}: value {} is {}; it must be positive", what, i, values[i]));
}

void check_pairs(const char* what, std::span<const double> arm, std::span<const double> baseline) {
  if (arm.size() != baseline.size())
    throw std::invalid_argument(
        fmt::format("{}: {} values against {}; pairs need equal numbers of seeds", what, arm.size(),
                    baseline.size()));
  check_positive(what, arm);
  check_positive(what, baseline);
}

void check_level(double level) {
  if (!(level > 0) || !(level < 1))
    throw std::invalid_argument(
        fmt::format("An interval of level {} was asked for; it must lie between 0 and 1", level));
}

void check_p(const char* what, double p) {
  if (!(p >= 0) || !(p <= 1))
    throw std::invalid_argument(fmt::format("{}: p is {}; it must lie between 0 and 1", what, p));
}

/// The sums of all 2^n signed combinations, ascending.
std::vector<double> signed_sums(std::span<const double> values) {
  std::vector<double> sums{0};
  for (double v : values) {
    std::size_t const half = sums.size();
    sums.resize(2 * half);
    for (std::size_t i = 0; i < half; ++i) {
      sums[half + i] = sums[i] + v;
      sums[i] -= v;
    }
  }
  std::sort(sums.begin(), sums.end());
  return sums;
}

}  // namespace

double arithmetic_mean(std::span<const double> values) {
  check_count("Mean", values, 1);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_deviation(std::span<const double> values) {
  check_count("Standard deviation", values, 2);
  double const mean = arithmetic_mean(values);
  double sum = 0;
  for (double v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double geometric_mean(std::span<const double> values) {
  check_positive("Geometric mean", values);
  double sum = 0;
  for (double v : values) sum += portable_log(v);
  return portable_exp(sum / static_cast<double>(values.size()));
}

std::vector<double> relative_effects(std::span<const double> arm,
                                     std::span<const double> baseline) {
  check_pairs("Relative effects", arm, baseline);
  std::vector<double> effects(arm.size());
  for (std::size_t i = 0; i < arm.size(); ++i) effects[i] = 100 * (arm[i] / baseline[i] - 1);
  return effects;
}

std::vector<double> log_ratios(std::span<const double> arm, std::span<const double> baseline) {
  check_pairs("Log ratios", arm, baseline);
  std::vector<double> ratios(arm.size());
  for (std::size_t i = 0; i < arm.size(); ++i) ratios[i] = portable_log(arm[i] / baseline[i]);
  return ratios;
}

double percent_effect(double log_effect) { return 100 * (portable_exp(log_effect) - 1); }

double sign_flip_p(std::span<const double> differences) {
  check_count("Sign-flip test", differences, 1);
  if (differences.size() > most_sign_flips)
    throw std::invalid_argument(
        fmt::format("Sign-flip test: {} values; all assignments of at most {} can be counted",
                    differences.size(), most_sign_flips));
  double observed = 0;
  double size = 0;
  for (double d : differences) {
    observed += d;
    size += std::abs(d);
  }
  // Sums that are equal as numbers differ in their last bits by the order of addition.
  double const least = std::abs(observed) - 1e-12 * size;
  // Halves: a + b <= -least or a + b >= least, counted by two pointers into the sorted sums.
  std::size_t const half = differences.size() / 2;
  std::vector<double> const a = signed_sums(differences.first(half));
  std::vector<double> const b = signed_sums(differences.subspan(half));
  std::uint64_t count = 0;
  if (least <= 0) return 1;
  std::size_t below = b.size();  // of b: those with a + b <= -least
  std::size_t above = b.size();  // of b: the first with a + b >= least
  for (double x : a) {
    while (below > 0 && x + b[below - 1] > -least) --below;
    while (above > 0 && x + b[above - 1] >= least) --above;
    count += below + (b.size() - above);
  }
  return std::ldexp(static_cast<double>(count), -static_cast<int>(differences.size()));
}

double two_look_p(double first, double second) {
  check_p("Two-look rule", first);
  check_p("Two-look rule", second);
  return std::min(1.0, 2 * std::min(first, second));
}

std::vector<double> holm(std::span<const double> p) {
  for (double each : p) check_p("Holm", each);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return p[x] != p[y] ? p[x] < p[y] : x < y; });
  std::vector<double> adjusted(p.size());
  double most = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    most = std::max(most, static_cast<double>(p.size() - rank) * p[order[rank]]);
    adjusted[order[rank]] = std::min(1.0, most);
  }
  return adjusted;
}

TestFamily::TestFamily(std::string name, std::vector<std::string> tests)
    : name_(std::move(name)), tests_(std::move(tests)) {
  if (tests_.empty())
    throw std::invalid_argument(fmt::format("Family \"{}\" declares no test", name_));
  std::vector<std::string> sorted = tests_;
  std::sort(sorted.begin(), sorted.end());
  auto const twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    throw std::invalid_argument(
        fmt::format(R"(Family "{}" declares the test "{}" twice)", name_, *twice));
}

void TestFamily::set(const std::string& test, double p) {
  check_p(test.c_str(), p);
  if (std::find(tests_.begin(), tests_.end(), test) == tests_.end())
    throw std::invalid_argument(
        fmt::format(R"(Family "{}" does not declare the test "{}")", name_, test));
  if (!p_.emplace(test, p).second)
    throw std::invalid_argument(
        fmt::format(R"(Family "{}": the test "{}" has its p already)", name_, test));
}

std::map<std::string, double> TestFamily::adjusted() const {
  std::vector<double> p;
  for (std::string const& test : tests_) {
    auto const found = p_.find(test);
    if (found == p_.end())
      throw std::invalid_argument(
          fmt::format(R"(Family "{}": the declared test "{}" has no p yet)", name_, test));
    p.push_back(found->second);
  }
  std::vector<double> const values = holm(p);
  std::map<std::string, double> by_name;
  for (std::size_t i = 0; i < tests_.size(); ++i) by_name[tests_[i]] = values[i];
  return by_name;
}

Interval t_interval(std::span<const double> values, double level) {
  check_level(level);
  check_count("t interval", values, 2);
  auto const n = static_cast<double>(values.size());
  double const mean = arithmetic_mean(values);
  double const half =
      student_quantile((1 + level) / 2, n - 1) * sample_deviation(values) / std::sqrt(n);
  return {mean, mean - half, mean + half};
}

Interval percent_t_interval(std::span<const double> log_effects, double level) {
  Interval const z = t_interval(log_effects, level);
  return {percent_effect(z.effect), percent_effect(z.low), percent_effect(z.high)};
}

Interval bootstrap_interval(std::span<const double> values, const BootstrapOptions& options) {
  check_level(options.level);
  check_count("Bootstrap", values, 1);
  if (options.resamples == 0)
    throw std::invalid_argument("Bootstrap: at least 1 resample is needed");
  BitGenerator bits(options.seed, bootstrap_stream);
  std::vector<double> means(options.resamples);
  for (double& mean : means) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[bits.below(values.size())];
    mean = sum / static_cast<double>(values.size());
  }
  std::sort(means.begin(), means.end());
  auto const quantile = [&](double q) {
    double const at = q * static_cast<double>(means.size() - 1);
    auto const below = static_cast<std::size_t>(at);
    std::size_t const above = std::min(below + 1, means.size() - 1);
    return means[below] + (at - static_cast<double>(below)) * (means[above] - means[below]);
  };
  return {arithmetic_mean(values), quantile((1 - options.level) / 2),
          quantile((1 + options.level) / 2)};
}

Containment containment(std::span<const double> arm, std::span<const double> baseline,
                        double margin, double level) {
  if (!(margin > 0))
    throw std::invalid_argument(fmt::format("Containment: margin {} must be positive", margin));
  std::vector<double> points = log_ratios(arm, baseline);
  for (double& p : points) p *= 100;
  Interval const interval = t_interval(points, level);
  return {interval, interval.low >= -margin && interval.high <= margin};
}

RetentionEffects retention_interaction(const RetentionRuns& runs, double level) {
  std::vector<double> const share = log_ratios(runs.share_retention, runs.share_base);
  std::vector<double> const isolate = log_ratios(runs.isolate_retention, runs.isolate_base);
  if (share.size() != isolate.size())
    throw std::invalid_argument(
        fmt::format("Interaction: {} seeds under SHARE against {} under ISOLATE; they must be the "
                    "same seeds",
                    share.size(), isolate.size()));
  std::vector<double> difference(share.size());
  for (std::size_t i = 0; i < share.size(); ++i) difference[i] = share[i] - isolate[i];
  return {percent_t_interval(share, level), percent_t_interval(isolate, level),
          percent_t_interval(difference, level)};
}

}  // namespace hybridstate::runtime
