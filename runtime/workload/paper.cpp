// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/paper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "math/deterministic.hpp"

namespace hybridstate::runtime {

namespace {

/// Random sequences of one seed, one per purpose. The numbers are part of the workload's
/// definition.
enum Purpose : std::uint64_t {
  purpose_arrivals = 1,
  purpose_share = 2,
  purpose_contexts = 3,
  purpose_private = 4,
  purpose_outputs = 5,
};

[[noreturn]] void fail(const std::string& sentence) {
  throw WorkloadError("paper workload: " + sentence);
}

void require_positive(double value, const char* name) {
  if (!(value > 0) || !std::isfinite(value))
    fail(fmt::format("{} is {} but must be a positive number", name, value));
}

void require_probability(double value, const char* name) {
  if (!(value >= 0 && value <= 1))
    fail(fmt::format("{} is {} but must lie in [0, 1]", name, value));
}

void require_mean(double mean, Tokens low, Tokens high, const char* name) {
  if (low < 1 || low >= high || high > max_trace_length) {
    fail(
        fmt::format("{} lengths are clipped to [{}, {}], which must be at least 1, ascending and "
                    "below 2^31",
                    name, low, high));
  }
  if (!(mean > low && mean < high)) {
    fail(fmt::format("the mean {} length {} must lie strictly between the clip limits {} and {}",
                     name, mean, low, high));
  }
}

void check(const PaperWorkloadOptions& o) {
  if (o.requests < 1 || o.requests > 100'000'000)
    fail(fmt::format("requests is {} but must be between 1 and 100000000", o.requests));
  bool const needs_rate = o.arrivals == ArrivalProcess::poisson ||
                          o.arrivals == ArrivalProcess::gamma ||
                          o.arrivals == ArrivalProcess::on_off;
  if (needs_rate) require_positive(o.rate, "the request rate");
  require_probability(o.share, "the share of requests with a shared context");
  require_probability(o.repeat_probability, "the repeat probability");
  if (o.contexts < 1 || o.contexts > 1'000'000)
    fail(fmt::format("contexts is {} but must be between 1 and 1000000", o.contexts));
  if (o.context_tokens > 1U << 30)
    fail(fmt::format("contexts of {} tokens are too long (at most 2^30)", o.context_tokens));
  if (!(o.zipf_exponent >= 0 && o.zipf_exponent <= 50))
    fail(fmt::format("the Zipf exponent is {} but must lie in [0, 50]", o.zipf_exponent));
  require_positive(o.private_sigma, "the private sigma");
  if (!(o.private_truncation >= 0.01 && o.private_truncation <= 40))
    fail(fmt::format("the truncation {} of z must lie in [0.01, 40]", o.private_truncation));
  if (o.private_sigma * o.private_truncation > 100)
    fail("the private sigma times the truncation of z must not exceed 100");
  require_mean(o.private_mean, o.private_min, o.private_max, "private");
  if (!(o.output_shape >= 0.05 && o.output_shape <= 10000))
    fail(fmt::format("the output shape is {} but must lie in [0.05, 10000]", o.output_shape));
  require_mean(o.output_mean, o.output_min, o.output_max, "output");
  if (std::uint64_t{o.context_tokens} + o.private_max > max_trace_length)
    fail("context and private part together must stay below 2^31 tokens");
  if (o.arrivals == ArrivalProcess::gamma && !(o.burstiness >= 0.01 && o.burstiness <= 10000))
    fail(fmt::format("the burstiness is {} but must lie in [0.01, 10000]", o.burstiness));
  if (o.arrivals == ArrivalProcess::on_off) {
    require_positive(o.on_seconds, "the length of a burst");
    if (!(o.off_seconds >= 0) || !std::isfinite(o.off_seconds))
      fail(fmt::format("the pause between bursts is {} s but must not be negative", o.off_seconds));
  }
  if (o.arrivals == ArrivalProcess::fixed) {
    if (o.arrival_seconds.size() < o.requests) {
      fail(fmt::format("{} arrival times were given for {} requests", o.arrival_seconds.size(),
                       o.requests));
    }
    double before = 0;
    for (double const t : o.arrival_seconds) {
      if (!(t >= before))
        fail(fmt::format("arrival times must ascend from 0, but {} s follows {} s", t, before));
      before = t;
    }
  }
}

std::int64_t to_ns(double seconds) {
  double const ns = seconds * 1e9 + 0.5;
  if (!(ns < 0x1p62))
    fail(fmt::format("a request would arrive after {} s, beyond the clock's range", seconds));
  return static_cast<std::int64_t>(ns);
}

std::vector<std::int64_t> draw_arrivals(const PaperWorkloadOptions& o) {
  std::vector<std::int64_t> result(o.requests, 0);
  BitGenerator bits(o.seed, purpose_arrivals);
  double t = 0;
  for (std::uint32_t i = 0; i < o.requests; ++i) {
    switch (o.arrivals) {
      case ArrivalProcess::poisson:
        t += bits.exponential() / o.rate;
        result[i] = to_ns(t);
        break;
      case ArrivalProcess::gamma:
        t += bits.gamma(o.burstiness) / (o.burstiness * o.rate);
        result[i] = to_ns(t);
        break;
      case ArrivalProcess::on_off: {
        // A Poisson process on the clock of the on-periods alone, at the rate that keeps the mean.
        double const period = o.on_seconds + o.off_seconds;
        t += bits.exponential() / o.rate * (o.on_seconds / period);
        double const bursts = std::floor(t / o.on_seconds);
        result[i] = to_ns(t + bursts * o.off_seconds);
        break;
      }
      case ArrivalProcess::all_at_once:
        break;
      case ArrivalProcess::fixed:
        result[i] = to_ns(o.arrival_seconds[i]);
        break;
    }
  }
  return result;
}

/// Whole lengths from unscaled draws: scaled, clipped, rounded to the nearest.
std::vector<Tokens> round_lengths(std::span<const double> draws, double scale, Tokens low,
                                  Tokens high) {
  std::vector<Tokens> result;
  result.reserve(draws.size());
  for (double const x : draws) {
    double const scaled =
        std::clamp(scale * x, static_cast<double>(low), static_cast<double>(high));
    result.push_back(static_cast<Tokens>(scaled + 0.5));
  }
  return result;
}

/// Whole lengths whose sum is the wanted mean times their number, rounded: the scale is fitted to
/// these draws, then the largest fractions are rounded up.
std::vector<Tokens> exact_lengths(std::span<const double> draws, double mean, Tokens low,
                                  Tokens high) {
  ClippedRange const range{static_cast<double>(low), static_cast<double>(high)};
  double const scale = sample_scale_for_mean(mean, draws, range);
  std::vector<Tokens> result;
  std::vector<double> fraction;
  std::uint64_t sum = 0;
  for (double const x : draws) {
    double const scaled = std::clamp(scale * x, range.low, range.high);
    result.push_back(static_cast<Tokens>(scaled));
    fraction.push_back(scaled - static_cast<double>(result.back()));
    sum += result.back();
  }
  auto const wanted = static_cast<std::uint64_t>(mean * static_cast<double>(draws.size()) + 0.5);
  std::vector<std::size_t> order(draws.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return fraction[a] > fraction[b]; });
  for (std::size_t i = 0; i < order.size() && sum < wanted; ++i) {
    if (result[order[i]] >= high) continue;
    ++result[order[i]];
    ++sum;
  }
  return result;
}

std::vector<Tokens> draw_private_lengths(const PaperWorkloadOptions& o) {
  BitGenerator bits(o.seed, purpose_private);
  std::vector<double> draws(o.requests);
  for (double& x : draws)
    x = portable_exp(o.private_sigma * bits.truncated_normal(o.private_truncation));
  if (o.variance_reduction)
    return exact_lengths(draws, o.private_mean, o.private_min, o.private_max);
  ClippedRange const range{static_cast<double>(o.private_min), static_cast<double>(o.private_max)};
  double const scale =
      lognormal_scale_for_mean(o.private_mean, o.private_sigma, o.private_truncation, range);
  return round_lengths(draws, scale, o.private_min, o.private_max);
}

std::vector<Tokens> draw_output_lengths(const PaperWorkloadOptions& o) {
  BitGenerator bits(o.seed, purpose_outputs);
  std::vector<double> draws(o.requests);
  for (double& x : draws) x = bits.gamma(o.output_shape);
  if (o.variance_reduction) return exact_lengths(draws, o.output_mean, o.output_min, o.output_max);
  ClippedRange const range{static_cast<double>(o.output_min), static_cast<double>(o.output_max)};
  double const scale = gamma_scale_for_mean(o.output_mean, o.output_shape, range);
  return round_lengths(draws, scale, o.output_min, o.output_max);
}

/// Stream names of one seed: a bijection of (kind, index), so that no two of them are equal.
std::uint64_t stream_name(std::uint64_t seed, std::uint64_t kind, std::uint64_t index) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15ULL) + ((kind << 60) | index));
}

}  // namespace

