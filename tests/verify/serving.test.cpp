// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Continuation is exact in random and named runs.

#include "verify/verify.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "cli/command.hpp"
#include "verify/tiny_model.hpp"

using namespace hybridstate;
using namespace hybridstate::runtime;
using verify_tests::tiny;

TEST_CASE("200 random serving runs compute what each request computes alone") {
  auto const runs = std::max<std::uint64_t>(static_cast<std::uint64_t>(200 * test_scale()), 5);
  verify::VerifyModel const model = tiny().model();
  std::vector<verify::Counts> counts(runs);
  auto const serve = [&](std::uint64_t first) {
    for (std::uint64_t i = first; i < runs; i += 2)
      counts[i] = verify_scenario(verify::random_scenario(model.config(), i + 1, {}), model);
  };
  std::thread other(serve, 1);
  serve(0);
  other.join();
  verify::Counts total;
  for (std::uint64_t i = 0; i < runs; ++i) {
    CAPTURE(i + 1);
    CHECK(counts[i].different_tokens == 0);
    CHECK(counts[i].different_logits == 0);
    CHECK(counts[i].different_checkpoints == 0);
    CHECK(counts[i].different_blocks == 0);
    CHECK(counts[i].forbidden_writes == 0);
    total += counts[i];
  }
  MESSAGE(total.runs << " runs, " << total.requests << " requests, " << total.adopted_tokens
                     << " adopted tokens, " << total.preemptions << " preemptions, " << total.tokens
                     << " tokens, " << total.checkpoints << " checkpoints, " << total.blocks
                     << " blocks");
  CHECK(total.adopted_tokens > 0);
  CHECK(total.checkpoints > 0);
  if (runs >= 200) CHECK(total.preemptions > 0);
}

TEST_CASE("the runs of Appendix D.5 compute what each request computes alone") {
  if (test_scale() < 0.5) {
    MESSAGE("skipped: HYBRIDSTATE_TEST_SCALE");
    return;
  }
  // The batches of 32 and 53 are left to the command: they take half a minute.
  for (std::string const name : {"depths", "reclaim"}) {
    std::vector<verify::Reference> references;  // the same on every 512-token grid
    for (Arm const arm : {Arm::s0, Arm::s1, Arm::s2, Arm::d0}) {
      verify::Scenario const s =
          verify::named_scenario(tiny().model().config(), name, arm, Carry::bf16_per_token).front();
      INFO(describe(s));
      if (references.empty() || arm == Arm::d0) references = references_of(s, tiny().model());
      verify::Counts const c = verify_scenario(s, tiny().model(), references);
      CHECK(c.mismatches() == 0);
      if (arm != Arm::d0) CHECK(c.checkpoints > 0);
      if (name == "depths") CHECK(c.adopted_tokens >= (arm == Arm::d0 ? 1792 * 2 : 512 * 10));
    }
  }
}

TEST_CASE("the command: 0 when all agree, 2 and one sentence for bad input") {
  auto const run = [](std::vector<const char*> words) {
    words.insert(words.begin(), "hybridstate");
    return run_command_line(static_cast<int>(words.size()), words.data());
  };
  std::string const folder = tiny().folder();
  std::string const json = folder + ".json";
  CHECK(run({"verify", "--model", folder.c_str(), "--scenario", "none", "--runs", "5", "--json",
             json.c_str()}) == 0);
  std::ifstream in(json);
  std::string const text{std::istreambuf_iterator<char>(in), {}};
  CHECK(text.find("\"forbidden_writes\": 0") != std::string::npos);
  CHECK(text.find("\"runs\": 5") != std::string::npos);
  std::filesystem::remove(json);
  CHECK(run({"verify", "--model", folder.c_str(), "--scenario", "deep"}) == 2);
  CHECK(run({"verify", "--model", folder.c_str(), "--orgs", "S9"}) == 2);
  CHECK(run({"verify", "--model", folder.c_str(), "--orgs", "infinite"}) == 2);
  CHECK(run({"verify", "--model", folder.c_str(), "--carry", "fp8"}) == 2);
  CHECK(run({"verify", "--model", (folder + "-missing").c_str()}) == 2);
  CHECK(run({"verify", "--model", folder.c_str(), "--break", "everything"}) == 2);
  CHECK(run({"verify", "--model", folder.c_str(), "--scenario", "none", "--runs", "30", "--break",
             "lossless-checkpoint", "--carry", "bf16-per-token"}) == 1);
  CHECK(run({"verify"}) == 2);
}
