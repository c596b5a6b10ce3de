// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// A schedule recorded in one organization computes the same bits in every other; files that could
// not have been recorded are refused with one sentence.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <map>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "math/deterministic.hpp"
#include "test_scale.hpp"
#include "verify/schedule.hpp"
#include "verify/tiny_model.hpp"
#include "verify/verify_template.hpp"
#include "workload/trace_options.hpp"

using namespace hybridstate;
using namespace hybridstate::runtime;
using verify::Schedule;
using verify::ScheduledChunk;
using verify_tests::tiny;

namespace {

constexpr Arm all_arms[] = {Arm::s0, Arm::s1, Arm::s2, Arm::d0, Arm::d0_m512};

const FalconH1Config& config() { return tiny().model().config(); }

/// Steps numbered without gaps.
std::vector<ScheduledChunk> renumbered(std::vector<ScheduledChunk> chunks) {
  std::uint64_t last = 0;
  std::uint64_t number = 0;
  for (ScheduledChunk& c : chunks) {
    if (c.step != last) ++number;
    last = c.step;
    c.step = number;
  }
  return chunks;
}

Tokens adopted(const Schedule& schedule) {
  Tokens sum = 0;
  for (ScheduledChunk const& c : schedule.chunks) sum += c.adopted.value_or(0);
  return sum;
}

/// Replays wherever that is possible; returns in how many organizations.
int replay_everywhere(const Schedule& schedule) {
  int replayed = 0;
  std::map<Tokens, std::vector<verify::Reference>> references;
  for (Arm const arm : all_arms) {
    if (!replay_problem(schedule, arm, schedule.carry, config()).empty()) continue;
    verify::Scenario const s = replay_scenario(schedule, arm, schedule.carry, config());
    CAPTURE(describe(s));
    auto& expected = references[arm == Arm::d0 ? 0 : s.checkpoint_tokens];
    if (expected.empty()) expected = references_of(s, tiny().model());
    verify::Counts const c = replay_schedule(schedule, s, tiny().model(), expected);
    CHECK(c.mismatches() == 0);
    CHECK(c.adopted_tokens == adopted(schedule));
    CHECK(c.tokens > 0);
    ++replayed;
  }
  return replayed;
}

/// Two requests over one context of 448 tokens, where boundaries of 64 and of 224 tokens meet; the
/// second is preempted once.
Schedule common_schedule() {
  Schedule s;
  s.block_tokens = 64;
  s.native_block_tokens = 16;
  s.native_boundary_tokens = 224;
  BitGenerator bits(3);
  std::vector<TokenId> context(448);
  for (TokenId& t : context) t = static_cast<TokenId>(bits.below(config().vocabulary));
  for (std::uint32_t i = 0; i < 2; ++i) {
    Request r;
    r.tokens = context;
    r.tokens.resize(448 + 5 * (i + 1), i);
    r.prompt_tokens = static_cast<Tokens>(r.tokens.size());
    r.output_tokens = 3;
    s.workload.requests.push_back(r);
  }
  s.chunks = {{1, 0, 0, 300, 0U}, {2, 0, 300, 153, {}}, {3, 1, 448, 4, 448U},  {3, 0, 453, 1, {}},
              {4, 0, 454, 1, {}}, {4, 1, 452, 6, {}},   {6, 1, 448, 11, 448U}, {7, 1, 459, 1, {}}};
  return s;
}

std::string sentence_of(const std::string& text) {
  try {
    verify::parse_schedule(text, "s.jsonl");
  } catch (const WorkloadError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  auto const at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

int run(std::vector<const char*> words) {
  words.insert(words.begin(), "hybridstate");
  return run_command_line(static_cast<int>(words.size()), words.data());
}

}  // namespace

TEST_CASE("recorded random runs replay in every organization") {
  bool const all = test_scale() >= 0.5;
  Tokens adopted_tokens = 0;
  std::uint64_t preemptions = 0;
  for (std::uint64_t seed = 1; seed <= (all ? 6 : 2); ++seed) {
    verify::Scenario s =
        verify::random_scenario(config(), seed, {all_arms[seed % 5], Carry::bf16_per_token});
    for (Request& r : s.workload.requests) r.output_tokens = std::min<Tokens>(r.output_tokens, 20);
    CAPTURE(describe(s));
    Schedule recorded = schedule_for(s);
    verify::Counts const c =
        record_scenario(s, tiny().model(), references_of(s, tiny().model()), recorded);
    CHECK(c.mismatches() == 0);
    CHECK(c.adopted_tokens == adopted(recorded));
    // Through the file.
    Schedule const read = verify::parse_schedule(schedule_text(recorded), "recorded");
    CHECK(read.chunks == recorded.chunks);
    CHECK(schedule_text(read) == schedule_text(recorded));
    CHECK(replay_everywhere(read) >= (s.arm == Arm::d0 ? 1 : 4));
    adopted_tokens += adopted(read);
    preemptions += c.preemptions;
  }
  CHECK(adopted_tokens > 0);
  if (all) CHECK(preemptions > 0);
}

TEST_CASE("what is replayed is what the schedule says") {
  Schedule const schedule = common_schedule();
  CHECK(verify::parse_schedule(schedule_text(schedule), "s").chunks == schedule.chunks);
  CHECK(replay_everywhere(schedule) == 5);
  verify::Scenario const s = replay_scenario(schedule, Arm::s2, schedule.carry, config());
  auto const references = references_of(s, tiny().model());
  StateLayout const layout = layout_of(s, config());
  Schedule again = schedule_for(s);
  verify::Counts const c =
      verify_in(s, tiny().model(), references, {&again, &schedule},
                [&](PoolUnits units) { return ConvSlabPacked<>(layout, units[0]); });
  CHECK(again.chunks == renumbered(schedule.chunks));
  CHECK(c.preemptions == 1);
  CHECK(c.adopted_tokens == 2 * 448);
}

TEST_CASE("a schedule on the paper's two grids replays in D0 where its boundaries meet") {
  if (test_scale() < 0.5) {
    MESSAGE("skipped: HYBRIDSTATE_TEST_SCALE");
    return;
  }
  verify::Scenario s =
      verify::named_scenario(config(), "common", Arm::s1, Carry::bf16_per_token).front();
  s.workload.requests.resize(2);
  Schedule recorded = schedule_for(s);
  auto const on_512 = references_of(s, tiny().model());
  record_scenario(s, tiny().model(), on_512, recorded);
  CHECK(adopted(recorded) == 3584);
  for (Arm const arm : {Arm::s0, Arm::d0}) {
    CHECK(replay_problem(recorded, arm, recorded.carry, config()).empty());
    verify::Scenario const other = replay_scenario(recorded, arm, recorded.carry, config());
    verify::Counts const c =
        replay_schedule(recorded, other, tiny().model(),
                        arm == Arm::d0 ? references_of(other, tiny().model()) : on_512);
    CHECK(c.mismatches() == 0);
    CHECK(c.adopted_tokens == 3584);
  }
}

TEST_CASE("an organization that has no checkpoint where a request continues says so") {
  Schedule schedule = common_schedule();
  schedule.native_boundary_tokens = 256;
  std::string const problem = replay_problem(schedule, Arm::d0, schedule.carry, config());
  CHECK(problem ==
        "request 1 continues from 448 tokens in step 3, and boundaries lie every 256 "
        "tokens");
  CHECK(replay_problem(schedule, Arm::d0_m512, schedule.carry, config()).empty());
  CHECK(replay_problem(schedule, Arm::s0, Carry::bf16_at_grid, config()) ==
        "carry bf16-at-grid rounds at multiples of 256 tokens, but boundaries lie every 64");
  schedule.workload.requests[0].tokens[3] = config().vocabulary;
  CHECK(replay_problem(schedule, Arm::s0, schedule.carry, config()).find("vocabulary") !=
        std::string::npos);
}

TEST_CASE("a schedule that continues from what it never computed is refused") {
  Schedule schedule = common_schedule();
  schedule.workload.requests[1].salt = 1;
  verify::Scenario const s = replay_scenario(schedule, Arm::s1, schedule.carry, config());
  CHECK_THROWS_AS(replay_schedule(schedule, s, tiny().model(), references_of(s, tiny().model())),
                  WorkloadError);
}

TEST_CASE("malformed schedules: one sentence that names the line") {
  std::string const good = schedule_text(common_schedule());
  CHECK(sentence_of(good).empty());
  struct Case {
    const char *from, *to, *sentence;
  };
  for (Case const& c : {
           Case{R"("schedule": 1)", R"("schedule": 2)",
                R"(line 1: "schedule" names an unknown version)"},
           Case{R"("block_tokens": 64)", R"("block_tokens": 0)", R"("block_tokens" is 0)"},
           Case{R"("carry": "bf16-per-token")", R"("carry": "fp8")", R"("carry" must be)"},
           Case{R"("temperature": 0)", R"("temperature": -1)", R"("temperature" must be)"},
           Case{R"("top_p": 1)", R"("top_p": "all")", R"("top_p" must be)"},
           Case{R"("requests": 2)", R"("requests": 3)", "line 4: request 2 is expected here"},
           Case{R"({"request": 1)", R"({"request": 0)", "line 3: request 1 is expected here"},
           Case{R"("output_length": 3)", R"("output_length": 0)", R"("output_length" is 0)"},
           Case{R"("input_tokens": [)", R"("input_tokens": [4294967296, )", "no 32-bit token id"},
           Case{R"("input_tokens": [)", R"("input_tokens": [-1, )",
                R"("input_tokens" must be an array)"},
           Case{R"({"step": 1, "request": 0)", R"({"step": 0, "request": 0)",
                "line 4: \"step\" is 0"},
           Case{R"({"step": 4)", R"({"step": 2)", "\"step\" is 2, not from 3"},
           Case{R"("request": 1, "first": 448, "tokens": 4,)",
                R"("request": 2, "first": 448, "tokens": 4,)", "\"request\" is 2, not from 0 to 1"},
           Case{R"("first": 300)", R"("first": 299)", "request 0 stands at 300"},
           Case{R"("tokens": 153)", R"("tokens": 154)", "only 153 known tokens from 300 on"},
           Case{R"("tokens": 300, "adopted": 0)", R"("tokens": 300)",
                "\"adopted\" is missing where request 0 begins"},
           Case{R"("first": 448, "tokens": 4, "adopted": 448)",
                R"("first": 458, "tokens": 4, "adopted": 458)", "can continue from 457 at most"},
           Case{R"({"step": 3, "request": 0)", R"({"step": 3, "request": 1)",
                "request 1 has two chunks in step 3"},
           Case{R"({"end": 8})", R"({"end": 7})", "\"end\" says 7 chunks, but 8 were read"},
           Case{R"({"end": 8})", "", "was cut short"},
           Case{R"({"end": 8})", "{\"end\": 8}\n{}", "there is a line after"},
           Case{R"({"end": 8})", R"({"step": 8, "request": 0, "first": 455, "tokens": 1})",
                "request 0 has all of its 3 output tokens already"},
       }) {
    CAPTURE(c.to);
    std::string const sentence = sentence_of(replaced(good, c.from, c.to));
    CAPTURE(sentence);
    CHECK(sentence.find(c.sentence) != std::string::npos);
    CHECK(sentence.rfind("s.jsonl: ", 0) == 0);
    CHECK(sentence.find('\n') == std::string::npos);
  }
  CHECK(sentence_of("").find("holds no schedule") != std::string::npos);
}

TEST_CASE("damaged schedules are read or refused, never anything else") {
  std::string const good = schedule_text(common_schedule());
  BitGenerator bits(11);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (std::uint64_t n = 1 + bits.below(3); n > 0; --n) {
      std::size_t const at = bits.below(text.size());
      switch (bits.below(4)) {
        case 0:
          text[at] = static_cast<char>(bits.below(256));
          break;
        case 1:
          text.erase(at, 1 + bits.below(40));
          break;
        case 2:
          text.insert(at, text.substr(bits.below(text.size()), bits.below(60)));
          break;
        default:
          text.resize(at + 1);
      }
    }
    if (!sentence_of(text).empty()) ++refused;
  }
  CHECK(refused > 1000);
}

TEST_CASE("the command records and replays") {
  std::string const folder = tiny().folder();
  std::string const file = folder + ".schedule.jsonl";
  std::string const json = folder + ".replay.json";
  auto const write = [&](const std::string& text) { std::ofstream(file) << text; };
  auto const replay = [&](std::vector<const char*> more) {
    std::vector<const char*> words = {"verify", "--model", folder.c_str(), "--replay",
                                      file.c_str()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  CHECK(run({"verify", "--model", folder.c_str(), "--scenario", "none", "--runs", "1", "--seed",
             "4", "--orgs", "S1", "--record", file.c_str()}) == 0);
  CHECK(replay({"--orgs", "S0,S2", "--json", json.c_str()}) == 0);
  std::ifstream in(json);
  std::string const text{std::istreambuf_iterator<char>(in), {}};
  CHECK(text.find("\"S0\"") != std::string::npos);
  CHECK(text.find("\"forbidden_writes\": 0") != std::string::npos);
  std::filesystem::remove(file);
  std::filesystem::remove(json);
  // More than one run, and none.
  for (const char* runs : {"2", "0"})
    CHECK(run({"verify", "--model", folder.c_str(), "--scenario", "none", "--runs", runs,
               "--record", file.c_str()}) == 2);
  CHECK(!std::filesystem::exists(file));
  CHECK(replay({}) == 2);  // no file

  Schedule schedule = common_schedule();
  schedule.native_boundary_tokens = 256;
  write(schedule_text(schedule));
  CHECK(replay({"--orgs", "S1,D0", "--json", json.c_str()}) == 2);
  CHECK(!std::filesystem::exists(json));
  CHECK(replay({"--carry", "fp32"}) == 0);
  CHECK(replay({"--carry", "bf16-at-grid"}) == 2);  // nobody can
  CHECK(replay({"--conditions"}) == 2);
  CHECK(replay({"--break", "batch-invariance"}) == 2);
  schedule.workload.requests[1].salt = 1;  // nothing to continue from
  write(schedule_text(schedule));
  CHECK(replay({"--orgs", "S1"}) == 2);
  write(replaced(schedule_text(common_schedule()), "{\"end\": 8}", ""));
  CHECK(replay({}) == 2);
  std::filesystem::remove(file);
}
