// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "workload/request.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime {

/// How requests arrive; all but the last two have the mean rate of the options.
enum class ArrivalProcess : std::uint8_t {
  poisson,      ///< independent exponential gaps, the first before the first request
  gamma,        ///< gamma gaps of shape `burstiness`: below 1 burstier, above 1 smoother
  on_off,       ///< Poisson during `on_seconds`, silence during `off_seconds`, beginning with on
  all_at_once,  ///< every request at time 0
  fixed,        ///< the times in `arrival_seconds`
};

enum class Salting : std::uint8_t {
  shared,    ///< every request has salt 0
  isolated,  ///< every request has its own salt: nothing is shared, the lengths stay the same
};

/// Mean lengths of the paper's campaigns.
enum class LengthPreset : std::uint8_t {
  original,   ///< private 260, output 243 (seeds 0-2)
  extension,  ///< private 293, output 261.5 (seeds 42000-42011)
  admission,  ///< private 285, output 255 (Q6-Q9)
};

/// The paper's workload; the defaults are its main operating point.
struct PaperWorkloadOptions {
  std::uint32_t requests = 300;
  double rate = 3;   ///< requests per second
  double share = 1;  ///< q: probability that a request starts with a shared context
  std::uint32_t contexts = 8;
  Tokens context_tokens = 3072;      ///< also the length of a unique prefix
  double zipf_exponent = 1.1;        ///< popularity of the contexts
  double repeat_probability = 0.05;  ///< the previous request's context again
  double private_mean = 260;         ///< population mean after clipping
  double private_sigma = 1.7;
  double private_truncation = 2.3;  ///< z is drawn again until |z| is at most this
  Tokens private_min = 4;
  Tokens private_max = 4000;
  double output_mean = 243;  ///< population mean after clipping
  double output_shape = 1.9;
  Tokens output_min = 4;
  Tokens output_max = 1024;
  ArrivalProcess arrivals = ArrivalProcess::poisson;
  double burstiness = 1;
  double on_seconds = 5;
  double off_seconds = 15;
  std::vector<double> arrival_seconds;  ///< ascending, for ArrivalProcess::fixed
  bool variance_reduction = false;      ///< scale each seed's lengths to the exact means
  Salting salts = Salting::shared;
  std::uint64_t seed = 42000;
};

/// Sets the two mean lengths.
void apply(LengthPreset preset, PaperWorkloadOptions& options);

/// "original", "extension" or "admission".
const char* lengths_name(LengthPreset preset);
LengthPreset parse_length_preset(std::string_view name);

/// "poisson", "gamma", "on-off", "all-at-once" or "fixed".
const char* arrivals_name(ArrivalProcess process);
ArrivalProcess parse_arrival_process(std::string_view name);

/// One line with every parameter. The seed is left out on request: headings list seeds apart.
std::string describe(const PaperWorkloadOptions& options, bool with_seed = true);

/// Draws the workload. Equal options give equal workloads on every machine. Arrivals, sharing,
/// contexts, private lengths and outputs come from separate random sequences: changing the rate,
/// the share or the number of requests leaves everything else of the first requests as it was.
/// The contexts of requests that do not share are drawn too, and a repeat refers to them.
Workload make_paper_workload(const PaperWorkloadOptions& options);

}  // namespace hybridstate::runtime
