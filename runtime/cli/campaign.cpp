// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "campaign/execute.hpp"
#include "campaign/folder.hpp"
#include "campaign/plan.hpp"
#include "cli/command.hpp"
#include "options/jobs.hpp"
#include "options/model_options.hpp"
#include "options/serving_options.hpp"
#include "report/file.hpp"

namespace hybridstate::runtime {

namespace {

struct CampaignOptions {
  std::vector<std::string> questions;
  std::string seeds;
  std::string executor = "sim";
  std::string model;
  std::string mooncake;
  std::vector<std::string> policies;
  std::uint32_t requests = 0;
  std::string out;
  std::uint32_t threads = 0;
  // run
  std::uint64_t limit = 0;
  int stage = 0;
  std::string cell;
  bool declare_only = false;
  // plan
  std::string format = "json";
};

std::string digest_of_file(const char* option, const std::filesystem::path& path) {
  auto const text = text_of_file(path);
  if (!text) throw UsageError(fmt::format("{}: cannot read {}", option, path.string()));
  return digest_of(*text);
}

CampaignSettings settings_of(const CampaignOptions& options) {
  CampaignSettings settings;
  settings.executor = options.executor;
  settings.requests = options.requests;
  if (options.executor != "sim") {
    parse_compute(options.executor, "sim, ");
    if (options.model.empty())
      throw UsageError(fmt::format(
          "--executor {} runs the model of a folder; give it with --model DIR", options.executor));
    std::filesystem::path const folder = std::filesystem::path(options.model).lexically_normal();
    settings.model = fmt::format("{}:{}", folder.filename().string(),
                                 digest_of_file("--model", folder / "config.json"));
  } else if (!options.model.empty()) {
    throw UsageError(
        "--model goes with --executor cpu or cuda; the simulated cells name their models");
  }
  if (!options.mooncake.empty()) settings.mooncake = digest_of_file("--mooncake", options.mooncake);
  settings.policies = options.policies;
  for (std::string const& policy : options.policies) parse_policy(policy);
  if (settings.policies.empty())
    settings.policies.assign(std::begin(beyond_policies), std::end(beyond_policies));
  return settings;
}

Selection selection_of(const CampaignOptions& options, const Catalogue& catalogue) {
  Selection selection;
  SeedFilter const seeds(options.seeds);
  for (std::string const& id : options.questions) {
    if (id == "all") {
      for (Question const& question : catalogue.questions) selection[question.id] = seeds;
    } else if (catalogue.find(id) != nullptr) {
      selection[id] = seeds;
    } else {
      std::string known;
      for (Question const& question : catalogue.questions) known += question.id + ", ";
      throw UsageError(fmt::format("question {}: there is none; use {}or all", id, known));
    }
  }
  if (planned_cells(catalogue, selection, 1).empty() &&
      planned_cells(catalogue, selection, 2).empty())
    throw UsageError(fmt::format("--seeds {}: no cell of {} has such a seed", options.seeds,
                                 fmt::join(options.questions, " ")));
  return selection;
}

int list() {
  CampaignSettings settings;
  settings.policies.assign(std::begin(beyond_policies), std::end(beyond_policies));
  Catalogue const catalogue = declare(settings);
  for (Question const& question : catalogue.questions) {
    fmt::print("{}: {}\n", question.id, question.text);
    for (Experiment const& e : question.experiments)
      fmt::print("  {:<24} {:>5} cells, {}: {}\n", e.id, e.entries.size(), role_name(e.role),
                 e.design);
  }
  return 0;
}

/// One call of `campaign run`.
class CampaignRun {
 public:
  CampaignRun(const CampaignOptions& options, const CampaignSettings& settings)
      : options_(options),
        folder_(options.out),
        catalogue_(declare(settings)),
        selection_(selection_of(options, catalogue_)),
        left_(options.limit == 0 ? SIZE_MAX : options.limit) {
    inputs_.model_folder = options.model;
    inputs_.mooncake_file = options.mooncake;
    inputs_.threads = options.threads;
    chooses_headroom_ = can_choose_headroom();
    chooses_ = !choose([](const Cell&, const char*) { return 1.0; }).empty();
    if (!options.cell.empty()) cell_ = named_cell();
    folder_.declare(settings, declare(settings), selection_);
  }

