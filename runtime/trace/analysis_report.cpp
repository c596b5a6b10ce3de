// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "trace/analyze.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

double per_episode(std::uint64_t sum, const EpisodeSums& s) {
  return s.episodes == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(s.episodes);
}

Json sums_json(const EpisodeSums& s) {
  Json j;
  j["episodes"] = s.episodes;
  for (int c = 0; c < depth_classes; ++c)
    j["transitions"][depth_class_name(static_cast<DepthClass>(c))] = s.classes[c];
  auto const bracket = [](std::uint64_t m0, std::uint64_t m1) {
    return Json{{"m0", m0}, {"m1", m1}};
  };
  j["token_sums"]["j_enter"] = s.enter;
  j["token_sums"]["j_adopt"] = s.adopt;
  j["token_sums"]["a"] = bracket(s.attention_before, s.attention_now);
  j["token_sums"]["r"] = bracket(s.recurrent_before, s.recurrent_now);
  j["token_sums"]["gap_r"] = bracket(s.gap_before, s.gap_now);
  if (s.episodes > 0) {
    j["means"]["j_enter"] = per_episode(s.enter, s);
    j["means"]["j_adopt"] = per_episode(s.adopt, s);
    j["means"]["a_m1"] = per_episode(s.attention_now, s);
    j["means"]["r_m1"] = per_episode(s.recurrent_now, s);
    j["means"]["gap_r_m1"] = per_episode(s.gap_now, s);
  }
  j["bracketed_episodes"] = s.bracketed;
  j["depth_decreasing_losses"] = s.decreasing_losses;
  j["by_other_requests"] = s.other_losses;
  j["depth_increasing_publications"] = s.increasing_publications;
  j["shallower_with_other_loss"] = s.shallower_with_other_loss;
  j["waived"] = s.waived;
  return j;
}

Json episode_json(const Episode& e) {
  Json j;
  j["request"] = e.request;
  j["preemptions"] = e.preemptions;
  j["tokens"] = e.tokens;
  j["j_enter"] = e.enter;
  if (!e.admitted) return j;
  j["step"] = e.admitted_step;
  j["j_adopt"] = e.adopt;
  j["a"] = {e.before.attention, e.now.attention};
  j["r"] = {e.before.recurrent, e.now.recurrent};
  j["gap_r"] = {e.gap_before(), e.gap_now()};
  j["transition"] = depth_class_name(depth_class(e.enter, e.adopt));
  j["decreasing_losses"] = e.decreasing_losses;
  j["by_other_requests"] = e.other_losses;
  j["increasing_publications"] = e.increasing_publications;
  if (e.waived) j["waived"] = true;
  if (!e.replayed()) j["replayed"] = false;
  return j;
}

}  // namespace

std::string analysis_json(const TraceHeader& header, const Analysis& a) {
  Json j;
  j["format"] = "hybridstate.trace-analysis";
  j["version"] = 1;
  j["organization"] = header.organization;
  j["policy"] = header.policy;
  j["note"] = header.note;
  j["block_tokens"] = header.block_tokens;
  j["checkpoint_tokens"] = header.checkpoint_tokens;
  j["admissions"] = a.admissions;
  j["never_admitted"] = a.never_admitted;
  j["replay"]["equal"] = a.admissions - a.mismatches - a.unbound_admissions;
  j["replay"]["different"] = a.mismatches;
  j["replay"]["unbound"] = a.unbound_admissions;
  j["replay"]["unmatched_events"] = a.unmatched_events;
  j["publications"] = a.publications;
  j["losses"]["all"] = a.losses;
  for (std::size_t c = 1; c < std::size(a.losses_by_cause); ++c)
    j["losses"][cause_name(static_cast<LossCause>(c))] = a.losses_by_cause[c];
  j["initial"] = sums_json(a.initial);
  j["resume"] = sums_json(a.resume);
  j["episodes"] = Json::array();
  for (Episode const& e : a.episodes) j["episodes"].push_back(episode_json(e));
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string analysis_text(const TraceHeader& header, const Analysis& a) {
  std::string text =
      fmt::format("{}, {}, blocks of {} tokens, checkpoints every {}\n", header.organization,
                  header.policy, header.block_tokens, header.checkpoint_tokens);
  if (!header.note.empty()) text += header.note + "\n";
  auto const row = [&](const std::string& name, const std::string& first,
                       const std::string& second) {
    text += fmt::format("{:<38}{:>12}{:>12}\n", name, first, second);
  };
  text += '\n';
  row("", "INITIAL", "RESUME");
  auto const count = [&](const char* name, auto of) {
    row(name, fmt::format("{}", of(a.initial)), fmt::format("{}", of(a.resume)));
  };
  auto const mean = [&](const char* name, auto of) {
    auto const cell = [&](const EpisodeSums& s) {
      return s.episodes == 0 ? std::string("-") : fmt::format("{:.2f}", per_episode(of(s), s));
    };
    row(name, cell(a.initial), cell(a.resume));
  };
  using S = const EpisodeSums&;
  count("admission episodes", [](S s) { return s.episodes; });
  constexpr const char* names[] = {"  zero -> zero", "  positive, equal", "  zero -> positive",
                                   "  deeper", "  shallower"};
  for (int c = 0; c < depth_classes; ++c) count(names[c], [c](S s) { return s.classes[c]; });
  count("  shallower with another's loss", [](S s) { return s.shallower_with_other_loss; });
  mean("J_enter, tokens per episode", [](S s) { return s.enter; });
  mean("J_adopt", [](S s) { return s.adopt; });
  mean("A, M0", [](S s) { return s.attention_before; });
  mean("A, M1 (inferred)", [](S s) { return s.attention_now; });
  mean("R, M0", [](S s) { return s.recurrent_before; });
  mean("R, M1 (inferred)", [](S s) { return s.recurrent_now; });
  mean("Gap_R = R - J, M0", [](S s) { return s.gap_before; });
  mean("Gap_R = R - J, M1 (inferred)", [](S s) { return s.gap_now; });
  count("episodes where M0 and M1 differ", [](S s) { return s.bracketed; });
  count("depth-decreasing losses", [](S s) { return s.decreasing_losses; });
  count("  by other requests' allocations", [](S s) { return s.other_losses; });
  count("depth-increasing publications", [](S s) { return s.increasing_publications; });
  count("admissions that gave J up", [](S s) { return s.waived; });
  text += fmt::format("\n{} publications, {} losses:", a.publications, a.losses);
  for (std::size_t c = 1; c < std::size(a.losses_by_cause); ++c)
    if (a.losses_by_cause[c] > 0)
      text += fmt::format(" {} {}", a.losses_by_cause[c], cause_name(static_cast<LossCause>(c)));
  text += fmt::format("\nreplayed J_adopt equals the recorded one in {} of {} admissions\n",
                      a.admissions - a.mismatches - a.unbound_admissions, a.admissions);
  if (a.never_admitted > 0) text += fmt::format("{} episodes never admitted\n", a.never_admitted);
  if (a.unmatched_events > 0)
    text += fmt::format("{} losses or adoptions of objects that were never published\n",
                        a.unmatched_events);
  return text;
}

}  // namespace hybridstate::runtime