void apply(LengthPreset preset, PaperWorkloadOptions& options) {
  switch (preset) {
    case LengthPreset::original:
      options.private_mean = 260;
      options.output_mean = 243;
      return;
    case LengthPreset::extension:
      options.private_mean = 293;
      options.output_mean = 261.5;
      return;
    case LengthPreset::admission:
      options.private_mean = 285;
      options.output_mean = 255;
      return;
  }
}

const char* lengths_name(LengthPreset preset) {
  switch (preset) {
    case LengthPreset::original:
      return "original";
    case LengthPreset::extension:
      return "extension";
    case LengthPreset::admission:
      return "admission";
  }
  return "";
}

LengthPreset parse_length_preset(std::string_view name) {
  for (LengthPreset const p :
       {LengthPreset::original, LengthPreset::extension, LengthPreset::admission})
    if (name == lengths_name(p)) return p;
  throw WorkloadError(fmt::format(
      "the length preset \"{}\" is unknown; there are original, extension and admission",
      detail::shown(name)));
}

const char* arrivals_name(ArrivalProcess process) {
  switch (process) {
    case ArrivalProcess::poisson:
      return "poisson";
    case ArrivalProcess::gamma:
      return "gamma";
    case ArrivalProcess::on_off:
      return "on-off";
    case ArrivalProcess::all_at_once:
      return "all-at-once";
    case ArrivalProcess::fixed:
      return "fixed";
  }
  return "";
}

