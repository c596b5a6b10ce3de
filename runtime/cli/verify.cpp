// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "options/jobs.hpp"
#include "options/model_options.hpp"
#include "report/file.hpp"
#include "report/text_table.hpp"
#include "verify/verify.hpp"

namespace hybridstate::runtime {

namespace {

struct VerifyOptions {
  std::string model;
  std::uint64_t runs = 200;
  std::uint64_t seed = 1;
  std::vector<std::string> organizations = {"S0", "S1", "S2", "D0", "D0-M512"};
  std::string carry = "all";
  std::string linear_input = "bf16";
  std::string executor = "cpu";
  std::string linear = "exact";
  std::string scenario = "all";
  std::string broken = "none";
  bool conditions = false;
  unsigned threads = 0;
  std::string json;
  std::string record;
  std::string replay;
};

/// What the requests of a scenario compute alone, once for all organizations on the same grid.
struct SharedReferences {
  std::once_flag once;
  std::vector<verify::Reference> all;
};

struct Job {
  verify::Scenario scenario;
  std::shared_ptr<SharedReferences> references;  ///< null: its own
  verify::Counts counts;
  bool done = false;
};

std::vector<std::string> row_of(const std::string& name, const verify::Counts& c) {
  std::vector<std::string> cells = {name};
  for (std::uint64_t n : {c.runs, c.requests, c.adopted_tokens, c.preemptions, c.tokens, c.logits,
                          c.checkpoints, c.blocks, c.mismatches()})
    cells.push_back(grouped_count(n));
  return cells;
}

nlohmann::ordered_json json_of(const verify::Counts& c) {
  return {{"runs", c.runs},
          {"requests", c.requests},
          {"adopted_tokens", c.adopted_tokens},
          {"preemptions", c.preemptions},
          {"tokens", c.tokens},
          {"logit_vectors", c.logits},
          {"checkpoints", c.checkpoints},
          {"attention_blocks", c.blocks},
          {"different_tokens", c.different_tokens},
          {"different_logit_vectors", c.different_logits},
          {"different_checkpoints", c.different_checkpoints},
          {"different_attention_blocks", c.different_blocks},
          {"forbidden_writes", c.forbidden_writes}};
}

/// What the job's requests compute alone.
const std::vector<verify::Reference>& shared_references(const Job& job,
                                                        const verify::VerifyModel& model) {
  std::call_once(job.references->once,
                 [&] { job.references->all = references_of(job.scenario, model); });
  return job.references->all;
}

/// Stops handing out work once one differs: in order, so the first that fails is the smallest.
bool verify_job(Job& job, const verify::VerifyModel& model) {
  job.counts = job.references ? verify_scenario(job.scenario, model, shared_references(job, model))
                              : verify_scenario(job.scenario, model);
  job.done = true;
  return job.counts.mismatches() == 0;
}

/// Which conditions of exact continuation each named scenario needs: one given up at a time. Here a
/// difference is what one looks for.
int compare_conditions(const FalconH1Config& config, const verify::VerifyModel& model, Arm arm,
                       Carry carry, unsigned threads) {
  std::vector<Job> jobs;
  std::vector<std::vector<std::string>> cells = {{"given up"}};
  for (ConditionName const& condition : condition_names)
    cells.emplace_back(1, std::string(condition.name));
  for (std::string const& name : verify::named_scenarios())
    for (verify::Scenario& s : verify::named_scenario(config, name, arm, carry)) {
      if (s.cap > 16 || name == "common") continue;  // long, and nothing that the others lack
      cells[0].push_back(s.name);
      for (ConditionName const& condition : condition_names) {
        s.broken = condition.condition;
        jobs.push_back({s, nullptr, {}, false});
      }
    }
  run_jobs("verifying", jobs.size(), thread_count(threads), [&](std::size_t i) {
    verify_job(jobs[i], model);
    return true;
  });
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    verify::Counts const& c = jobs[i].counts;
    cells[1 + i % condition_names.size()].push_back(c.different_logits + c.different_tokens == 0
                                                        ? "equal"
                                                        : fmt::format("{} of {} logits, {} tokens",
                                                                      c.different_logits, c.logits,
                                                                      c.different_tokens));
  }
  fmt::print("Logit vectors and tokens that differ from each request alone, {}, carry {}:\n{}",
             arm_name(arm), carry_name(carry), aligned_table(cells));
  return 0;
}

void print_compared(const std::vector<std::vector<std::string>>& rows,
                    const verify::Counts& total) {
  std::vector<std::vector<std::string>> cells = {{"", "runs", "requests", "adopted tokens",
                                                  "preemptions", "tokens", "logits", "checkpoints",
                                                  "blocks", "mismatches"}};
  cells.insert(cells.end(), rows.begin(), rows.end());
  cells.push_back(row_of("total", total));
  fmt::print("Compared to the bit with each request alone and uninterrupted:\n{}",
             aligned_table(cells));
}

void print_differences(const verify::Counts& c) {
  fmt::print(
      "  {} tokens, {} logit vectors, {} checkpoints, {} attention blocks differ; {} writes were "
      "not allowed\n",
      c.different_tokens, c.different_logits, c.different_checkpoints, c.different_blocks,
      c.forbidden_writes);
}

/// One recorded schedule under every organization. Those that cannot follow it are left out with
/// the reason, unless the user named them.
int replay_command(const VerifyOptions& options, const verify::VerifyModel& model,
                   const std::vector<Arm>& arms, bool named) {
  verify::Schedule const schedule = verify::read_schedule(options.replay);
  Carry const carry = options.carry == "all" ? schedule.carry : parse_carry(options.carry);
  std::vector<Job> jobs;
  std::map<Tokens, std::shared_ptr<SharedReferences>> shared;  // by the tokens of a boundary
  std::string left_out;
  for (Arm arm : arms) {
    std::string const problem = replay_problem(schedule, arm, carry, model.config());
    if (!problem.empty()) {
      if (named)
        throw UsageError(
            fmt::format("{}: {} cannot replay it: {}", options.replay, arm_name(arm), problem));
      left_out += fmt::format("{} is left out: {}\n", arm_name(arm), problem);
      continue;
    }
    verify::Scenario s = replay_scenario(schedule, arm, carry, model.config());
    auto& references = shared[arm == Arm::d0 ? 0 : s.checkpoint_tokens];
    if (!references) references = std::make_shared<SharedReferences>();
    jobs.push_back({std::move(s), references, {}, false});
  }
  if (jobs.empty())
    throw UsageError(fmt::format("{}: no organization can replay it; {}", options.replay,
                                 left_out.substr(0, left_out.find('\n'))));
  run_jobs("replaying", jobs.size(), thread_count(options.threads), [&](std::size_t i) {
    Job& job = jobs[i];
    job.counts = replay_schedule(schedule, job.scenario, model, shared_references(job, model));
    return true;
  });
  std::vector<std::vector<std::string>> rows;
  verify::Counts total;
  nlohmann::ordered_json out;
  for (Job const& job : jobs) {
    rows.push_back(row_of(arm_name(job.scenario.arm), job.counts));
    out["rows"][arm_name(job.scenario.arm)] = json_of(job.counts);
    total += job.counts;
  }
  out["total"] = json_of(total);
  fmt::print("Replay of {}: {} chunks, carry {}.\n", options.replay, schedule.chunks.size(),
             carry_name(carry));
  print_compared(rows, total);
  fmt::print("{}", left_out);
  if (!options.json.empty()) write_text_atomically(options.json, out.dump(2) + "\n");
  if (total.mismatches() == 0) return 0;
  print_differences(total);
  return 1;
}

/// Serves the one run that the options select and writes down what it computed.
verify::Counts record_run(const std::string& path, const std::vector<Job>& jobs,
                          const verify::VerifyModel& model) {
  if (jobs.size() != 1)
    throw UsageError(fmt::format(
        "--record writes one run, but {} are selected; choose one, as with --scenario depths "
        "--runs 0 --orgs S2 or --scenario none --runs 1 --orgs S2",
        jobs.size()));
  verify::Scenario const& s = jobs.front().scenario;
  verify::Schedule recorded = schedule_for(s);
  verify::Counts const counts = record_scenario(s, model, references_of(s, model), recorded);
  write_text_atomically(path, schedule_text(recorded));
  return counts;
}

int verify_command(const VerifyOptions& options, bool organizations_named) {
  FalconH1Model const loaded = FalconH1Model::load(options.model);
  verify::VerifyModel const model{&loaded, 1, parse_linear_input(options.linear_input),
                                  parse_compute(options.executor)};
  if (parse_linear(options.linear, "cuda") != LinearForm::exact)
    throw UsageError(
        "--linear cublaslt: verify compares bits, and cuBLASLt's depend on the batch; leave it at "
        "exact");
  std::optional<Condition> const broken = parse_condition(options.broken);
  if (!broken)
    throw UsageError(
        fmt::format("--break {}: use none, canonical-partition, lossless-checkpoint, "
                    "batch-invariance or same-provenance",
                    options.broken));
  if (model.compute != Compute::cpu && (options.conditions || *broken != Condition::none))
    throw UsageError("--conditions and --break: conditions are broken with --executor cpu only");
  std::vector<Arm> arms;
  for (std::string const& name : options.organizations) {
    arms.push_back(arm_option("--orgs", name));
    if (arms.back() == Arm::infinite || arms.back() == Arm::byte_exact)
      throw UsageError("--orgs: verify runs in organizations: S0, S1, S2, D0 and D0-M512");
  }
  if (arms.empty()) throw UsageError("--orgs: name at least one organization");
  if (!options.replay.empty()) {
    if (!options.record.empty() || options.conditions || *broken != Condition::none)
      throw UsageError("--replay does not go with --record, --conditions or --break");
    return replay_command(options, model, arms, organizations_named);
  }
  std::vector<Carry> carries;
  if (options.carry == "all")
    carries = {Carry::bf16_per_token, Carry::fp32, Carry::bf16_at_grid};
  else
    carries = {parse_carry(options.carry)};
  if (options.conditions)
    return compare_conditions(loaded.config(), model, arms.front(), carries.front(),
                              options.threads);

  std::vector<Job> jobs;
  std::map<std::string, std::shared_ptr<SharedReferences>> shared;
  if (options.scenario != "none")
    for (std::string const& name : verify::named_scenarios()) {
      bool const wanted = options.scenario == "all" || options.scenario == name;
      // "batches 8" is one of the runs of "batches".
      if (!wanted && !options.scenario.starts_with(name + " ")) continue;
      for (Arm arm : arms)
        for (verify::Scenario& s :
             verify::named_scenario(loaded.config(), name, arm, carries.front())) {
          if (!wanted && options.scenario != s.name) continue;
          auto& references =
              shared[fmt::format("{} {} {}", s.name, s.block_tokens, s.checkpoint_tokens)];
          if (!references) references = std::make_shared<SharedReferences>();
          jobs.push_back({std::move(s), references, {}, false});
        }
    }
  if (options.scenario != "none" && jobs.empty())
    throw UsageError(
        fmt::format("--scenario {}: use depths, concurrent, batches (or \"batches 8\"), reclaim, "
                    "common, all or "
                    "none",
                    options.scenario));
  for (std::uint64_t i = 0; i < options.runs; ++i) {
    verify::ScenarioChoice choice;
    choice.arm = arms[i % arms.size()];
    if (options.carry != "all") choice.carry = carries[i / arms.size() % carries.size()];
    jobs.push_back(
        {verify::random_scenario(loaded.config(), options.seed + i, choice), nullptr, {}, false});
  }
  for (Job& job : jobs) job.scenario.broken = *broken;
  if (!options.record.empty()) {
    verify::Counts const counts = record_run(options.record, jobs, model);
    jobs.front().counts = counts;
    jobs.front().done = true;
  } else {
    run_jobs("verifying", jobs.size(), thread_count(options.threads),
             [&](std::size_t i) { return verify_job(jobs[i], model); });
  }

  std::map<std::string, verify::Counts> rows;
  std::vector<std::string> order;
  verify::Counts total;
  Job const* wrong = nullptr;
  for (Job const& job : jobs) {
    if (!job.done) continue;
    std::string const name = fmt::format("{} {}", job.scenario.name, arm_name(job.scenario.arm));
    if (rows.emplace(name, verify::Counts{}).second) order.push_back(name);
    rows[name] += job.counts;
    total += job.counts;
    if (wrong == nullptr && job.counts.mismatches() > 0) wrong = &job;
  }
  std::vector<std::vector<std::string>> cells;
  cells.reserve(order.size());
  for (std::string const& name : order) cells.push_back(row_of(name, rows[name]));
  print_compared(cells, total);
  if (!options.json.empty()) {
    nlohmann::ordered_json out;
    for (std::string const& name : order) out["rows"][name] = json_of(rows[name]);
    out["total"] = json_of(total);
    if (wrong != nullptr) out["first_mismatch"] = describe(wrong->scenario);
    write_text_atomically(options.json, out.dump(2) + "\n");
  }
  if (wrong == nullptr) return 0;
  fmt::print("\nfirst mismatch: {}\n", describe(wrong->scenario));
  print_differences(wrong->counts);
  verify::Scenario const smallest = shrink(wrong->scenario, model);
  fmt::print("  it still fails with {} of {} requests\n", smallest.workload.requests.size(),
             wrong->scenario.workload.requests.size());
  if (wrong->scenario.name == "random")
    fmt::print(
        "  again: hybridstate verify --model {} --scenario none --runs 1 --seed {} --orgs {}{}{}\n",
        options.model, wrong->scenario.seed, arm_name(wrong->scenario.arm),
        options.carry == "all" ? "" : " --carry " + options.carry,
        model.linear_input == LinearInput::bf16 ? "" : " --linear-input " + options.linear_input);
  return 1;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand(
      "verify",
      "Show that continuation from retained state computes the same bits as a request alone");
  auto const options = std::make_shared<VerifyOptions>();
  command->add_option("--model", options->model, "the model's folder")->required();
  command->add_option("--runs", options->runs, "random serving runs")->capture_default_str();
  command->add_option("--seed", options->seed, "seed of the first one")->capture_default_str();
  CLI::Option const* const organizations =
      command->add_option("--orgs", options->organizations, "S0, S1, S2, D0, D0-M512")
          ->delimiter(',')
          ->capture_default_str();
  command
      ->add_option("--carry", options->carry,
                   "stored recurrent state: fp32, bf16-per-token, bf16-at-grid or all")
      ->capture_default_str();
  command->add_option("--linear-input", options->linear_input, linear_input_help)
      ->capture_default_str();
  command
      ->add_option(
          "--scenario", options->scenario,
          "named runs: depths, concurrent, batches, reclaim, cuts, preempted, common, all or none")
      ->capture_default_str();
  command
      ->add_option("--break", options->broken,
                   "give up one condition: canonical-partition, lossless-checkpoint, "
                   "batch-invariance or same-provenance")
      ->capture_default_str();
  command
      ->add_option("--executor", options->executor,
                   "of the served runs: cpu, cuda or interpreted (the GPU's kernels on the CPU)")
      ->capture_default_str();
  command->add_option("--linear", options->linear, "exact: bits are compared")
      ->capture_default_str();
  command->add_flag("--conditions", options->conditions,
                    "table: which named scenarios differ without which condition (first of --orgs "
                    "and --carry)");
  command->add_option("--threads", options->threads, "runs at a time (default: all cores)");
  command->add_option("--record", options->record,
                      "write what the one selected run computes, step by step, to this file");
  command->add_option("--replay", options->replay,
                      "compute a recorded schedule under each of --orgs instead of serving");
  command->add_option("--json", options->json, "write the counts as JSON");
  command->footer(
      "Exit code 1 at the first mismatch, with the smallest seed that shows it.\n"
      "example:\n  hybridstate make-model --preset tiny --seed 7 --out out/m\n"
      "  hybridstate verify --model out/m --runs 1000\n"
      "  hybridstate verify --model out/m --scenario common --runs 0 --orgs S2 --record "
      "out/s.jsonl\n"
      "  hybridstate verify --model out/m --replay out/s.jsonl");
  command->callback([options, organizations, &action] {
    action = [options, named = organizations->count() > 0] {
      return verify_command(*options, named);
    };
  });
}

}  // namespace hybridstate::runtime