  int run() {
    if (options_.declare_only) return 0;
    if (cell_) {
      std::string problem;
      if (!folder_.load(*cell_, problem)) run_one(*cell_);
      return 0;
    }
    for (int const stage : {1, 2}) {
      if (options_.stage != 0 && options_.stage != stage) continue;
      if (stage == 2 && chooses_) {
        Choices const choices = folder_.choices();
        if (choices.empty())
          throw UsageError("--stage 2 confirms what --stage 1 chooses; run that first");
        add_chosen_cells(catalogue_, choices);
      }
      std::vector<PlannedCell> const cells = planned_cells(catalogue_, selection_, stage);
      if (!run_stage(cells)) {
        fmt::print("{} cells of stage {} are left; the same call goes on\n", skipped_, stage);
        return 0;
      }
      if (stage == 1 && chooses_) write_choices(cells);
    }
    fmt::print("{} cells: {} run, {} were there; hybridstate campaign collect {} merges them\n",
               ran_ + present_, ran_.load(), present_, options_.out);
    return 0;
  }

 private:
  /// Whether the selection cells are taken that Q6's choices rest on. Throws
  /// std::invalid_argument when they are not, but cells that confirm them are.
  bool can_choose_headroom() {
    if (!selection_.contains("Q6")) return false;
    try {
      choose_headroom(catalogue_, taken_by("Q6"), [](const Cell&, const char*) { return 1.0; });
      return true;
    } catch (const std::invalid_argument&) {
      if (!planned_cells(catalogue_, {{"Q6", selection_.at("Q6")}}, 2).empty()) throw;
      return false;
    }
  }

  EntryFilter taken_by(const std::string& question) const {
    return [&seeds = selection_.at(question)](const Experiment& e, const Entry& entry) {
      return seeds.takes(e, entry);
    };
  }

  /// Empty when nothing is to be chosen.
  Choices choose(const CellField& field) const {
    Choices choices;
    if (chooses_headroom_) choices.headroom = choose_headroom(catalogue_, taken_by("Q6"), field);
    if (selection_.contains("best"))
      choices.capacity = mooncake_capacity(catalogue_, taken_by("best"), field);
    return choices;
  }

  /// Runs what is missing, at most as many cells as are allowed; whether nothing is left.
  bool run_stage(const std::vector<PlannedCell>& cells) {
    std::vector<const PlannedCell*> todo;
    for (PlannedCell const& cell : cells) {
      std::string problem;
      if (folder_.load(cell, problem)) {
        ++present_;
        continue;
      }
      if (!problem.empty())
        fmt::print("{}: {}; it is run again\n", folder_.cell_path(cell.cell).filename().string(),
                   problem);
      todo.push_back(&cell);
    }
    bool const simulated = options_.executor == "sim";
    if (simulated)
      std::sort(todo.begin(), todo.end(), [](const PlannedCell* a, const PlannedCell* b) {
        double const first = cell_cost(a->cell), second = cell_cost(b->cell);
        return first != second ? first > second : a < b;  // both point into `cells`
      });
    skipped_ = todo.size() - std::min(todo.size(), left_);
    todo.resize(todo.size() - skipped_);
    left_ -= todo.size();
    // A real executor has the machine to itself, and keeps the declared order.
    run_jobs("campaign", todo.size(), simulated ? thread_count(options_.threads) : 1,
             [&](std::size_t i) {
               run_one(*todo[i]);
               return true;
             });
    return skipped_ == 0;
  }

  void run_one(const PlannedCell& cell) {
    std::string const trace =
        (folder_.path() / "cells" / ('.' + cell_id(cell.cell) + ".trace")).string();
    folder_.save(cell, run_cell(cell.cell, inputs_, trace));
    ++ran_;
  }

  /// The cell of --cell; throws UsageError when there is none.
  PlannedCell named_cell() {
    add_chosen_cells(catalogue_, folder_.choices());
    for (int const stage : {1, 2})
      for (PlannedCell& cell : planned_cells(catalogue_, selection_, stage))
        if (cell_id(cell.cell) == options_.cell) return std::move(cell);
    throw UsageError(fmt::format("--cell {}: no cell of {} has this id", options_.cell,
                                 fmt::join(options_.questions, " ")));
  }

  /// Writes what the cells of stage 1 decide.
  void write_choices(const std::vector<PlannedCell>& cells) const {
    std::map<std::string, const PlannedCell*> by_id;
    for (PlannedCell const& cell : cells) by_id[cell_id(cell.cell)] = &cell;
    folder_.write_choices(choose([&](const Cell& cell, const char* field) {
      std::string problem;
      auto const file = folder_.load(*by_id.at(cell_id(cell)), problem);
      return file.value().at("result").at(field).get<double>();
    }));
  }