ArrivalProcess parse_arrival_process(std::string_view name) {
  for (ArrivalProcess const p :
       {ArrivalProcess::poisson, ArrivalProcess::gamma, ArrivalProcess::on_off,
        ArrivalProcess::all_at_once, ArrivalProcess::fixed}) {
    if (name == arrivals_name(p)) return p;
  }
  throw WorkloadError(
      fmt::format("the arrival process \"{}\" is unknown; there are poisson, gamma, "
                  "on-off, all-at-once and fixed",
                  detail::shown(name)));
}

std::string describe(const PaperWorkloadOptions& o, bool with_seed) {
  std::string text = fmt::format("{} requests, ", o.requests);
  switch (o.arrivals) {
    case ArrivalProcess::poisson:
      text += fmt::format("poisson {}/s", o.rate);
      break;
    case ArrivalProcess::gamma:
      text += fmt::format("gamma arrivals {}/s (burstiness {})", o.rate, o.burstiness);
      break;
    case ArrivalProcess::on_off:
      text += fmt::format("bursts {}/s ({} s on, {} s off)", o.rate, o.on_seconds, o.off_seconds);
      break;
    case ArrivalProcess::all_at_once:
      text += "all at time 0";
      break;
    case ArrivalProcess::fixed:
      text += "fixed arrival times";
      break;
  }
  text += fmt::format(
      ", share {}, {} contexts of {} tokens (zipf {}, repeat {}), private mean {} (sigma {}, |z| "
      "<= "
      "{}, {}..{}), output mean {} (gamma {}, {}..{})",
      o.share, o.contexts, o.context_tokens, o.zipf_exponent, o.repeat_probability, o.private_mean,
      o.private_sigma, o.private_truncation, o.private_min, o.private_max, o.output_mean,
      o.output_shape, o.output_min, o.output_max);
  if (o.variance_reduction) text += ", variance reduction";
  if (o.salts == Salting::isolated) text += ", isolated salts";
  if (with_seed) text += fmt::format(", seed {}", o.seed);
  return text;
}

Workload make_paper_workload(const PaperWorkloadOptions& o) {
  check(o);
  std::vector<std::int64_t> const arrivals = draw_arrivals(o);
  std::vector<Tokens> const privates = draw_private_lengths(o);
  std::vector<Tokens> const outputs = draw_output_lengths(o);
  BitGenerator share(o.seed, purpose_share);
  BitGenerator choice(o.seed, purpose_contexts);
  ZipfTable const popularity(o.contexts, o.zipf_exponent);

  Workload workload;
  workload.name = "paper";
  workload.description = describe(o);
  workload.requests.resize(o.requests);
  std::uint32_t context = 0;
  for (std::uint32_t i = 0; i < o.requests; ++i) {
    // Both numbers are drawn for every request, so that the choices of later ones do not shift.
    bool const repeats = choice.uniform() < o.repeat_probability;
    std::uint32_t const fresh = popularity.draw(choice);
    if (i == 0 || !repeats) context = fresh;
    bool const shares = share.uniform() < o.share;

    Request& request = workload.requests[i];
    request.arrival_ns = arrivals[i];
    request.prompt_tokens = o.context_tokens + privates[i];
    request.output_tokens = outputs[i];
    request.salt = o.salts == Salting::isolated ? std::uint64_t{i} + 1 : 0;
    if (o.context_tokens > 0) {
      std::uint64_t const stream =
          shares ? stream_name(o.seed, 1, context) : stream_name(o.seed, 2, i);
      request.content.push_back({stream, 0, o.context_tokens});
    }
    request.content.push_back({stream_name(o.seed, 3, i), 0, privates[i]});
  }
  return workload;
}

}  // namespace hybridstate::runtime
