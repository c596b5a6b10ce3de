// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/command.hpp"
#include "options/model_options.hpp"
#include "options/quantities.hpp"
#include "options/serving_options.hpp"
#include "report/table.hpp"

namespace hybridstate::runtime {

namespace {

struct RunOptions : ServingOptions {
  std::string organization = "S2";
  std::string policy = "paper";
  std::string trace;
  std::string trace_buffer = "32MiB";
};

TraceSettings trace_settings(const RunOptions& options, const ServingSetup& setup) {
  if (setup.seeds.size() != 1)
    throw UsageError(fmt::format(
        "--trace holds the history of one run; use it with --seeds 1, not {}", setup.seeds.size()));
  TraceSettings settings;
  settings.path = options.trace;
  settings.note = fmt::format("workload {}, seed {}", options.workload, setup.seeds.front());
  settings.ring_bytes = parse_bytes("--trace-buffer", options.trace_buffer);
  if (settings.ring_bytes == 0 || settings.ring_bytes > Bytes{1} << 36)
    throw UsageError(
        fmt::format("--trace-buffer {}: use between 1 byte and 64GiB", options.trace_buffer));
  return settings;
}

int run(RunOptions& options) {
  ServingSetup const setup = prepare(options, 1);
  RunSpec spec = setup.spec;
  check_headroom(options.headroom, {options.policy});
  apply(parse_policy(options.policy), spec);
  spec.arm = arm_option("--org", options.organization);
  if (auto sentence = tails_problem(spec); !sentence.empty()) throw UsageError(sentence);
  TraceSettings trace;
  if (!options.trace.empty()) {
    trace = trace_settings(options, setup);
    spec.trace = &trace;
  }
  Comparison comparison;
  comparison.model = setup.model_name;
  comparison.heading = setup.heading;
  serve_all(options, setup, {spec}, false, comparison);
  write_outputs(options, comparison);
  print_run_details(comparison);
  if (trace.problem.empty()) return 0;
  fmt::print(stderr, "hybridstate: {}\n", trace.problem);
  return 1;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* const command =
      app.add_subcommand("run", "Serve one workload under one organization, in detail");
  auto const options = std::make_shared<RunOptions>();
  options->add_to(*command);
  command
      ->add_option("--org", options->organization, "S0, S1, S2, D0, D0-M512, infinite, byte-exact")
      ->capture_default_str();
  command->add_option("--policy", options->policy, policy_words)->capture_default_str();
  command->add_option("--trace", options->trace,
                      "write the state history, for hybridstate trace (not with --seeds above 1)");
  command
      ->add_option("--trace-buffer", options->trace_buffer,
                   "bytes that may wait for the trace's writer; records beyond are dropped")
      ->capture_default_str();
  command->footer(
      "example:\n  hybridstate run --org S2 --workload paper --budget b83 --headroom 0.27 --out "
      "out/s2");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace hybridstate::runtime
