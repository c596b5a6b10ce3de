// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <hybridstate/geometry/storage_model.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "executor/forward_pass.hpp"
#include "model/hf_config.hpp"
#include "options/model_options.hpp"
#include "options/quantities.hpp"
#include "report/file.hpp"
#include "report/table.hpp"
#include "report/text_table.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

/// What the user wrote.
struct PlanOptions {
  std::string model, config;
  std::string budget, memory, weights, reserve;
  std::string tensor_parallel = "1";
  std::string tokens = "4096";
  std::string split;
  std::string ssm_dtype;
  std::string carry, cap;
  std::string null_units = "1";
  std::string json;
};

std::uint32_t parse_count(const char* option, const std::string& text, std::uint32_t least) {
  std::uint32_t number = 0;
  char const* const end = text.data() + text.size();
  auto const parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc{} || parsed.ptr != end || number < least || number > 0x7fffffffU)
    throw UsageError(fmt::format("{} {}: not usable; write a whole number from {} to 2147483647",
                                 option, text, least));
  return number;
}

/// One model under one tensor-parallel size.
struct ModelChoice {
  std::string name;
  ModelGeometry geometry;
  std::uint32_t total_layers = 0;
  std::uint32_t attention_ppm = 0;  ///< published for exactly this geometry; 0: none
};

/// Bytes of one SSM element in the units; 0: the model's own choice.
std::uint32_t choose_ssm_bytes(const PlanOptions& options) {
  if (!options.ssm_dtype.empty() && options.ssm_dtype != "bf16" && options.ssm_dtype != "fp32")
    throw UsageError(fmt::format("--ssm-dtype {}: unknown; use bf16 or fp32", options.ssm_dtype));
  std::string stored = options.ssm_dtype;
  if (!options.carry.empty()) {
    stored = parse_carry(options.carry) == Carry::fp32 ? "fp32" : "bf16";
    if (!options.ssm_dtype.empty() && options.ssm_dtype != stored)
      throw UsageError(
          fmt::format("--carry {} stores the SSM state in {}, which --ssm-dtype {} contradicts; "
                      "leave --ssm-dtype out",
                      options.carry, stored, options.ssm_dtype));
  }
  return stored.empty() ? 0 : stored == "bf16" ? 2 : 4;
}

ModelChoice choose_model(const PlanOptions& options) {
  if (!options.model.empty() && !options.config.empty())
    throw UsageError("--model and --config exclude each other: give a preset or a config.json");
  if (options.model.empty() && options.config.empty())
    throw UsageError(
        "plan needs a model: give --model PRESET (see hybridstate presets) or --config FILE");
  std::uint32_t const ranks = parse_count("--tp", options.tensor_parallel, 1);
  ModelChoice choice;
  if (!options.config.empty()) {
    ConfigGeometry const read = read_geometry(options.config, ranks);
    choice.name = fmt::format("{} ({})", options.config, read.family);
    choice.geometry = read.geometry;
    choice.total_layers = read.total_layers;
  } else {
    const ModelPreset* const preset = find_preset(options.model);
    if (preset == nullptr)
      throw UsageError(fmt::format("--model {}: no such preset; choose one of {}, or give --config",
                                   options.model, preset_names()));
    choice.name = preset->name;
    choice.geometry = with_tensor_parallel(preset->geometry, ranks);
    choice.total_layers = preset->total_layers;
    choice.attention_ppm = preset->attention_ppm;
  }
  if (std::uint32_t const bytes = choose_ssm_bytes(options))
    choice.geometry = with_ssm_dtype(choice.geometry, bytes);
  if (ranks != 1 || choice.geometry.ssm_dtype_bytes != 2) choice.attention_ppm = 0;
  return choice;
}

StateLayout layout_of(const ModelChoice& model, const LayoutOptions& options) {
  auto layout = checked_layout(model.geometry, options);
  if (!layout) throw UsageError(fmt::format("{}: {}", model.name, layout.sentence()));
  return layout.value();
}

/// FP32 working states outside the pools.
struct WorkingArena {
  std::uint32_t states = 0;
  Bytes state_bytes = 0;  ///< over all recurrent layers
  Bytes total() const { return state_bytes * states; }
};

