// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "options/serving_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <hybridstate/geometry/presets.hpp>
#include <map>
#include <memory>
#include <string_view>

#include "executor/forward_pass.hpp"
#include "model/hf_config.hpp"
#include "options/jobs.hpp"
#include "options/model_options.hpp"
#include "options/quantities.hpp"
#include "options/usage_error.hpp"
#include "report/html.hpp"
#include "report/json.hpp"
#include "workload/block_ids.hpp"

namespace hybridstate::runtime {

void ServingOptions::add_to(CLI::App& app) {
  PaperWorkloadOptions& paper = content.paper;
  TraceOptions& trace = content.trace;
  auto const group = [&app](const char* name) { return app.add_option_group(name); };

  CLI::App* const w = group("Workload");
  w->add_option("--workload", workload, "paper, mooncake:FILE, jsonl:FILE or csv:FILE")
      ->capture_default_str();
  w->add_option("--seed", paper.seed, "first seed")->capture_default_str();
  w->add_option("--seeds", seeds, "number of seeds (compare: 12 for paper; otherwise 1)");
  w->add_option("--requests", paper.requests, "paper: number of requests")->capture_default_str();
  w->add_option("--rate", paper.rate, "paper: requests per second")->capture_default_str();
  w->add_option("--share", paper.share, "paper: fraction q with a shared context")
      ->capture_default_str();
  w->add_option("--contexts", paper.contexts, "paper: shared contexts")->capture_default_str();
  w->add_option("--context-tokens", paper.context_tokens, "paper: tokens of a context")
      ->capture_default_str();
  w->add_option("--lengths", lengths, "paper: original, extension or admission")
      ->capture_default_str();
  w->add_option("--arrivals", arrivals, "paper: poisson, gamma, on-off or all-at-once")
      ->capture_default_str();
  w->add_option("--burstiness", paper.burstiness, "paper: shape of gamma arrivals")
      ->capture_default_str();
  w->add_option("--on-seconds", paper.on_seconds, "paper: seconds on of on-off arrivals")
      ->capture_default_str();
  w->add_option("--off-seconds", paper.off_seconds, "paper: seconds off of on-off arrivals")
      ->capture_default_str();
  w->add_flag("--variance-reduction", paper.variance_reduction,
              "paper: scale each seed's lengths to the exact means");
  w->add_flag("--isolate", isolate, "every request gets its own salt: nothing is shared");
  w->add_option("--rate-scale", trace.rate_scale, "traces: multiplies the request rate")
      ->capture_default_str();
  w->add_option("--max-context", max_context,
                "traces: N:drop or N:clip requests above N input + output tokens");
  w->add_option("--limit", trace.limit, "traces: keep the first N requests");
  w->add_flag("--spread", trace.spread, "traces: spread equal time stamps evenly");
  w->add_flag("--all-at-once", trace.all_at_once, "traces: every request arrives at time 0");

  CLI::App* const m = group("Memory");
  m->add_option("--model", model, "model preset, see hybridstate presets; cpu: a model's folder")
      ->capture_default_str();
  m->add_option("--config", config, "Hugging Face config.json instead of a preset");
  m->add_option("--tp", tensor_parallel, "tensor-parallel ranks")->capture_default_str();
  m->add_option("--budget", budget,
                "planner bytes per layer: b63, b83, b108 or BYTES (paper: b63)");
  m->add_option("--memory", memory, "bytes over all layers, such as 20GiB (traces: 20GiB)");
  m->add_option("--weights", weights, "bytes to subtract from --memory");
  m->add_option("--split", split,
                "D0: attention fraction, or auto: from sequences of 4,096 tokens with one state "
                "each (default: the model's published one, else auto)");
  m->add_option("--null-units", null_units, "units of each pool kept as the engine's null page")
      ->capture_default_str();

  CLI::App* const s = group("Serving");
  s->add_option("--cap", cap, "most running requests (63 for paper, 256 for traces)");
  s->add_option("--token-budget", token_budget, "tokens of one step")->capture_default_str();
  s->add_option("--headroom", headroom, "admission headroom f: H = floor(f B)")
      ->capture_default_str();
  s->add_option("--slab", slab, "S2, paper order: by-last-state, front or back")
      ->capture_default_str();
  s->add_option("--placement", placement,
                "checkpoints at: dense, every:K, last or junction (the prompt's last boundary, the "
                "newest of decode, and where the prompt left a known path)")
      ->capture_default_str();
  s->add_flag("--reuse-beyond-j", reuse_beyond_joint,
              "reference cached attention past the joint boundary instead of duplicating it");
  s->add_option("--retention", retention,
                "demanded checkpoints keep their reference while this runs: none, producer (the "
                "sequence that computed them) or holders (every one that uses them)")
      ->capture_default_str();
  s->add_option("--retention-k", retention_distinct, "distinct requesters that make demand")
      ->capture_default_str();
  s->add_option("--retention-yield", retention_yield,
                "give retained checkpoints up: never or before-preemption")
      ->capture_default_str();
  s->add_option("--pin", pin_distinct,
                "pin a preempted request's rightmost checkpoint once K requesters asked for it; "
                "0: off")
      ->capture_default_str();
  s->add_option("--protection-budget", protection_budget, "most of each pool under pins")
      ->capture_default_str();
  s->add_option("--fences", fence_lag, "units wait until a step N steps later has run");
  s->add_option("--executor", executor,
                "simulated; or cpu, cuda, interpreted (the GPU's kernels on the CPU): run the "
                "model in the folder --model")
      ->capture_default_str();
  s->add_option("--linear", linear, "cuda: exact or cublaslt (reproducible, not the CPU's bits)")
      ->capture_default_str();
  s->add_option("--carry", carry,
                "with a model: stored recurrent state: fp32, bf16-per-token or bf16-at-grid")
      ->capture_default_str();
  s->add_option("--linear-input", linear_input, linear_input_help)->capture_default_str();
  s->add_option("--device", device, "step law: a100-40gb, a100-40gb-long or a JSON file")
      ->capture_default_str();

  CLI::App* const o = group("Output");
  o->add_option("--goodput", goodput,
                "count what keeps within latencies: ttft:2s,tpot:80ms,e2e:30s (any of them), or "
                "observed:pXX, E2E and TPOT thresholds from the first row's and from all requests");
  o->add_option("--json", json, "write all runs as JSON");
  o->add_option("--csv", csv, "write one row a run");
  o->add_option("--html", html, "write one self-contained page");
  o->add_option("--out", out, "folder for per-request and timeline files");
  o->add_option("--threads", threads, "runs at a time (default: all cores)");
}

PolicyChoice parse_policy(const std::string& text) {
  PolicyChoice choice;
  choice.text = text;
  auto const number = [&](std::string_view digits, double most) {
    double value = 0;
    char const* const begin = digits.data();
    char const* const end = begin + digits.size();
    auto const parsed = std::from_chars(begin, end, value);
    if (parsed.ec != std::errc{} || parsed.ptr != end || !(value >= 0) || !(value < most))
      throw UsageError(fmt::format("--policy {}: {} must be a number from 0 to below {}", text,
                                   digits.empty() ? "what follows the colon" : digits, most));
    return value;
  };
  bool scored = false;
  for (std::size_t at = 0, plus = 0; plus != std::string::npos; at = plus + 1) {
    plus = text.find('+', at);
    std::string_view const word = std::string_view(text).substr(at, plus - at);
    bool const marconi = word == "marconi" || word.starts_with("marconi:");
    if (at == 0 && (word == "path-safe" || word == "branch-point")) {
      choice.order = OrderPolicy::path_safe;
      choice.branch_points = word == "branch-point";
    } else if (at == 0 && (word == "greedy-dual" || word == "best")) {
      choice.order = OrderPolicy::greedy_dual;
      if (word == "greedy-dual") continue;
      choice.reuse_beyond_joint = true;
      choice.placement = Placement{PlacementKind::junction, 1};
    } else if (at == 0 && word == "paper") {
      continue;
    } else if (at > 0 && word == "reuse") {
      choice.reuse_beyond_joint = true;
    } else if (at > 0 && word == "prefix-aware") {
      choice.prefix_aware = true;
    } else if (at > 0 && word == "tails") {
      choice.tails = true;
    } else if (at > 0 && word == "retention") {
      choice.retention = true;
    } else if (at > 0 && word == "last") {
      choice.placement = Placement{PlacementKind::last_only, 1};
    } else if (at > 0 && word == "junction") {
      choice.placement = Placement{PlacementKind::junction, 1};
    } else if (at > 0 && word.starts_with("headroom:")) {
      choice.headroom = number(word.substr(9), 1);
    } else if (choice.branch_points && word == "adaptive-headroom") {
      choice.adaptive_headroom = true;
    } else if (choice.order == OrderPolicy::greedy_dual && word == "unpriced") {
      choice.priced = false;
    } else if (choice.order == OrderPolicy::greedy_dual && !scored && marconi) {
      scored = true;
      choice.score.kind = StateScore::marconi;
      if (word.size() > 7) choice.score.alpha = number(word.substr(8), 1e6);
    } else if (choice.order == OrderPolicy::greedy_dual && !scored && word == "clairvoyant") {
      scored = true;
      choice.score.kind = StateScore::clairvoyant;
    } else {
      throw UsageError(
          fmt::format("--policy {}: \"{}\" does not fit; use {}", text, word, policy_words));
    }
  }
  if (choice.headroom && choice.prices())
    throw UsageError(
        fmt::format("--policy {}: its admissions are priced; headroom goes with +unpriced", text));
  return choice;
}

void apply(const PolicyChoice& choice, RunSpec& spec) {
  if (spec.cpu != nullptr && choice.score.kind == StateScore::clairvoyant)
    throw UsageError(fmt::format(
        "--policy {}: the next uses are known in simulation only; leave out --executor cpu",
        choice.text));
  spec.order = choice.order;
  spec.branch_points.protect = choice.branch_points;
  spec.adaptive_headroom = choice.adaptive_headroom;
  spec.score = choice.score;
  spec.priced = choice.priced;
  spec.reuse_beyond_joint |= choice.reuse_beyond_joint;
  spec.prefix_aware = choice.prefix_aware;
  if (choice.tails) spec.tail_tokens = tail_quarter_tokens;
  if (choice.placement) spec.placement = *choice.placement;
  spec.named_headroom = choice.headroom.value_or(0);
  if (choice.retention && spec.retention.mode == RetentionMode::none)
    spec.retention.mode = RetentionMode::holders;
}

std::string tails_problem(const RunSpec& spec) {
  Tokens const block = block_tokens_of(spec);
  if (spec.tail_tokens == 0 || (block % spec.tail_tokens == 0 && block > spec.tail_tokens))
    return {};
  return fmt::format(
      "{} cannot have +tails: its attention blocks of {} tokens are no multiple of {}, so there is "
      "nothing to share",
      arm_name(spec.arm), block, spec.tail_tokens);
}

void check_headroom(double headroom, const std::vector<std::string>& policies) {
  bool const used = std::any_of(policies.begin(), policies.end(), [](const std::string& policy) {
    return !parse_policy(policy).prices();
  });
  if (headroom > 0 && !used)
    throw UsageError(
        fmt::format("--headroom {}: greedy-dual and best price admissions instead; "
                    "leave it out, or use paper, path-safe or +unpriced",
                    headroom));
}

namespace {

PoolSplit split_of(const ServingOptions& options, const ModelPreset* preset,
                   const StateLayout& layout) {
  bool const published =
      preset != nullptr && preset->attention_ppm != 0 && options.tensor_parallel == 1;
  if (options.split.empty() && published) return {preset->attention_ppm};
  if (options.split.empty() || options.split == "auto")
    return split_for(layout, SequenceDemand{4096, 1});
  double fraction = 0;
  char const* const end = options.split.data() + options.split.size();
  auto const parsed = std::from_chars(options.split.data(), end, fraction);
  if (parsed.ec != std::errc{} || parsed.ptr != end || !(fraction > 0) || !(fraction < 1))
    throw UsageError(fmt::format(
        "--split {}: the attention fraction must be between 0 and 1, or auto", options.split));
  return {static_cast<std::uint32_t>(std::lround(fraction * PoolSplit::whole))};
}

Budget budget_of(ServingOptions& options, const StateLayout& layout, bool trace) {
  if (!options.budget.empty() && !options.memory.empty())
    throw UsageError("--budget and --memory exclude each other: one is per layer, one the total");
  if (options.budget.empty() && options.memory.empty())
    (trace ? options.memory : options.budget) = trace ? "20GiB" : "b63";
  if (!options.budget.empty()) {
    if (!options.weights.empty())
      throw UsageError("--weights is subtracted from --memory; --budget is state memory already");
    if (Units const number = parse_nominal(options.budget)) return nominal_budget(layout, number);
    return bytes_per_layer(parse_bytes("--budget", options.budget));
  }
  Bytes const all = parse_bytes("--memory", options.memory);
  Bytes const weights = options.weights.empty() ? 0 : parse_bytes("--weights", options.weights);
  if (weights >= all)
    throw UsageError(
        fmt::format("--weights {} leaves nothing of --memory {}", options.weights, options.memory));
  return bytes_over_all_layers(all - weights);
}

Placement placement_of(const std::string& text) {
  if (text == "dense") return {};
  if (text == "last") return {PlacementKind::last_only, 1};
  if (text == "junction") return {PlacementKind::junction, 1};
  std::uint32_t k = 0;
  if (text.starts_with("every:")) {
    auto const [end, error] = std::from_chars(text.data() + 6, text.data() + text.size(), k);
    if (error == std::errc{} && end == text.data() + text.size() && k > 0)
      return {PlacementKind::every_kth, k};
  }
  throw UsageError(
      fmt::format("--placement {}: use dense, every:K with K at least 1, last or junction", text));
}

Retention retention_of(const ServingOptions& options) {
  Retention rule;
  if (options.retention == "producer")
    rule.mode = RetentionMode::producer;
  else if (options.retention == "holders")
    rule.mode = RetentionMode::holders;
  else if (options.retention != "none")
    throw UsageError(
        fmt::format("--retention {}: use none, producer or holders", options.retention));
  if (options.retention_yield == "before-preemption")
    rule.yield = RetentionYield::before_preemption;
  else if (options.retention_yield != "never")
    throw UsageError(fmt::format("--retention-yield {}: use never or before-preemption",
                                 options.retention_yield));
  if (options.retention_distinct < 1 || options.retention_distinct > max_counted_requesters + 1)
    throw UsageError(fmt::format("--retention-k {}: requesters are told apart from 1 to {}",
                                 options.retention_distinct, max_counted_requesters + 1));
  rule.distinct = options.retention_distinct;
  return rule;
}

Pinning pinning_of(const ServingOptions& options) {
  if (options.pin_distinct > max_counted_requesters + 1)
    throw UsageError(fmt::format("--pin {}: use 0 (off) or a number of requesters from 1 to {}",
                                 options.pin_distinct, max_counted_requesters + 1));
  if (!(options.protection_budget >= 0) || options.protection_budget > 1)
    throw UsageError(fmt::format("--protection-budget {}: must be a fraction from 0 to 1",
                                 options.protection_budget));
  return {options.pin_distinct, options.protection_budget};
}

SlabPosition slab_of(const std::string& text) {
  if (text == "by-last-state") return SlabPosition::by_last_state;
  if (text == "front") return SlabPosition::front;
  if (text == "back") return SlabPosition::back;
  throw UsageError(fmt::format("--slab {}: use by-last-state, front or back", text));
}

/// The most tokens that a request may have so that every spec can hold it.
Tokens longest_that_fits(const std::vector<RunSpec>& specs, Tokens longest) {
  Tokens fits = 0;
  Tokens too_long = longest + 1;
  while (too_long - fits > 1) {
    Tokens const middle = fits + (too_long - fits) / 2;
    bool const all = std::all_of(specs.begin(), specs.end(), [&](const RunSpec& spec) {
      return never_fits(spec, middle).empty();
    });
    (all ? fits : too_long) = middle;
  }
  return fits;
}

std::uint64_t drop_longer(Workload& workload, Tokens most) {
  auto& requests = workload.requests;
  auto const kept = std::remove_if(requests.begin(), requests.end(), [most](const Request& r) {
    return r.prompt_tokens + r.output_tokens > most;
  });
  auto const dropped = static_cast<std::uint64_t>(requests.end() - kept);
  requests.erase(kept, requests.end());
  return dropped;
}

}  // namespace

ServingSetup prepare(ServingOptions& options, std::uint32_t default_seeds) {
  ServingSetup setup;
  setup.workload = parse_workload_spec(options.workload);
  bool const trace = setup.workload.kind != WorkloadKind::paper;
  apply(parse_length_preset(options.lengths), options.content.paper);
  options.content.paper.arrivals = parse_arrival_process(options.arrivals);
  if (options.isolate) options.content.paper.salts = Salting::isolated;
  if (!options.max_context.empty())
    options.content.trace.max_context = parse_max_context(options.max_context);
  if (options.seeds == 0) options.seeds = setup.workload.seeded() ? default_seeds : 1;
  if (options.seeds > 1 && !setup.workload.seeded())
    throw UsageError("--seeds: a trace is the same for every seed; leave it at 1");
  for (std::uint32_t i = 0; i < options.seeds; ++i)
    setup.seeds.push_back(options.content.paper.seed + i);
  if (options.cap == 0) options.cap = trace ? 256 : 63;
  if (options.token_budget == 0)
    throw UsageError("--token-budget 0: a step needs at least 1 token");
  if (!(options.headroom >= 0) || options.headroom >= 1)
    throw UsageError(
        fmt::format("--headroom {}: f must be at least 0 and below 1", options.headroom));

  RunSpec& spec = setup.spec;
  ModelPreset const* preset = nullptr;
  LinearForm const linear = parse_linear(options.linear, options.executor);
  if (options.executor != "simulated") {
    Compute const compute = parse_compute(options.executor, "simulated, ");
    if (!options.config.empty() || options.tensor_parallel != 1)
      throw UsageError(
          fmt::format("--executor {} runs one rank of the folder given with --model; leave out "
                      "--config and --tp",
                      options.executor));
    setup.loaded = std::make_shared<const FalconH1Model>(FalconH1Model::load(options.model));
    setup.cpu = std::make_shared<CpuSettings>();
    setup.cpu->model = setup.loaded.get();
    setup.cpu->compute = compute;
    setup.cpu->linear = linear;
    setup.cpu->carry = parse_carry(options.carry);
    setup.cpu->linear_input = parse_linear_input(options.linear_input);
    setup.cpu->threads = options.threads;
    spec.cpu = setup.cpu.get();
    spec.model = geometry_for(setup.loaded->config(), setup.cpu->carry);
    setup.model_name = fmt::format(
        "{} on {}", std::filesystem::path(options.model).lexically_normal().filename().string(),
        compute == Compute::cpu           ? "the CPU"
        : compute == Compute::interpreted ? "the CPU, kernels interpreted"
        : linear == LinearForm::exact     ? "a CUDA device"
                                          : "a CUDA device with cuBLASLt");
  } else if (options.config.empty()) {
    preset = find_preset(options.model);
    if (preset == nullptr)
      throw UsageError(
          fmt::format("--model {}: no such preset; there are {}", options.model, preset_names()));
    spec.model = with_tensor_parallel(preset->geometry, options.tensor_parallel);
    setup.model_name = options.model;
  } else {
    ConfigGeometry const read = read_geometry(options.config, options.tensor_parallel);
    spec.model = read.geometry;
    setup.model_name = fmt::format("{} ({})", read.family,
                                   std::filesystem::path(options.config).filename().string());
  }
  StateLayout const layout = checked_layout(spec.model).value();
  spec.budget = budget_of(options, layout, trace);
  spec.budget_text = options.budget.empty() ? options.memory : options.budget;
  if (!options.weights.empty()) spec.budget_text += " less " + options.weights + " of weights";
  spec.split = split_of(options, preset, layout);
  spec.null_units = options.null_units;
  spec.law = find_step_law(options.device);
  spec.cap = options.cap;
  spec.token_budget = options.token_budget;
  spec.headroom = options.headroom;
  spec.slab_position = slab_of(options.slab);
  spec.placement = placement_of(options.placement);
  spec.reuse_beyond_joint = options.reuse_beyond_joint;
  spec.retention = retention_of(options);
  spec.pinning = pinning_of(options);
  spec.fences = options.fence_lag >= 0;
  if (!options.goodput.empty()) setup.goodput = parse_goodput(options.goodput);
  spec.fence_lag = static_cast<std::uint32_t>(std::max(0, options.fence_lag));

  auto const say = [&](const std::string& line) { setup.heading.push_back(line); };
  say("memory: " + spec.budget_text +
      (spec.budget.scope == Budget::Scope::per_layer ? " per layer" : " over all layers"));
  if (options.tensor_parallel > 1) say(fmt::format("tensor parallel: {}", options.tensor_parallel));
  say(fmt::format("D0 split: {:.6f} attention",
                  static_cast<double>(spec.split.attention_ppm) / PoolSplit::whole));
  say(fmt::format("null units: {} per pool", spec.null_units));
  if (spec.cpu == nullptr) {
    say(fmt::format("step law: {}", spec.law.provenance));
  } else {
    say("carry: " + options.carry);
    say("linear input: " + options.linear_input);
  }
  say(fmt::format("cap: {}", spec.cap));
  say(fmt::format("token budget: {}", spec.token_budget));
  say(fmt::format("headroom: {}", spec.headroom));
  if (spec.retention.mode != RetentionMode::none)
    say(fmt::format("retention: {}, K = {}, yield {}", options.retention, spec.retention.distinct,
                    options.retention_yield));
  if (spec.pinning.distinct > 0)
    say(fmt::format("pinning: K = {}, at most {} of each pool", spec.pinning.distinct,
                    spec.pinning.protection_budget));
  if (setup.goodput) say("goodput: " + goodput_text(*setup.goodput));
  if (spec.placement.kind != PlacementKind::dense) say("placement: " + options.placement);
  return setup;
}

void serve_all(const ServingOptions& options, const ServingSetup& setup,
               const std::vector<RunSpec>& specs, bool same_work, Comparison& comparison) {
  std::vector<Workload> workloads;
  for (std::uint64_t seed : setup.seeds) {
    WorkloadOptions content = options.content;
    content.paper.seed = seed;
    Workload workload = make_workload(setup.workload, content);
    if (options.isolate)
      for (std::size_t i = 0; i < workload.requests.size(); ++i) workload.requests[i].salt = i + 1;
    workloads.push_back(std::move(workload));
  }
  Tokens longest = 0;
  for (Workload const& workload : workloads) longest = std::max(longest, longest_request(workload));
  if (same_work) {
    Tokens const most = longest_that_fits(specs, longest);
    if (most < longest)
      for (Workload& workload : workloads)
        comparison.excluded_requests += drop_longer(workload, most);
  }
  for (Workload const& workload : workloads)
    if (workload.requests.empty())
      throw UsageError(fmt::format(
          "--workload {}: no request is left to serve after dropping those that are too long",
          options.workload));
  comparison.workload_name = workloads.front().name;
  comparison.workload_description =
      setup.workload.seeded() ? describe(options.content.paper, false) : heading(workloads.front());

  // Block ids depend on the seed's workload and on the block size; runs share them.
  std::map<std::pair<std::size_t, Tokens>, std::unique_ptr<BlockIds>> ids;
  for (std::size_t w = 0; w < workloads.size(); ++w)
    for (RunSpec const& spec : specs) {
      auto& slot = ids[{w, block_tokens_of(spec)}];
      if (!slot) slot = std::make_unique<BlockIds>(workloads[w], block_tokens_of(spec));
    }

  std::size_t const jobs = specs.size() * workloads.size();
  comparison.runs.resize(jobs);
  // A real executor has the machine to itself: runs that share it would slow each other down.
  unsigned const threads = setup.cpu ? 1 : thread_count(options.threads);
  run_jobs("serving", jobs, threads, [&](std::size_t job) {
    std::size_t const w = job % workloads.size();
    RunSpec const& spec = specs[job / workloads.size()];
    RunResult result = run_workload(spec, workloads[w], *ids.at({w, block_tokens_of(spec)}));
    result.seed = setup.seeds[w];
    comparison.runs[job] = std::move(result);
    return true;
  });
  if (setup.goodput) add_goodput(comparison, *setup.goodput);
}

void write_outputs(const ServingOptions& options, const Comparison& comparison) {
  if (!options.json.empty()) write_json(options.json, comparison);
  if (!options.csv.empty()) write_csv(options.csv, comparison);
  if (!options.out.empty()) write_run_files(options.out, comparison);
  if (!options.html.empty()) write_html(options.html, comparison);
}

}  // namespace hybridstate::runtime
