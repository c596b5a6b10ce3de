// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "cli/command.hpp"
#include "options/model_options.hpp"
#include "options/serving_options.hpp"
#include "report/table.hpp"

namespace hybridstate::runtime {

namespace {

struct CompareOptions : ServingOptions {
  std::vector<std::string> organizations{"S0", "S1", "S2", "D0"};
  std::vector<std::string> policies{"paper"};
  bool no_references = false;
};

int compare(CompareOptions& options) {
  ServingSetup const setup = prepare(options, 12);
  check_headroom(options.headroom, options.policies);
  std::vector<RunSpec> specs;
  std::vector<std::string> heading = setup.heading;
  std::string problem;
  for (std::string const& policy : options.policies) {
    PolicyChoice const choice = parse_policy(policy);
    for (std::string const& name : options.organizations) {
      RunSpec spec = setup.spec;
      spec.arm = arm_option("--orgs", name);
      apply(choice, spec);
      problem = tails_problem(spec);
      if (problem.empty())
        specs.push_back(spec);
      else
        heading.push_back("no row: " + problem);
    }
  }
  if (specs.empty()) throw UsageError(problem);
  if (!options.no_references && !setup.cpu)
    for (Arm const reference : {Arm::infinite, Arm::byte_exact}) {
      RunSpec spec = setup.spec;
      spec.arm = reference;
      spec.headroom = 0;
      specs.push_back(spec);
    }
  Comparison comparison;
  comparison.model = setup.model_name;
  comparison.heading = std::move(heading);
  serve_all(options, setup, specs, true, comparison);
  write_outputs(options, comparison);
  print_comparison(comparison);
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand(
      "compare", "Serve one workload under every organization and tabulate what each achieves");
  auto const options = std::make_shared<CompareOptions>();
  options->add_to(*command);
  command
      ->add_option("--orgs", options->organizations,
                   "rows: S0, S1, S2, D0, D0-M512, infinite, byte-exact")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--policy", options->policies, fmt::format("policies: {}", policy_words))
      ->delimiter(',')
      ->capture_default_str();
  command->add_flag("--no-references", options->no_references,
                    "leave out the rows for infinite memory and the byte-exact bound");
  command->footer(
      "example:\n  hybridstate compare --workload paper --budget b63 --rate 3 --cap 63 --requests "
      "300\n              --share 1 --headroom 0 --seeds 12 --seed 42000 --html out/b63.html");
  command->callback([options, &action] { action = [options] { return compare(*options); }; });
}

}  // namespace hybridstate::runtime