  const CampaignOptions& options_;
  CampaignFolder folder_;
  Catalogue catalogue_;
  Selection selection_;
  CampaignInputs inputs_;
  std::optional<PlannedCell> cell_;  ///< of --cell
  bool chooses_headroom_ = false;
  bool chooses_ = false;  ///< anything
  std::size_t left_;
  std::size_t skipped_ = 0;
  std::size_t present_ = 0;
  std::atomic<std::size_t> ran_ = 0;
};

/// Bad requests of the user become usage errors; what() is one sentence.
template <class Work>
int usage(const Work& work) {
  try {
    return work();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

std::string call_of(const CampaignOptions& options) {
  std::string call = "hybridstate campaign run";
  auto const add = [&](const std::string& word) { call += ' ' + shell_quote(word); };
  auto const option = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    add(name);
    add(value);
  };
  for (std::string const& question : options.questions) add(question);
  option("--seeds", options.seeds);
  if (options.executor != "sim") option("--executor", options.executor);
  option("--model", options.model);
  option("--mooncake", options.mooncake);
  option("--policies", fmt::format("{}", fmt::join(options.policies, ",")));
  if (options.requests != 0) option("--requests", fmt::format("{}", options.requests));
  option("--out", options.out);
  return call;
}

int plan(const CampaignOptions& options) {
  Catalogue const catalogue = declare(settings_of(options));
  Selection const selection = selection_of(options, catalogue);
  CampaignPlan plan;
  plan.folder = options.out;
  plan.run = call_of(options);
  for (int const stage : {1, 2})
    plan.stages[stage - 1] = planned_cells(catalogue, selection, stage);
  if (options.format == "slurm")
    fmt::print("{}", slurm_text(plan));
  else if (options.format == "parallel")
    fmt::print("{}", parallel_text(plan));
  else if (options.format == "json")
    fmt::print("{}", plan_json_text(plan));
  else
    throw UsageError(fmt::format("--format {}: use slurm, parallel or json", options.format));
  return 0;
}

int collect(const CampaignOptions& options) {
  std::vector<std::string> const missing = CampaignFolder(options.out).collect();
  fmt::print("{0}/cells.json and {0}/cells.csv are written\n", options.out);
  if (missing.empty()) return 0;
  fmt::print(stderr, "hybridstate: {} cells are missing, beginning with {}; campaign run goes on\n",
             missing.size(), missing.front());
  return 1;
}

}  // namespace

void add_campaign(CLI::App& app, Action& action) {
  CLI::App* const campaign =
      app.add_subcommand("campaign", "The paper's experiments, cell by cell");
  campaign->require_subcommand(0, 1);
  auto const options = std::make_shared<CampaignOptions>();
  auto const listed = std::make_shared<bool>(false);
  campaign->add_flag("--list", *listed, "questions, experiments and their cells");
  campaign->callback([campaign, listed, &action] {
    if (!campaign->get_subcommands().empty()) return;
    if (!*listed) throw CLI::CallForHelp();
    action = list;
  });

  auto const add = [&](const char* name, const char* what, auto act) {
    CLI::App* const command = campaign->add_subcommand(name, what);
    command->callback([options, act, &action] {
      action = [options, act] { return usage([&] { return act(*options); }); };
    });
    return command;
  };
  CLI::App* const r = add("run", "Run the cells that a folder lacks", [](const CampaignOptions& o) {
    return CampaignRun(o, settings_of(o)).run();
  });
  CLI::App* const p = add("plan", "The same cells for another scheduler", plan);
  for (CLI::App* const command : {r, p}) {
    command->add_option("QUESTIONS", options->questions, "Q1 to Q9, see --list, or all")
        ->required();
    command->add_option("--seeds", options->seeds,
                        "of the declared seeds: first:N of every list, or e.g. 42000-42003,0");
    command->add_option("--executor", options->executor, "sim, cpu, cuda or interpreted")
        ->capture_default_str();
    command->add_option("--model", options->model, "cpu: the model's folder");
    command->add_option("--mooncake", options->mooncake, "best: the Mooncake conversation trace");
    command->add_option("--policies", options->policies, "best: policies (default: paper, best)")
        ->delimiter(',');
    command->add_option("--requests", options->requests,
                        "fewer requests of the paper's workload than declared");
    command->add_option("--out", options->out, "folder of the campaign")->required();
  }
  r->add_option("--threads", options->threads, "cells at a time (default: all cores)");
  r->add_option("--limit", options->limit, "stop after N cells");
  r->add_option("--stage", options->stage,
                "1: up to the choices that its cells make; 2: the cells that rest on them")
      ->check(CLI::Range(1, 2));
  r->add_option("--cell", options->cell, "run one cell, by its id");
  r->add_flag("--declare-only", options->declare_only, "write the declarations alone");
  p->add_option("--format", options->format, "slurm, parallel or json")->capture_default_str();
  CLI::App* const c = add("collect", "Merge all cells into cells.json and cells.csv", collect);
  c->add_option("DIR", options->out, "folder of the campaign")->required();
  campaign->footer(
      "example:\n  hybridstate campaign run all --out out\n  hybridstate campaign collect out");
}

}  // namespace hybridstate::runtime
