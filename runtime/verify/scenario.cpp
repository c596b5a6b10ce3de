// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "verify/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/storage_model.hpp>
#include <stdexcept>

#include "executor/forward_pass.hpp"
#include "math/deterministic.hpp"

namespace hybridstate::runtime::verify {

namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : bits_(seed, 11) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(bits_.below(n)); }
  bool chance(std::uint32_t percent) { return below(100) < percent; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + below(static_cast<std::uint32_t>(choices.size())));
  }

 private:
  BitGenerator bits_;
};

}  // namespace

LayoutOptions layout_options(const Scenario& s) {
  LayoutOptions options;
  bool const dual = kind_of(s.arm) == OrganizationKind::native_dual_pool;
  (dual ? options.native_block_tokens : options.block_tokens) = s.block_tokens;
  (dual ? options.native_checkpoint_tokens : options.checkpoint_tokens) = s.checkpoint_tokens;
  return options;
}
StateLayout layout_of(const Scenario& s, const FalconH1Config& model) {
  return checked_layout(geometry_for(model, s.carry), layout_options(s)).value();
}

PoolUnits units_for(const Scenario& s, const StateLayout& layout, Tokens tokens, Units states) {
  PoolUnits units;
  OrganizationKind const kind = kind_of(s.arm);
  units[0] = ceil_div(tokens, s.block_tokens);
  Units const own = static_cast<Units>(own_state_units(kind, layout));
  bool const packed = kind == OrganizationKind::conv_slab_packed && layout.slots_per_slab() > 0;
  units[state_pool(kind)] += states * (own + (packed ? 1 : 0));
  return units;
}

Scenario random_scenario(const FalconH1Config& model, std::uint64_t seed,
                         const ScenarioChoice& choice) {
  Dice dice(seed);
  Scenario s;
  s.name = "random";
  s.seed = seed;
  s.arm = dice.of({Arm::s0, Arm::s1, Arm::s2, Arm::d0, Arm::d0_m512});
  s.carry =
      dice.of({Carry::fp32, Carry::bf16_per_token, Carry::bf16_per_token, Carry::bf16_at_grid});
  if (choice.arm) s.arm = *choice.arm;
  if (choice.carry) s.carry = *choice.carry;
  // FP32 working states are rounded at multiples of 256 tokens: only there may a checkpoint be.
  bool const coarse = s.carry == Carry::bf16_at_grid;
  if (s.arm == Arm::d0) {
    s.block_tokens = dice.of<Tokens>({8, 16});
    s.checkpoint_tokens = coarse ? 256 : dice.of<Tokens>({48, 64, 112});
  } else {
    s.block_tokens = coarse ? 256 : dice.of<Tokens>({32, 64, 64, 128});
    s.checkpoint_tokens = s.block_tokens;
  }
  Tokens const grid = s.checkpoint_tokens;
  s.cap = 1 + dice.below(8);
  s.token_budget = dice.of<Tokens>({7, 33, 64, 100, 256, 700});
  s.order = dice.of({OrderPolicy::paper, OrderPolicy::path_safe, OrderPolicy::greedy_dual});
  s.slab_position = static_cast<SlabPosition>(dice.below(3));
  s.placement.kind = static_cast<PlacementKind>(dice.chance(60) ? 0 : dice.below(4));
  s.placement.every = 1 + dice.below(3);
  s.reuse_beyond_joint = dice.chance(50);
  s.fences = dice.chance(40);
  s.fence_lag = s.fences ? dice.below(3) : 0;
  if (dice.chance(40))
    s.retention = {dice.chance(50) ? RetentionMode::producer : RetentionMode::holders,
                   1 + dice.below(2),
                   dice.chance(50) ? RetentionYield::never : RetentionYield::before_preemption};
  if (dice.chance(40)) s.pinning = {1 + dice.below(2), dice.chance(50) ? 0.5 : 0.1};
  if (dice.chance(50)) s.sampling = {0.8, 20, 0.95, seed};
  if (dice.chance(50) && s.arm != Arm::d0) s.tail_tokens = s.block_tokens / dice.of<Tokens>({2, 4});

  // A tree of contexts; prompts leave it anywhere.
  Tokens const reach = coarse ? 3 * grid : 5 * grid;
  std::vector<std::vector<TokenId>> contexts(2 + dice.below(2));
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    auto& context = contexts[i];
    if (i > 0 && dice.chance(70))
      context.assign(contexts[0].begin(), contexts[0].begin() + dice.below(reach));
    while (context.size() < reach) context.push_back(dice.below(model.vocabulary));
  }
  std::uint32_t const requests = coarse ? 3 + dice.below(3) : 4 + dice.below(6);
  std::int64_t now = 0;
  for (std::uint32_t i = 0; i < requests; ++i) {
    Request r;
    auto const& context = contexts[dice.below(static_cast<std::uint32_t>(contexts.size()))];
    Tokens length = 1 + dice.below(reach);
    if (dice.chance(35)) length = std::max<Tokens>(1, length / grid) * grid;  // ends on a boundary
    r.tokens.assign(context.begin(), context.begin() + std::min(length, reach));
    if (dice.chance(50))
      for (std::uint32_t extra = dice.below(grid); extra > 0; --extra)
        r.tokens.push_back(dice.below(model.vocabulary));
    if (i > 0 && dice.chance(20)) {
      // A known prompt again: all of it may be covered by a checkpoint.
      auto const& known = s.workload.requests[dice.below(i)].tokens;
      r.tokens.assign(known.begin(), known.end());
    }
    r.prompt_tokens = static_cast<Tokens>(r.tokens.size());
    r.output_tokens = 1 + dice.below(dice.chance(35) ? grid + 20 : 12);
    r.salt = dice.chance(80) ? 0 : 1;
    if (dice.chance(60)) now += 1'000'000 * dice.below(20);
    r.arrival_ns = now;
    s.workload.requests.push_back(std::move(r));
  }
  s.workload.name = "verify";

  StateLayout const layout = verify::layout_of(s, model);
  Tokens const two_tails = s.tail_tokens > 0 ? s.block_tokens : 0;
  PoolUnits const least = units_for(s, layout, longest_request(s.workload) + two_tails, 2);
  std::uint32_t const room = dice.of<std::uint32_t>({100, 105, 110, 120, 135, 150, 200, 500});
  for (int pool = 0; pool < max_pools; ++pool) s.units[pool] = least[pool] * room / 100;
  if (dice.chance(25)) s.headroom = dice.below(1 + s.units[0] / 3);
  return s;
}

