// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/goodput.hpp"
#include "report/result.hpp"
#include "scheduler/run.hpp"
#include "workload/workload.hpp"

namespace hybridstate::runtime {

/// The options that `compare` and `run` share, as the user wrote them.
struct ServingOptions {
  // workload
  std::string workload = "paper";
  WorkloadOptions content;
  std::string lengths = "original";
  std::string arrivals = "poisson";
  std::string max_context;
  bool isolate = false;
  std::uint32_t seeds = 0;  ///< 0: by command and workload
  // memory
  std::string model = "falcon-h1-7b";
  std::string config;
  std::uint32_t tensor_parallel = 1;
  std::string budget;
  std::string memory;
  std::string weights;
  std::string split;
  Units null_units = 1;
  // serving
  std::uint32_t cap = 0;  ///< 0: 63 for paper, 256 for traces
  Tokens token_budget = 2048;
  double headroom = 0;
  std::string slab = "by-last-state";
  std::string placement = "dense";
  bool reuse_beyond_joint = false;
  std::string retention = "none";
  std::uint32_t retention_distinct = 2;
  std::string retention_yield = "never";
  std::uint32_t pin_distinct = 0;
  double protection_budget = 0.10;
  int fence_lag = -1;  ///< -1: fences off
  std::string device = "a100-40gb";
  std::string executor = "simulated";
  std::string linear = "exact";
  std::string carry = "bf16-per-token";
  std::string linear_input = "bf16";
  // output
  std::string goodput;
  std::string json, csv, html, out;
  std::uint32_t threads = 0;

  void add_to(CLI::App& app);
};

/// The presets of "--policy", and what may follow them behind plus signs.
inline constexpr const char* policy_words =
    "paper, path-safe, branch-point, greedy-dual or best, then any of +reuse, +retention, "
    "+prefix-aware, +tails, +last, +junction, +headroom:F; branch-point: +adaptive-headroom; "
    "greedy-dual "
    "and best: +unpriced, +marconi, +marconi:ALPHA, +clairvoyant";

/// One policy of "--policy" (docs/policies.md): what it says beside single options.
struct PolicyChoice {
  std::string text;
  OrderPolicy order = OrderPolicy::paper;
  bool branch_points = false;
  bool adaptive_headroom = false;
  ScoreRule score;
  bool priced = true;
  bool reuse_beyond_joint = false;
  bool retention = false;
  bool prefix_aware = false;
  bool tails = false;
  std::optional<Placement> placement;
  std::optional<double> headroom;

  /// Its gate asks for a price, not for headroom.
  bool prices() const { return order == OrderPolicy::greedy_dual && priced; }
};
/// Throws UsageError with one sentence, here and below.
PolicyChoice parse_policy(const std::string& text);
/// Adds the choice to what single options said.
void apply(const PolicyChoice& choice, RunSpec& spec);

/// One sentence when the arm's attention blocks leave nothing for tails to share, else empty.
std::string tails_problem(const RunSpec& spec);

/// Throws UsageError for a --headroom that no policy would use.
void check_headroom(double headroom, const std::vector<std::string>& policies);

/// The options after checking: everything but the arm and the policy of a run.
struct ServingSetup {
  RunSpec spec;
  std::shared_ptr<const FalconH1Model> loaded;  ///< with --executor cpu
  std::shared_ptr<CpuSettings> cpu;
  WorkloadSpec workload;
  std::vector<std::uint64_t> seeds;
  std::optional<GoodputRule> goodput;
  std::string model_name;
  std::vector<std::string> heading;
};
/// Throws UsageError, WorkloadError, DeviceError or ConfigurationError with one sentence.
ServingSetup prepare(ServingOptions& options, std::uint32_t default_seeds);

/// Serves every spec under every seed on `threads` threads and fills `comparison.runs`, row-major,
/// with the goodput that was asked for.
/// With `same_work`, requests that some spec can never hold are dropped from all of them and
/// counted.
void serve_all(const ServingOptions& options, const ServingSetup& setup,
               const std::vector<RunSpec>& specs, bool same_work, Comparison& comparison);

/// Writes the files that the user asked for.
void write_outputs(const ServingOptions& options, const Comparison& comparison);

}  // namespace hybridstate::runtime
