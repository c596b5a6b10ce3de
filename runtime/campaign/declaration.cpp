// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "campaign/declaration.hpp"

#include <algorithm>
#include <utility>

namespace hybridstate::runtime {

const char* role_name(Role role) {
  switch (role) {
    case Role::primary:
      return "primary";
    case Role::descriptive:
      return "descriptive";
    case Role::selection:
      return "selection";
    case Role::sensitivity:
      return "sensitivity";
  }
  return "";
}

const char* statistic_name(Statistic statistic) {
  switch (statistic) {
    case Statistic::relative_sign_flip:
      return "sign-flip test of the relative effects in percent";
    case Statistic::log_sign_flip:
      return "sign-flip test of the log ratios";
    case Statistic::containment:
      return "90 % paired t interval of 100 ln(arm / baseline) inside [-3, +3]";
    case Statistic::log_t_interval:
      return "95 % paired t interval of the log effects, in percent";
  }
  return "";
}

const char* interval_name(IntervalKind kind) {
  switch (kind) {
    case IntervalKind::range:
      return "seed range";
    case IntervalKind::bootstrap_95:
      return "95 % bootstrap";
    case IntervalKind::t_90:
      return "90 % paired t";
    case IntervalKind::log_t_95:
      return "95 % paired t of logs";
  }
  return "";
}

const Question* Catalogue::find(const std::string& id) const {
  auto const found = std::find_if(questions.begin(), questions.end(),
                                  [&](const Question& q) { return q.id == id; });
  return found == questions.end() ? nullptr : &*found;
}

const Experiment* Catalogue::experiment(const std::string& id) const {
  for (Question const& question : questions)
    for (Experiment const& experiment : question.experiments)
      if (experiment.id == id) return &experiment;
  return nullptr;
}

std::vector<std::pair<std::string, std::string>> places_of(const Experiment& experiment) {
  std::vector<std::pair<std::string, std::string>> places;
  for (Entry const& entry : experiment.entries) {
    std::pair<std::string, std::string> place{entry.point, entry.arm};
    if (std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(std::move(place));
  }
  return places;
}

std::vector<const Entry*> execution_order(const Experiment& experiment) {
  std::vector<std::uint64_t> seeds;
  for (Entry const& entry : experiment.entries)
    if (std::find(seeds.begin(), seeds.end(), entry.cell.seed) == seeds.end())
      seeds.push_back(entry.cell.seed);
  std::vector<const Entry*> order;
  for (std::size_t s = 0; s < seeds.size(); ++s) {
    std::vector<const Entry*> block;
    for (Entry const& entry : experiment.entries)
      if (entry.cell.seed == seeds[s]) block.push_back(&entry);
    if (experiment.balanced)
      std::rotate(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(s % block.size()),
                  block.end());
    order.insert(order.end(), block.begin(), block.end());
  }
  return order;
}

}  // namespace hybridstate::runtime
