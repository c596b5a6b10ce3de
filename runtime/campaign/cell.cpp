// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/cell.hpp"

#include <fmt/format.h>

#include "math/deterministic.hpp"
#include "report/json.hpp"

namespace hybridstate::runtime {

namespace {

std::string retention_name(const Retention& rule) {
  if (rule.mode == RetentionMode::none) return "none";
  return fmt::format("{}:{}:{}", rule.mode == RetentionMode::producer ? "producer" : "holders",
                     rule.distinct,
                     rule.yield == RetentionYield::never ? "never" : "before-preemption");
}

std::string arm_word(Arm arm) {
  if (arm == Arm::infinite) return "infinite";
  if (arm == Arm::byte_exact) return "byte-exact";
  return arm_name(arm);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_of(const Cell& c) {
  auto const number = [](double value) { return fmt::format("{}", value); };
  auto const flag = [](bool value) { return std::string(value ? "on" : "off"); };
  return {
      {"executor", c.executor},
      {"model", c.model},
      {"law", c.law},
      {"organization", arm_word(c.arm)},
      {"policy", c.policy},
      {"budget", c.budget},
      {"attention_ppm", c.attention_ppm == 0 ? "published" : fmt::format("{}", c.attention_ppm)},
      {"cap", fmt::format("{}", c.cap)},
      {"headroom", number(c.headroom)},
      {"pin", c.pin_distinct == 0 ? "off" : fmt::format("{}", c.pin_distinct)},
      {"retention", retention_name(c.retention)},
      {"workload", c.workload},
      {"requests", c.requests == 0 ? "all" : fmt::format("{}", c.requests)},
      {"rate", c.rate == 0 ? "saturation" : number(c.rate)},
      {"share", number(c.share)},
      {"lengths", lengths_name(c.lengths)},
      {"popularity", c.popularity == Popularity::skewed ? "skewed" : "uniform"},
      {"arrivals", arrivals_name(c.arrivals)},
      {"variance_reduction", flag(c.variance_reduction)},
      {"isolate", flag(c.isolate)},
      {"trace", flag(c.trace)},
      {"seed", fmt::format("{}", c.seed)}};
}

std::string canonical_text(const Cell& cell) {
  std::string text;
  for (auto const& [name, value] : settings_of(cell)) {
    if (!text.empty()) text += ' ';
    text += name + '=' + value;
  }
  return text;
}

std::string digest_of(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (char const c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return fmt::format("{:016x}", mix64(h));
}

std::string cell_id(const Cell& cell) { return digest_of(canonical_text(cell)); }

std::string cell_stem(const Cell& c) {
  std::string stem = fmt::format("{}-{}", arm_word(c.arm), c.budget);
  if (c.policy != "paper") stem += '-' + c.policy;
  stem += c.workload == "paper" ? fmt::format("-{}rps-cap{}-q{}", c.rate, c.cap, c.share)
                                : fmt::format("-mooncake-{}rps-cap{}", c.rate, c.cap);
  if (c.headroom > 0) stem += fmt::format("-f{}", c.headroom);
  if (c.retention.mode != RetentionMode::none) stem += "-retention";
  if (c.isolate) stem += "-isolate";
  if (c.trace) stem += "-trace";
  for (char& letter : stem)
    if (letter == '+' || letter == ':' || letter == '/') letter = '_';
  return fmt::format("{}-seed{}-{}", stem, c.seed, cell_id(c));
}

double cell_cost(const Cell& c) {
  double cost = c.workload == "paper" ? c.requests : 1e5;
  if (c.arm == Arm::d0) cost *= 2;  // 32 attention blocks for each of the others
  if (c.rate > 0 && c.rate < 2) cost *= 2;
  if (c.trace) cost *= 4;
  return cost;
}

}  // namespace hybridstate::runtime