std::optional<WorkingArena> choose_arena(const PlanOptions& options, const ModelGeometry& model) {
  std::uint32_t const cap = options.cap.empty() ? 63 : parse_count("--cap", options.cap, 1);
  if (!options.cap.empty() && options.carry.empty())
    throw UsageError("--cap counts the working states of --carry bf16-at-grid: give both or none");
  if (options.carry.empty() || parse_carry(options.carry) != Carry::bf16_at_grid) return {};
  Bytes const state = hybridstate::detail::saturating_product(
      working_state_bytes(model), std::uint64_t{model.recurrent_layers});
  if (hybridstate::detail::saturating_product(state, std::uint64_t{cap}) >
      hybridstate::detail::largest_bytes)
    throw UsageError(fmt::format(
        "--cap {}: so many working states of {} bytes are more than any memory; give fewer", cap,
        grouped_count(state)));
  return WorkingArena{cap, state};
}

/// The memory to plan, in the scope that the user chose.
struct Money {
  Budget budget;
  std::string text;  ///< as written
  Bytes weights = 0;
  Bytes reserve = 0;
};

Money choose_budget(const PlanOptions& options, const StateLayout& layout,
                    const std::optional<WorkingArena>& arena) {
  Money money;
  if (!options.budget.empty() && !options.memory.empty())
    throw UsageError("--budget and --memory exclude each other: one is per layer, one the total");
  if (options.budget.empty() && options.memory.empty())
    throw UsageError(
        "plan needs memory: give --budget b63 or --budget BYTES (per layer), or --memory 40GiB "
        "(over all layers)");
  if (!options.budget.empty()) {
    for (auto const& [name, value] :
         {std::pair{"--weights", &options.weights}, std::pair{"--reserve", &options.reserve}})
      if (!value->empty())
        throw UsageError(fmt::format(
            "{} is subtracted from --memory; --budget is memory for state already", name));
    money.text = options.budget;
    if (Units const number = parse_nominal(options.budget)) {
      money.budget = nominal_budget(layout, number);
    } else {
      money.budget = bytes_per_layer(parse_bytes("--budget", options.budget));
    }
    return money;
  }
  money.text = options.memory;
  Bytes const all = parse_bytes("--memory", options.memory);
  if (!options.weights.empty()) money.weights = parse_bytes("--weights", options.weights);
  if (!options.reserve.empty()) money.reserve = parse_bytes("--reserve", options.reserve);
  Bytes const arena_bytes = arena ? arena->total() : 0;
  Bytes const taken = money.weights + money.reserve + arena_bytes;  // each at most 2^62
  if (taken >= all)
    throw UsageError(fmt::format(
        "--memory {}: {} take {} of its {} bytes and leave nothing for {}; give more "
        "memory or {}",
        options.memory,
        arena ? "weights, reserve and the arena of working states" : "weights and reserve",
        grouped_count(taken), grouped_count(all), arena ? "the pools" : "state",
        arena ? "a smaller --cap" : "subtract less"));
  money.budget = bytes_over_all_layers(all - taken);
  return money;
}

struct SplitChoice {
  PoolSplit split;
  std::string origin;
};

SplitChoice choose_split(const PlanOptions& options, const ModelChoice& model,
                         const StateLayout& layout, Tokens tokens) {
  if (options.split.empty() && model.attention_ppm != 0)
    return {{model.attention_ppm}, "published for this model"};
  if (options.split.empty() || options.split == "auto")
    return {
        split_for(layout, SequenceDemand{tokens, 1}),
        fmt::format("from sequences of {} tokens with one checkpoint each", grouped_count(tokens))};
  double fraction = 0;
  char const* const end = options.split.data() + options.split.size();
  auto const parsed = std::from_chars(options.split.data(), end, fraction);
  if (parsed.ec == std::errc{} && parsed.ptr == end && fraction > 0 && fraction < 1) {
    PoolSplit const split{static_cast<std::uint32_t>(std::lround(fraction * PoolSplit::whole))};
    if (split.sound()) return {split, "as given"};
  }
  throw UsageError(fmt::format(
      "--split {}: not usable; write the attention fraction of D0 between 0.000001 and 0.999999, "
      "or auto",
      options.split));
}

