// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "executor/forward_pass.hpp"
#include "model/weights.hpp"
#include "options/model_options.hpp"
#include "scheduler/run.hpp"

namespace hybridstate::runtime {

namespace {

struct GenerateOptions {
  std::string model;
  std::string prompt_ids;
  Tokens max_tokens = 16;
  std::string organization = "S2";
  std::string carry = "bf16-per-token";
  std::string linear_input = "bf16";
  std::string executor = "cpu";
  std::string linear = "exact";
  SamplingOptions sampling;
  unsigned threads = 0;
  Tokens token_budget = 2048;
  bool json = false;
};

std::vector<TokenId> parse_ids(const std::string& text, std::uint32_t vocabulary) {
  std::vector<TokenId> ids;
  char const* at = text.data();
  char const* const end = at + text.size();
  while (at != end) {
    TokenId id = 0;
    auto const parsed = std::from_chars(at, end, id);
    bool const last = parsed.ptr == end;
    if (parsed.ec != std::errc{} || (!last && *parsed.ptr != ',') || id >= vocabulary)
      throw UsageError(fmt::format(
          "--prompt-ids: \"{}\" is not a token id below the model's vocabulary of {}; write ids "
          "with commas between them, such as 1,2,3",
          std::string(at, std::find(at, end, ',')), vocabulary));
    ids.push_back(id);
    at = last ? end : parsed.ptr + 1;
    if (!last && at == end)
      throw UsageError("--prompt-ids: nothing follows the last comma; leave it out");
  }
  if (ids.empty()) throw UsageError("--prompt-ids: at least one id is needed, such as 1,2,3");
  return ids;
}

int generate(const GenerateOptions& options) {
  if (options.max_tokens == 0) throw UsageError("--max-tokens 0: at least 1 token is generated");
  if (options.token_budget == 0) throw UsageError("--token-budget 0: a step needs a token");
  if (!(options.sampling.temperature >= 0))
    throw UsageError("--temperature: must be 0 (greedy) or positive");
  if (!(options.sampling.top_p > 0) || options.sampling.top_p > 1)
    throw UsageError("--top-p: must be above 0 and at most 1");
  FalconH1Model const model = FalconH1Model::load(options.model);

  Workload workload;
  workload.name = "prompt";
  Request request;
  request.tokens = parse_ids(options.prompt_ids, model.config().vocabulary);
  request.prompt_tokens = static_cast<Tokens>(request.tokens.size());
  request.output_tokens = options.max_tokens;
  workload.requests.push_back(request);

  std::vector<std::vector<TokenId>> generated;
  CpuSettings cpu;
  cpu.model = &model;
  cpu.compute = parse_compute(options.executor);
  cpu.linear = parse_linear(options.linear, options.executor);
  cpu.carry = parse_carry(options.carry);
  cpu.linear_input = parse_linear_input(options.linear_input);
  cpu.sampling = options.sampling;
  cpu.threads = options.threads;
  cpu.generated = &generated;

  RunSpec spec;
  spec.arm = arm_option("--org", options.organization);
  if (spec.arm == Arm::infinite || spec.arm == Arm::byte_exact)
    throw UsageError("--org: generate runs in an organization: S0, S1, S2, D0 or D0-M512");
  spec.model = geometry_for(model.config(), cpu.carry);
  StateLayout const layout = layout_of(spec);
  std::uint64_t const tokens = round_up<std::uint64_t>(
      std::uint64_t{request.prompt_tokens} + request.output_tokens, layout.block_tokens());
  spec.split = split_for(layout, SequenceDemand{static_cast<Tokens>(tokens), 8});
  spec.budget =
      bytes_per_layer(4 * (tokens * layout.kv_bytes_per_token() + 16 * layout.coarse_page_bytes()));
  spec.budget_text = "as needed";
  spec.law = step_laws().front();
  spec.token_budget = options.token_budget;
  spec.cap = 1;
  spec.keep_timeline = false;
  spec.cpu = &cpu;
  run_workload(spec, workload, BlockIds(workload, block_tokens_of(spec)));

  if (options.json) {
    nlohmann::ordered_json out;
    out["organization"] = arm_name(spec.arm);
    out["carry"] = options.carry;
    out["linear_input"] = options.linear_input;
    out["prompt_ids"] = request.tokens;
    out["generated_ids"] = generated.front();
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}\n", fmt::join(generated.front(), ","));
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* const command =
      app.add_subcommand("generate", "Generate tokens with a model, in any organization");
  auto const options = std::make_shared<GenerateOptions>();
  command->add_option("--model", options->model, "folder with config.json and *.safetensors")
      ->required();
  command->add_option("--prompt-ids", options->prompt_ids, "token ids, such as 1,2,3")->required();
  command->add_option("--max-tokens", options->max_tokens, "tokens to generate")
      ->capture_default_str();
  command->add_option("--org", options->organization, "S0, S1, S2, D0 or D0-M512")
      ->capture_default_str();
  command
      ->add_option("--carry", options->carry,
                   "stored recurrent state: fp32, bf16-per-token or bf16-at-grid")
      ->capture_default_str();
  command->add_option("--linear-input", options->linear_input, linear_input_help)
      ->capture_default_str();
  command->add_option("--executor", options->executor, "cpu, cuda or interpreted")
      ->capture_default_str();
  command->add_option("--linear", options->linear, "on a GPU: exact or cublaslt (other bits)")
      ->capture_default_str();
  command->add_option("--temperature", options->sampling.temperature, "0: greedy")
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "0: all tokens")->capture_default_str();
  command->add_option("--top-p", options->sampling.top_p, "nucleus probability")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "of the draws")->capture_default_str();
  command->add_option("--token-budget", options->token_budget, "tokens of one step")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: all of the machine");
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer(
      "example:\n  hybridstate make-model --preset tiny --seed 7 --out out/m\n  hybridstate "
      "generate "
      "--model out/m --prompt-ids 1,2,3 --max-tokens 16");
  command->callback([options, &action] { action = [options] { return generate(*options); }; });
}

}  // namespace hybridstate::runtime