const std::vector<std::string>& named_scenarios() {
  static const std::vector<std::string> names = {"depths", "concurrent", "batches", "reclaim",
                                                 "cuts",   "preempted",  "common"};
  return names;
}

std::vector<Scenario> named_scenario(const FalconH1Config& model, const std::string& name, Arm arm,
                                     Carry carry) {
  Dice dice(7);
  auto const base = [&](const std::string& what, std::uint32_t concurrent, Tokens longest_request,
                        std::uint32_t percent) {
    Scenario s;
    s.name = what;
    s.arm = arm;
    s.carry = carry;
    StateLayout const native = checked_layout(geometry_for(model, carry), {}).value();
    bool const dual = arm == Arm::d0;
    s.block_tokens = dual ? native.native_block_tokens() : 512;
    s.checkpoint_tokens = dual ? native.native_interval() : 512;
    s.cap = concurrent;
    s.token_budget = 2048;
    PoolUnits const one = units_for(s, verify::layout_of(s, model), longest_request, 3);
    for (int pool = 0; pool < max_pools; ++pool)
      s.units[pool] = std::max(one[pool], one[pool] * concurrent * percent / 100);
    s.workload.name = "verify";
    return s;
  };
  auto const add = [](Scenario& s, std::vector<TokenId> tokens, Tokens output, std::int64_t at) {
    Request r;
    r.tokens = std::move(tokens);
    r.prompt_tokens = static_cast<Tokens>(r.tokens.size());
    r.output_tokens = output;
    r.arrival_ns = at;
    s.workload.requests.push_back(std::move(r));
  };
  auto const draw = [&](Tokens n) {
    std::vector<TokenId> t(n);
    for (TokenId& x : t) x = dice.below(model.vocabulary);
    return t;
  };
  std::vector<Scenario> all;
  if (name == "depths") {
    // One request leaves checkpoints behind; another one continues at each depth.
    Scenario s = base("depths", 4, 2500, 100);
    std::vector<TokenId> const context = draw(2432);
    add(s, context, 2, 0);
    std::int64_t at = 1'000'000'000;
    for (Tokens depth : {600U, 900U, 1200U, 1500U, 1800U, 2400U}) {
      std::vector<TokenId> t(context.begin(), context.begin() + depth);
      auto const tail = draw(24);
      t.insert(t.end(), tail.begin(), tail.end());
      add(s, t, 6, at += 100'000'000);
    }
    all.push_back(std::move(s));
  } else if (name == "concurrent" || name == "batches") {
    for (std::uint32_t n : name == "concurrent" ? std::vector<std::uint32_t>{16}
                                                : std::vector<std::uint32_t>{8, 32, 53}) {
      Scenario s = base(fmt::format("{} {}", name, n), n, 1200, 40);
      std::vector<TokenId> const context = draw(1024);
      add(s, context, 2, 0);
      for (std::uint32_t i = 0; i < n; ++i) {
        std::vector<TokenId> t(context.begin(), context.begin() + (i % 8 == 0 ? 1024 : 512));
        auto const tail = draw(8 + i % 7);
        t.insert(t.end(), tail.begin(), tail.end());
        add(s, t, 6, 1'000'000'000);
      }
      all.push_back(std::move(s));
    }
  } else if (name == "reclaim") {
    // Two conversations take turns in memory for little more than one.
    Scenario s = base("reclaim", 1, 2600, 110);
    s.cap = 4;
    std::vector<TokenId> one = draw(1100), two = draw(1300);
    std::int64_t at = 0;
    for (int turn = 0; turn < 3; ++turn) {
      for (auto* talk : {&one, &two}) {
        add(s, *talk, 5, at += 1'000'000'000);
        auto const more = draw(200);
        talk->insert(talk->end(), more.begin(), more.end());
      }
    }
    all.push_back(std::move(s));
  } else if (name == "cuts") {
    // Prompts in pieces that end anywhere, several in a step.
    Scenario s = base("cuts", 6, 1200, 60);
    s.token_budget = 300;
    std::vector<TokenId> const context = draw(1024);
    for (std::uint32_t i = 0; i < 6; ++i) {
      std::vector<TokenId> t(context.begin(), context.begin() + (i % 2 == 0 ? 1024 : 640));
      auto const tail = draw(5 + 9 * i);
      t.insert(t.end(), tail.begin(), tail.end());
      add(s, t, 5, i < 2 ? 0 : 1'000'000'000);
    }
    all.push_back(std::move(s));
  } else if (name == "preempted") {
    // Requests that outgrow their memory while they generate: what they generated is computed
    // again as part of a prompt.
    Scenario s = base("preempted", 4, 600, 100);
    if (arm != Arm::d0) {
      s.block_tokens = carry == Carry::bf16_at_grid ? 256 : 64;
      s.checkpoint_tokens = s.block_tokens;
    }
    Tokens const prompt = 3 * s.block_tokens / 2;
    Tokens const output = std::max<Tokens>(100, 2 * s.block_tokens);
    PoolUnits const one = units_for(s, verify::layout_of(s, model), prompt + output, 2);
    for (int pool = 0; pool < max_pools; ++pool) s.units[pool] = one[pool] * 5 / 2;
    for (int i = 0; i < 4; ++i) add(s, draw(prompt + 3), output, 0);
    all.push_back(std::move(s));
  } else if (name == "common") {
    // Continuation where the boundaries of every organization meet.
    Scenario s = base("common", 3, 3700, 100);
    std::vector<TokenId> const context = draw(3584);
    add(s, context, 2, 0);
    std::int64_t at = 1'000'000'000;
    for (Tokens tail : {1U, 40U, 90U}) {
      std::vector<TokenId> t = context;
      auto const own = draw(tail);
      t.insert(t.end(), own.begin(), own.end());
      add(s, t, 6, tail == 90 ? at : at += 1'000'000'000);
    }
    all.push_back(std::move(s));
  } else {
    throw std::invalid_argument(
        fmt::format("scenario \"{}\" is unknown; use depths, concurrent, batches, reclaim, cuts, "
                    "preempted, common or all",
                    name));
  }
  return all;
}

std::string describe(const Scenario& s) {
  std::string text = fmt::format(
      "{} {}, {}, carry {}, {}/{} tokens, {}{} units, cap {}, {} tokens a step, {} requests",
      s.name, s.seed, arm_name(s.arm), carry_name(s.carry), s.block_tokens, s.checkpoint_tokens,
      s.units[0], s.units[1] > 0 ? fmt::format("+{}", s.units[1]) : "", s.cap, s.token_budget,
      s.workload.requests.size());
  text += ", " + policy_name(s);
  if (s.headroom > 0) text += fmt::format(", headroom {}", s.headroom);
  if (s.sampling.temperature > 0) text += ", sampled";
  if (s.broken != Condition::none) text += fmt::format(", without {}", condition_name(s.broken));
  return text;
}

}  // namespace hybridstate::runtime::verify