/// One organization under the budget.
struct PlanRow {
  std::string name;
  OrganizationKind kind = OrganizationKind::coarse_page;
  StateLayout layout;
  std::optional<BudgetPlan> plan;
  std::string refusal;  ///< why there is no plan
  PoolUnits usable{};   ///< without the null units
  std::uint64_t sequences = 0;
  std::uint64_t checkpoints = 0;
  Bytes stored = 0;  ///< M_X per layer
};

/// Checkpoints that fit in what `sequences` running sequences leave.
std::uint64_t checkpoints_beside(const PlanRow& row, Tokens tokens, std::uint64_t sequences) {
  UnitDemand const attention = units_needed(row.kind, row.layout, {tokens, 0}, sequences);
  std::uint64_t const running = 2 * sequences;
  auto const fits = [&](std::uint64_t checkpoints) {
    UnitDemand need = units_needed(row.kind, row.layout, {0, 1}, running + checkpoints);
    for (int pool = 0; pool < max_pools; ++pool)
      need.of[pool] = hybridstate::detail::saturating_sum(need.of[pool], attention[pool]);
    return need.fits(row.usable);
  };
  std::uint64_t low = 0;
  std::uint64_t high = std::uint64_t{1} << 32;  // more states than any pool has units for
  while (high - low > 1) {
    std::uint64_t const middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

struct Plan {
  ModelChoice model;
  StateLayout layout;
  std::optional<WorkingArena> arena;
  Money money;
  SplitChoice split;
  Tokens tokens = 0;
  Units null_units = 0;
  std::uint64_t set_sequences = 0;  ///< of the logical set of M_X
  std::vector<PlanRow> rows;

  Bytes layer_budget() const {
    return money.budget.scope == Budget::Scope::per_layer
               ? money.budget.bytes
               : money.budget.bytes / layout.group_layers();
  }
  Bytes total_budget() const {
    return money.budget.scope == Budget::Scope::per_layer
               ? money.budget.bytes * layout.group_layers()
               : money.budget.bytes;
  }
  bool by_total() const { return money.budget.scope == Budget::Scope::all_layers; }
  /// Part of the budget that an organization's units take.
  double used(const BudgetPlan& units) const {
    return static_cast<double>(by_total() ? units.total_bytes() : units.layer_bytes()) /
           static_cast<double>(money.budget.bytes);
  }
  /// B / M_X.
  double per_budget(const PlanRow& row) const {
    return static_cast<double>(total_budget()) /
           (static_cast<double>(row.stored) * layout.group_layers());
  }
};

Plan make_plan(const PlanOptions& options) {
  Plan plan;
  plan.model = choose_model(options);
  LayoutOptions const grids;
  plan.layout = layout_of(plan.model, grids);
  StateLayout const matched = layout_of(plan.model, with_matched_native_grid(grids));
  plan.tokens = parse_count("--tokens", options.tokens, 1);
  plan.null_units = parse_count("--null-units", options.null_units, 0);
  plan.arena = choose_arena(options, plan.model.geometry);
  plan.money = choose_budget(options, plan.layout, plan.arena);
  plan.split = choose_split(options, plan.model, plan.layout, plan.tokens);

  // As many sequences as fill whole slabs, so that S2 is not charged for one slab with one slot.
  std::uint64_t const slots = std::max(1U, plan.layout.slots_per_slab());
  plan.set_sequences = slots / std::gcd(slots, std::uint64_t{plan.layout.recurrent_groups()});

  auto const add = [&plan](std::string name, OrganizationKind kind, const StateLayout& layout) {
    PlanRow row;
    row.name = std::move(name);
    row.kind = kind;
    row.layout = layout;
    auto result = plan_budget(kind, layout, plan.money.budget, plan.split.split);
    if (result) {
      row.plan = result.value();
      for (int pool = 0; pool < pool_count(kind); ++pool)
        row.usable[pool] = row.plan->units[pool] - std::min(plan.null_units, row.plan->units[pool]);
      row.sequences = sequences_that_fit(kind, layout, row.usable, {plan.tokens, 2});
      row.checkpoints = checkpoints_beside(row, plan.tokens, row.sequences);
    } else {
      row.refusal = result.sentence();
    }
    StateSet set;
    set.attention = plan.set_sequences * ceil_div(plan.tokens, layout.block_tokens());
    set.native_attention = plan.set_sequences * ceil_div(plan.tokens, layout.native_block_tokens());
    set.recurrent = plan.set_sequences;
    row.stored = stored_bytes(kind, layout, set);
    plan.rows.push_back(std::move(row));
  };
  for (OrganizationKind const kind : organization_kinds) add(paper_name(kind), kind, plan.layout);
  add("D0-M512", OrganizationKind::native_dual_pool, matched);

  if (std::none_of(plan.rows.begin(), plan.rows.end(),
                   [](const PlanRow& row) { return row.plan.has_value(); }))
    throw UsageError(fmt::format("no organization can be built: {}", plan.rows.front().refusal));
  return plan;
}

/// Where one organization begins to take less than another.
struct BreakEvenPair {
  OrganizationKind first, second;
};
constexpr BreakEvenPair break_even_pairs[] = {
    {OrganizationKind::coarse_page, OrganizationKind::recurrent_paged},
    {OrganizationKind::recurrent_paged, OrganizationKind::conv_slab_packed},
    {OrganizationKind::coarse_page, OrganizationKind::conv_slab_packed},
    {OrganizationKind::conv_slab_packed, OrganizationKind::native_dual_pool},
};

std::string break_even_text(BreakEvenPair pair, const StateLayout& layout) {
  BreakEven const result = break_even(pair.first, pair.second, layout);
  std::string const first = paper_name(pair.first);
  std::string const second = paper_name(pair.second);
  switch (result.kind) {
    case BreakEven::Kind::equal:
      return fmt::format("{} and {} take the same for every mix", first, second);
    case BreakEven::Kind::first_always:
      return fmt::format("{} takes less than {} for every mix", first, second);
    case BreakEven::Kind::second_always:
      return fmt::format("{} takes less than {} for every mix", second, first);
    case BreakEven::Kind::at_ratio:
      break;
  }
  bool const first_wins = result.with_more_attention == pair.first;
  return fmt::format(
      "{} takes less than {} above {:.4f} attention blocks per checkpoint ({} : {}), more below",
      first_wins ? first : second, first_wins ? second : first,
      static_cast<double>(result.attention) / static_cast<double>(result.recurrent),
      result.attention, result.recurrent);
}

std::string geometry_text(const Plan& plan) {
  StateLayout const& layout = plan.layout;
  ModelGeometry const& m = layout.model();
  auto const sized = [](const char* name, Bytes layer, std::uint64_t layers) {
    return std::vector<std::string>{name, grouped_count(layer),
                                    bytes_text(static_cast<double>(layer)),
                                    grouped_count(layer * layers)};
  };
  std::string text = aligned_table({
      {"geometry", "bytes per layer", "", "over all layers"},
      sized("KV of one token", layout.kv_bytes_per_token(), m.attention_layers),
      sized("SSM state", layout.ssm_bytes(), m.recurrent_layers),
      sized("convolution state", layout.conv_bytes(), m.recurrent_layers),
      sized("composite (SSM + convolution)", layout.composite_bytes(), m.recurrent_layers),
      sized("page (S1, S2)", layout.page_bytes(), layout.group_layers()),
      sized("coarse page (S0)", layout.coarse_page_bytes(), layout.group_layers()),
      sized("slot", layout.slot_bytes(), layout.group_layers()),
      sized("D0 attention unit", layout.native_unit_bytes(), layout.group_layers()),
      sized("D0 recurrent unit", layout.composite_bytes(), layout.group_layers()),
      sized("planner unit (b1)", layout.planner_bytes(), layout.group_layers()),
  });
  text += fmt::format(
      "\n  page: {} tokens; SSM members: {}; slots per slab: {}; D0: {}-token units, checkpoints "
      "every {} tokens\n",
      layout.block_tokens(), layout.members(), layout.slots_per_slab(),
      layout.native_block_tokens(), grouped_count(layout.native_interval()));
  text += fmt::format(
      "  layer groups: {} attention (padding {}) and {} recurrent (padding {}) of {} layers; a "
      "unit "
      "spans one group\n",
      layout.attention_groups(), layout.attention_padding(), layout.recurrent_groups(),
      layout.recurrent_padding(), layout.group_layers());
  return text;
}

std::string memory_text(const Plan& plan) {
  std::vector<std::vector<std::string>> table = {
      {"organization", "units", "unit bytes", "bytes per layer", "bytes in total", "of budget"}};
  if (plan.by_total()) table.front().emplace_back("left over");
  for (PlanRow const& row : plan.rows) {
    if (!row.plan) {
      table.push_back({row.name, "-", "-", "-", "-", "-"});
      continue;
    }
    BudgetPlan const& p = *row.plan;
    bool const dual = pool_count(row.kind) == 2;
    table.push_back({row.name, dual ? "" : grouped_count(p.units[0]),
                     dual ? "" : grouped_count(p.unit_bytes[0]), grouped_count(p.layer_bytes()),
                     grouped_count(p.total_bytes()), fmt::format("{:.3f} %", 100 * plan.used(p))});
    if (plan.by_total())
      table.back().push_back(grouped_count(plan.total_budget() - p.total_bytes()));
    for (int pool = 0; dual && pool < 2; ++pool)
      table.push_back({pool == 0 ? "  attention" : "  recurrent", grouped_count(p.units[pool]),
                       grouped_count(p.unit_bytes[pool]), grouped_count(p.pool_bytes(pool)),
                       grouped_count(p.pool_bytes(pool) * p.group_layers)});
  }
  std::string text = aligned_table(table);
  for (PlanRow const& row : plan.rows)
    if (!row.plan) text += fmt::format("  {}: {}\n", row.name, row.refusal);
  return text;
}

std::string capacity_text(const Plan& plan) {
  std::vector<std::vector<std::string>> table = {{"organization", "sequences", "checkpoints beside",
                                                  "M_X per layer", "M_X in total", "B / M_X"}};
  for (PlanRow const& row : plan.rows)
    table.push_back({row.name, row.plan ? grouped_count(row.sequences) : "-",
                     row.plan ? grouped_count(row.checkpoints) : "-", grouped_count(row.stored),
                     grouped_count(hybridstate::detail::saturating_product(
                         row.stored, plan.layout.group_layers())),
                     fmt::format("{:.3f}", plan.per_budget(row))});
  return aligned_table(table);
}

std::string plan_text(const Plan& plan) {
  ModelGeometry const& m = plan.layout.model();
  std::string text = fmt::format(
      "model   {}: {} layers with KV, {} with recurrent state, {} in all{}; SSM state in {} bytes "
      "per element\n",
      plan.model.name, m.attention_layers, m.recurrent_layers, plan.model.total_layers,
      m.tensor_parallel == 1 ? ""
                             : fmt::format("; one of {} tensor-parallel ranks", m.tensor_parallel),
      m.ssm_dtype_bytes);
  text += fmt::format("budget  {}{}: {} bytes per layer, {} bytes in total ({}); {}\n",
                      plan.by_total() ? "--memory " : "--budget ", plan.money.text,
                      grouped_count(plan.layer_budget()), grouped_count(plan.total_budget()),
                      bytes_text(static_cast<double>(plan.total_budget())),
                      plan.by_total() ? "never exceeded" : "shared pools take the nearest unit");
  if (plan.money.weights + plan.money.reserve != 0)
    text += fmt::format("        after {} bytes of weights and {} in reserve\n",
                        grouped_count(plan.money.weights), grouped_count(plan.money.reserve));
  if (plan.arena)
    text += fmt::format(
        "arena   bf16-at-grid: {} working {} x {} = {} bytes in total, outside the pools{};\n"
        "        checkpoint boundaries must be multiples of {} tokens, where this carry rounds\n",
        plan.arena->states, plan.arena->states == 1 ? "state" : "states",
        grouped_count(plan.arena->state_bytes), grouped_count(plan.arena->total()),
        plan.by_total() ? "; subtracted from --memory before them" : " and beside --budget",
        grid_tokens);
  text += fmt::format("split   D0: {:.6f} attention, {:.6f} recurrent ({})\n\n",
                      static_cast<double>(plan.split.split.attention_ppm) / PoolSplit::whole,
                      static_cast<double>(plan.split.split.recurrent_ppm()) / PoolSplit::whole,
                      plan.split.origin);
  text += geometry_text(plan);
  text += fmt::format("\nmemory  total = {} x per layer\n", plan.layout.group_layers());
  text += memory_text(plan);
  text += fmt::format(
      "\ncapacity  sequences of {} tokens that run at once, each with one working and one "
      "destination state,\n          without {} null {} of each pool; M_X: {} such sequences, each "
      "with one checkpoint\n",
      grouped_count(plan.tokens), plan.null_units, plan.null_units == 1 ? "unit" : "units",
      grouped_count(plan.set_sequences));
  text += capacity_text(plan);
  text += "\nbreak-even\n";
  for (BreakEvenPair const pair : break_even_pairs)
    text += fmt::format("  {}\n", break_even_text(pair, plan.layout));
  return text;
}

std::string plan_json(const Plan& plan) {
  StateLayout const& layout = plan.layout;
  ModelGeometry const& m = layout.model();
  Json root;
  root["schema"] = 1;
  root["model"] = plan.model.name;
  Json g;
  g["attention_layers"] = m.attention_layers;
  g["recurrent_layers"] = m.recurrent_layers;
  g["total_layers"] = plan.model.total_layers;
  g["tensor_parallel"] = m.tensor_parallel;
  g["ssm_dtype_bytes"] = m.ssm_dtype_bytes;
  g["kv_bytes_per_token"] = layout.kv_bytes_per_token();
  g["ssm_bytes"] = layout.ssm_bytes();
  g["conv_bytes"] = layout.conv_bytes();
  g["composite_bytes"] = layout.composite_bytes();
  g["block_tokens"] = layout.block_tokens();
  g["page_bytes"] = layout.page_bytes();
  g["members"] = layout.members();
  g["slot_bytes"] = layout.slot_bytes();
  g["slots_per_slab"] = layout.slots_per_slab();
  g["coarse_page_bytes"] = layout.coarse_page_bytes();
  g["native_block_tokens"] = layout.native_block_tokens();
  g["native_unit_bytes"] = layout.native_unit_bytes();
  g["native_interval"] = layout.native_interval();
  g["planner_bytes"] = layout.planner_bytes();
  g["group_layers"] = layout.group_layers();
  g["attention_groups"] = layout.attention_groups();
  g["recurrent_groups"] = layout.recurrent_groups();
  g["attention_padding"] = layout.attention_padding();
  g["recurrent_padding"] = layout.recurrent_padding();
  root["geometry"] = std::move(g);
  Json b;
  b["text"] = plan.money.text;
  b["scope"] = plan.by_total() ? "all layers" : "per layer";
  b["layer_bytes"] = plan.layer_budget();
  b["total_bytes"] = plan.total_budget();
  b["weights_bytes"] = plan.money.weights;
  b["reserve_bytes"] = plan.money.reserve;
  b["native_attention_share"] =
      static_cast<double>(plan.split.split.attention_ppm) / PoolSplit::whole;
  root["budget"] = std::move(b);
  if (plan.arena) {
    Json a;
    a["carry"] = carry_name(Carry::bf16_at_grid);
    a["states"] = plan.arena->states;
    a["bytes_per_state"] = plan.arena->state_bytes;
    a["total_bytes"] = plan.arena->total();
    root["arena"] = std::move(a);
  }
  root["tokens"] = plan.tokens;
  root["null_units"] = plan.null_units;
  root["set_sequences"] = plan.set_sequences;
  root["organizations"] = Json::array();
  for (PlanRow const& row : plan.rows) {
    Json o;
    o["organization"] = row.name;
    if (row.plan) {
      BudgetPlan const& p = *row.plan;
      Json units = Json::array();
      Json unit = Json::array();
      Json pools = Json::array();
      for (int pool = 0; pool < pool_count(row.kind); ++pool) {
        units.push_back(p.units[pool]);
        unit.push_back(p.unit_bytes[pool]);
        pools.push_back(p.pool_bytes(pool));
      }
      o["units"] = std::move(units);
      o["unit_bytes"] = std::move(unit);
      o["pool_bytes"] = std::move(pools);
      o["layer_bytes"] = p.layer_bytes();
      o["total_bytes"] = p.total_bytes();
      o["budget_used"] = plan.used(p);
      if (plan.by_total()) o["left_over_bytes"] = plan.total_budget() - p.total_bytes();
      o["sequences"] = row.sequences;
      o["checkpoints"] = row.checkpoints;
    } else {
      o["refused"] = row.refusal;
    }
    o["stored_bytes"] = row.stored;
    o["budget_per_stored"] = plan.per_budget(row);
    root["organizations"].push_back(std::move(o));
  }
  root["break_even"] = Json::array();
  for (BreakEvenPair const pair : break_even_pairs) {
    BreakEven const result = break_even(pair.first, pair.second, layout);
    Json e;
    e["first"] = paper_name(pair.first);
    e["second"] = paper_name(pair.second);
    switch (result.kind) {
      case BreakEven::Kind::equal:
        e["result"] = "equal";
        break;
      case BreakEven::Kind::first_always:
        e["result"] = "first always";
        break;
      case BreakEven::Kind::second_always:
        e["result"] = "second always";
        break;
      case BreakEven::Kind::at_ratio:
        e["result"] = "at ratio";
        e["attention"] = result.attention;
        e["recurrent"] = result.recurrent;
        e["less_with_more_attention"] = paper_name(result.with_more_attention);
        break;
    }
    root["break_even"].push_back(std::move(e));
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run_plan(const PlanOptions& options) {
  Plan const plan = make_plan(options);
  std::string const text = plan_text(plan);
  if (!options.json.empty()) write_text_atomically(options.json, plan_json(plan));
  fmt::print("{}", text);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand(
      "plan", "Show what a budget buys under every organization: units, bytes, capacities");
  auto const options = std::make_shared<PlanOptions>();
  command->add_option("--model", options->model, "model preset, see hybridstate presets");
  command->add_option("--config", options->config, "Hugging Face config.json instead of a preset");
  command->add_option("--budget", options->budget,
                      "planner bytes per layer: b63 (63 planner units) or BYTES such as 100MiB");
  command->add_option("--memory", options->memory,
                      "bytes of one rank over all layers, such as 40GiB");
  command->add_option("--weights", options->weights, "bytes subtracted from --memory");
  command->add_option("--reserve", options->reserve,
                      "more bytes subtracted from --memory (activations, the engine)");
  command->add_option("--tp", options->tensor_parallel, "tensor-parallel ranks")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "tokens of a typical sequence")
      ->capture_default_str();
  command->add_option("--split", options->split,
                      "D0: attention fraction, or auto for the mix of --tokens with one checkpoint "
                      "(default: the model's published split, otherwise auto)");
  command->add_option("--ssm-dtype", options->ssm_dtype,
                      "bf16 or fp32 (default: the config's, bf16 for presets)");
  command->add_option("--carry", options->carry,
                      "how running states are kept: fp32 (in FP32 units), bf16-per-token, or "
                      "bf16-at-grid (BF16 units and an FP32 arena beside them, boundaries at "
                      "multiples of 256 tokens)");
  command->add_option("--cap", options->cap,
                      "working states in the arena of bf16-at-grid (default: 63)");
  command
      ->add_option("--null-units", options->null_units,
                   "units of each pool that the engine keeps for itself")
      ->capture_default_str();
  command->add_option("--json", options->json, "write the plan as JSON to this file");
  command->footer(
      R"(examples:
  hybridstate plan --model falcon-h1-7b --budget b63
  hybridstate plan --model granite-4.0-h-micro --budget 128MiB --tokens 8192 --split auto
  hybridstate plan --config config.json --memory 40GiB --weights 15.2GB --reserve 2GiB --tp 2
  hybridstate plan --model falcon-h1-7b --memory 40GiB --weights 15.2GB --carry bf16-at-grid --cap 32)");
  command->callback([options, &action] { action = [options] { return run_plan(*options); }; });
}

}  // namespace hybridstate::runtime
