// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <hybridstate/geometry/presets.hpp>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/process.hpp"
#include "executor/simulated.hpp"
#include "workload/workload.hpp"

namespace hs = hybridstate;
namespace rt = hybridstate::runtime;
using cli_test::call;
using cli_test::Outcome;
using Json = nlohmann::json;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Exit code 2, nothing on stdout, and one line on stderr that says each part.
void check_refused(const std::string& arguments, std::initializer_list<const char*> parts) {
  Outcome const got = call(arguments);
  CAPTURE(arguments);
  CAPTURE(got.err);
  CHECK(got.code == 2);
  CHECK(got.out.empty());
  CHECK(got.err.rfind("hybridstate: ", 0) == 0);
  CHECK(std::count(got.err.begin(), got.err.end(), '\n') == 1);
  for (const char* const part : parts) {
    CAPTURE(std::string(part));
    CHECK(contains(got.err, part));
  }
}

Json plan(const std::string& arguments, std::string* text = nullptr) {
  workload_test::TemporaryFolder const folder;
  std::string const file = folder.path() + "/plan.json";
  Outcome const got = call("plan " + arguments + " --json '" + file + "'");
  CAPTURE(got.err);
  REQUIRE(got.code == 0);
  CHECK(got.err.empty());
  if (text != nullptr) *text = got.out;
  return Json::parse(cli_test::file_text(file));
}

std::string plan_text(const std::string& arguments) {
  std::string text;
  plan(arguments, &text);
  return text;
}

const Json& row(const Json& plan, const std::string& name) {
  for (Json const& o : plan["organizations"])
    if (o["organization"] == name) return o;
  FAIL("no organization " << name);
  static const Json none;
  return none;
}

constexpr const char* falcon_config = R"({"model_type": "falcon_h1", "torch_dtype": "bfloat16",
  "hidden_size": 3072, "num_hidden_layers": 44, "num_attention_heads": 12,
  "num_key_value_heads": 2, "head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 24,
  "mamba_d_head": 128, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4})";

}  // namespace

TEST_CASE("version, help, and what is no command") {
  Outcome const version = call("--version");
  CHECK(version.code == 0);
  CHECK(version.out.rfind("hybridstate ", 0) == 0);
  CHECK(version.err.empty());
  Outcome const help = call("--help");
  CHECK(help.code == 0);
  for (const char* const part : {"plan", "presets", "examples:", "--budget b63"})
    CHECK(contains(help.out, part));
  Outcome const plan_help = call("plan --help");
  CHECK(plan_help.code == 0);
  for (const char* const part :
       {"--model", "--config", "--budget", "--memory", "--weights", "--reserve", "--tp", "--tokens",
        "--split", "--ssm-dtype", "--carry", "--cap", "--null-units", "--json", "examples:"})
    CHECK(contains(plan_help.out, part));
  check_refused("", {"hybridstate --help"});
  check_refused("serve", {"hybridstate --help"});
  check_refused("plan --nonsense 3", {"nonsense", "hybridstate --help"});
}

TEST_CASE("plan prints the numbers of Table B-2") {
  struct Row {
    const char* budget;
    const char* bytes;
    unsigned s0, s1, d0_attention, d0_recurrent;
    std::uint64_t attention_bytes, recurrent_bytes, d0_bytes, s0_bytes, s1_bytes;
  };
  for (Row const& r : {Row{"b63", "101,154,816", 63, 193, 3256, 29, 53346304, 46236672, 99582976,
                           100445184, 101187584},
                       Row{"b83", "133,267,456", 84, 254, 4289, 39, 70270976, 62180352, 132451328,
                           133926912, 133169152},
                       Row{"b108", "173,408,256", 109, 331, 5581, 51, 91439104, 81312768, 172751872,
                           173786112, 173539328}}) {
    CAPTURE(std::string(r.budget));
    std::string text;
    Json const got = plan(std::string("--model falcon-h1-7b --budget ") + r.budget, &text);
    CHECK(contains(text, r.bytes));
    CHECK(row(got, "S0")["units"] == Json{r.s0});
    CHECK(row(got, "S0")["layer_bytes"] == r.s0_bytes);
    CHECK(row(got, "S0")["total_bytes"] == r.s0_bytes * 44);
    for (const char* const name : {"S1", "S2"}) {
      CHECK(row(got, name)["units"] == Json{r.s1});
      CHECK(row(got, name)["layer_bytes"] == r.s1_bytes);
    }
    Json const& d0 = row(got, "D0");
    CHECK(d0["units"] == Json{r.d0_attention, r.d0_recurrent});
    CHECK(d0["unit_bytes"] == Json{16384, 1594368});
    CHECK(d0["pool_bytes"] == Json{r.attention_bytes, r.recurrent_bytes});
    CHECK(d0["layer_bytes"] == r.d0_bytes);
    CHECK(row(got, "D0-M512")["unit_bytes"] == Json{524288, 1594368});
    CHECK(got["budget"]["native_attention_share"] == 0.527383);
  }
  std::string text;
  plan("--model falcon-h1-7b --budget b63", &text);
  for (const char* const number :
       {"100,445,184", "101,187,584", "53,346,304", "46,236,672", "99,582,976", "3,256",
        "4,419,588,096", "1,594,368", "S1 takes less than S0 above 0.4699", "98.446 %"})
    CHECK(contains(text, number));
}

TEST_CASE("plan counts sequences and checkpoints") {
  // S1: 192 usable pages, a sequence of 4,096 tokens takes 8 + 2 x 4.
  Json const got = plan("--model falcon-h1-7b --budget b63");
  CHECK(row(got, "S0")["sequences"] == 6);  // 62 / (8 + 2)
  CHECK(row(got, "S0")["checkpoints"] == 2);
  CHECK(row(got, "S1")["sequences"] == 12);  // 192 / 16
  CHECK(row(got, "S1")["checkpoints"] == 0);
  CHECK(row(got, "S2")["sequences"] == 13);   // 13 x (8 + 2 x 3) + ceil(26 / 16) = 184
  CHECK(row(got, "S2")["checkpoints"] == 2);  // 6 more pages, 6 slots of the second slab left
  CHECK(row(got, "D0")["sequences"] == 12);   // 3255 / 256
  CHECK(row(got, "D0")["checkpoints"] == 4);  // 28 - 24
  // Without null pages the numbers are those of whole pools.
  Json const whole = plan("--model falcon-h1-7b --budget b63 --null-units 0");
  CHECK(row(whole, "S0")["checkpoints"] == 3);
  // M_X of 16 sequences with a checkpoint each: 16 x 8 pages, 16 x 3 members, one slab.
  CHECK(got["set_sequences"] == 16);
  CHECK(row(got, "S0")["stored_bytes"] == 16 * 9 * 1594368);
  CHECK(row(got, "S1")["stored_bytes"] == 16 * 12 * 524288);
  CHECK(row(got, "S2")["stored_bytes"] == (16 * 11 + 1) * 524288);
  CHECK(row(got, "D0")["stored_bytes"] == 16 * (4096 * 1024 + 1594368));
}

TEST_CASE("a total is divided over the layers and never exceeded") {
  std::string text;
  Json const got =
      plan("--model granite-4.0-h-micro --memory 40GiB --weights 15.2GB --reserve 2GiB", &text);
  std::uint64_t const state = (std::uint64_t{38} << 30) - 15200000000;
  CHECK(got["budget"]["total_bytes"] == state);
  CHECK(got["geometry"]["group_layers"] == 4);
  CHECK(got["geometry"]["recurrent_groups"] == 9);
  for (Json const& o : got["organizations"]) {
    auto const total = o["total_bytes"].get<std::uint64_t>();
    CHECK(total <= state);
    CHECK(total == 4 * o["layer_bytes"].get<std::uint64_t>());
    CHECK(o["left_over_bytes"] == state - total);
  }
  CHECK(contains(text, "left over"));
  CHECK(contains(text, "after 15,200,000,000 bytes of weights and 2,147,483,648 in reserve"));
  CHECK(got["budget"]["native_attention_share"] == 0.199699);
}

TEST_CASE("a config.json gives the plan of its preset") {
  workload_test::TemporaryFolder const folder;
  std::string const file = folder.write("config.json", falcon_config);
  std::string const share = " --budget b63 --split 0.527383";
  Json const mine = plan("--config '" + file + "'" + share);
  Json const preset = plan("--model falcon-h1-7b" + share);
  CHECK(mine["geometry"] == preset["geometry"]);
  CHECK(mine["organizations"] == preset["organizations"]);
  CHECK(contains(mine["model"].get<std::string>(), "(falcon_h1)"));

  Json const two = plan("--config '" + file + "' --memory 20GiB --tp 2 --ssm-dtype fp32");
  CHECK(two["geometry"]["kv_bytes_per_token"] == 512);
  CHECK(two["geometry"]["ssm_bytes"] == 2 * 768 * 1024);
  CHECK(two["geometry"]["conv_bytes"] == 12288);

  // The published split is for one rank and a BF16 state only.
  double const published = 0.527383;
  CHECK(
      plan("--model falcon-h1-7b --budget b63 --split auto")["budget"]["native_attention_share"] !=
      published);
  CHECK(plan("--model falcon-h1-7b --budget b63 --ssm-dtype fp32")["budget"]
                                                                  ["native_attention_share"] !=
        published);
  CHECK(plan("--model falcon-h1-7b --budget b63 --tp 2")["budget"]["native_attention_share"] !=
        published);
  CHECK(plan("--model falcon-h1-7b --budget b63 --ssm-dtype bf16")["budget"]
                                                                  ["native_attention_share"] ==
        published);
}

TEST_CASE("working states of bf16-at-grid have an arena beside the pools") {
  std::string text;
  std::string const model = "--model falcon-h1-7b ";
  Json const plain = plan(model + "--budget b63", &text);
  CHECK_FALSE(plain.contains("arena"));
  CHECK_FALSE(contains(text, "arena"));

  // A state: 44 layers x 24 x 128 x 256 x 4 bytes.
  std::uint64_t const state = std::uint64_t{44} * 3145728;
  Json const grid = plan(model + "--budget b63 --carry bf16-at-grid", &text);
  CHECK(grid["arena"] == Json{{"carry", "bf16-at-grid"},
                              {"states", 63},
                              {"bytes_per_state", state},
                              {"total_bytes", 63 * state}});
  CHECK(contains(text,
                 "bf16-at-grid: 63 working states x 138,412,032 = 8,719,958,016 bytes in total, "
                 "outside the pools and beside --budget"));
  CHECK(contains(text, "multiples of 256 tokens"));
  CHECK(grid["budget"] == plain["budget"]);
  CHECK(grid["organizations"] == plain["organizations"]);

  // Of a total, the pools get what the arena leaves.
  Json const total =
      plan(model + "--memory 40GiB --weights 15.2GB --carry bf16-at-grid --cap 32", &text);
  std::uint64_t const rest = (std::uint64_t{40} << 30) - 15200000000 - 32 * state;
  CHECK(total["arena"]["total_bytes"] == 32 * state);
  CHECK(total["budget"]["total_bytes"] == rest);
  CHECK(total["organizations"] ==
        plan(model + "--memory " + std::to_string(rest))["organizations"]);
  CHECK(contains(text, "outside the pools; subtracted from --memory before them"));
  CHECK(contains(plan_text(model + "--budget b63 --carry bf16-at-grid --cap 1"),
                 "1 working state x 138,412,032 = 138,412,032 bytes"));

  // Ranks hold their part; layers without recurrent state hold nothing.
  CHECK(plan(model + "--budget b63 --tp 2 --carry bf16-at-grid")["arena"]["bytes_per_state"] ==
        44 * 1572864);
  hs::ModelGeometry const& granite = hs::find_preset("granite-4.0-h-micro")->geometry;
  CHECK(plan("--model granite-4.0-h-micro --budget b63 --carry bf16-at-grid")["arena"]
                                                                             ["bytes_per_state"] ==
        std::uint64_t{granite.recurrent_layers} * 2 * granite.ssm_bytes());
}

TEST_CASE("a carry decides how the units store the SSM state") {
  std::string const model = "--model falcon-h1-7b --budget b63";
  std::string text;
  Json const fp32 = plan(model + " --carry fp32", &text);
  CHECK(fp32 == plan(model + " --ssm-dtype fp32"));
  CHECK(fp32 == plan(model + " --ssm-dtype fp32 --carry fp32 --cap 5"));
  CHECK(fp32["geometry"]["ssm_bytes"] == 3145728);
  CHECK_FALSE(contains(text, "arena"));
  Json const bf16 = plan(model + " --carry bf16-per-token", &text);
  CHECK(bf16 == plan(model));
  CHECK_FALSE(contains(text, "arena"));
  // A carry overrules a config.json that says otherwise.
  workload_test::TemporaryFolder const folder;
  std::string config = falcon_config;
  config.replace(config.find("\"bfloat16\""), 10, "\"float32\"");
  std::string const file = folder.write("config.json", config);
  CHECK(plan("--config '" + file + "' --budget b63")["geometry"]["ssm_dtype_bytes"] == 4);
  for (const char* const carry : {"bf16-per-token", "bf16-at-grid"})
    CHECK(plan("--config '" + file + "' --budget b63 --carry " +
               carry)["geometry"]["ssm_dtype_bytes"] == 2);
}

TEST_CASE("an organization that the budget cannot build is named, the others are planned") {
  std::string text;
  Json const got = plan("--model falcon-h1-7b --budget b1", &text);
  CHECK(row(got, "S0")["units"] == Json{1});
  CHECK(row(got, "S0")["sequences"] == 0);
  CHECK(contains(row(got, "D0")["refused"].get<std::string>(), "recurrent pool"));
  CHECK(contains(text, "D0: budget: 1605632 bytes per layer leave the recurrent pool"));
  check_refused("plan --model falcon-h1-7b --budget 1000", {"no organization can be built"});
}

TEST_CASE("plan refuses with one sentence and writes nothing") {
  std::string const model = "plan --model falcon-h1-7b";
  check_refused("plan", {"plan needs a model", "--model", "--config"});
  check_refused("plan --budget b63", {"plan needs a model"});
  check_refused(model, {"plan needs memory", "--budget b63", "--memory 40GiB"});
  check_refused(model + " --budget b63 --memory 40GiB", {"--budget and --memory exclude"});
  check_refused(model + " --config x.json --budget b63", {"--model and --config exclude"});
  check_refused("plan --model falcon --budget b63", {"--model falcon", "falcon-h1-7b"});
  check_refused(model + " --budget 63b", {"--budget 63b", "GiB"});
  check_refused(model + " --budget b0", {"--budget b0"});
  check_refused(model + " --memory lots", {"--memory lots", "GiB"});
  check_refused(model + " --budget b63 --weights 1GB", {"--weights", "--memory"});
  check_refused(model + " --budget b63 --reserve 1GB", {"--reserve", "--memory"});
  check_refused(model + " --memory 15GB --weights 14GB --reserve 1GB",
                {"15,000,000,000", "leave nothing"});
  check_refused(model + " --budget b63 --tp 5", {"tensor_parallel is 5", "24"});
  check_refused(model + " --budget b63 --tp 0", {"--tp 0", "whole number from 1"});
  check_refused(model + " --budget b63 --tokens 4k", {"--tokens 4k"});
  check_refused(model + " --budget b63 --tokens 99999999999", {"--tokens"});
  check_refused(model + " --budget b63 --null-units x", {"--null-units x"});
  for (const char* const split : {"0", "1", "-0.5", "nan", "half", "0.0000001", "0.5x"})
    check_refused(model + " --budget b63 --split=" + split, {"--split", "auto"});
  check_refused(model + " --budget b63 --ssm-dtype fp8", {"--ssm-dtype fp8", "bf16 or fp32"});
  check_refused(model + " --budget b63 --carry fp8", {"--carry fp8", "bf16-at-grid"});
  check_refused(model + " --budget b63 --carry fp32 --ssm-dtype bf16",
                {"--carry fp32 stores the SSM state in fp32", "--ssm-dtype bf16", "leave"});
  for (const char* const carry : {"bf16-per-token", "bf16-at-grid"})
    check_refused(model + " --budget b63 --ssm-dtype fp32 --carry " + carry,
                  {carry, "stores the SSM state in bf16", "--ssm-dtype fp32", "leave"});
  check_refused(model + " --budget b63 --cap 32", {"--cap", "--carry bf16-at-grid"});
  for (const char* const cap : {"0", "-1", "many", "3000000000"})
    check_refused(model + " --budget b63 --carry bf16-at-grid --cap=" + cap,
                  {"--cap", cap, "whole number from 1"});
  check_refused(model + " --memory 23.9GB --weights 15.2GB --carry bf16-at-grid",
                {"--memory 23.9GB",
                 "weights, reserve and the arena of working states take "
                 "23,919,958,016 of its 23,900,000,000 bytes",
                 "nothing for the pools", "smaller --cap"});
  check_refused(model + " --budget 5000000TiB", {"--budget 5000000TiB"});
  check_refused(model + " --budget 300000TiB", {"no organization can be built"});
  check_refused("plan --config absent.json --budget b63", {"absent.json", "cannot be opened"});

  workload_test::TemporaryFolder const folder;
  std::string huge = falcon_config;  // 4.4 GB a state
  for (auto const& [from, to] : {std::pair{"\"mamba_d_ssm\": 3072", "\"mamba_d_ssm\": 98304"},
                                 std::pair{"\"mamba_d_head\": 128", "\"mamba_d_head\": 4096"}})
    huge.replace(huge.find(from), std::string(from).size(), to);
  std::string const most = "plan --config '" + folder.write("huge.json", huge) +
                           "' --budget b63 --carry bf16-at-grid --cap ";
  CHECK(call(most + "1000000000").code == 0);
  check_refused(most + "2147483647", {"--cap 2147483647", "more than any memory"});
  std::string const broken = folder.write("config.json", R"({"model_type": "falcon_h1"})");
  std::string const json = folder.write("plan.json", "old");
  check_refused("plan --config '" + broken + "' --budget b63 --json '" + json + "'",
                {"config.json", "\"num_hidden_layers\" is missing"});
  CHECK(cli_test::file_text(json) == "old");
  check_refused(model + " --budget b63 --json '" + folder.path() + "/no/such/plan.json'", {"plan"});
  check_refused(model + " --budget b63 --json '" + folder.path() + "'", {});
}

TEST_CASE("presets lists every model, device and workload kind") {
  Outcome const table = call("presets");
  CHECK(table.code == 0);
  CHECK(table.err.empty());
  Outcome const json = call("presets --json");
  REQUIRE(json.code == 0);
  Json const root = Json::parse(json.out);
  REQUIRE(root["models"].size() == hs::presets().size());
  for (std::size_t i = 0; i < hs::presets().size(); ++i) {
    hs::ModelPreset const& preset = hs::presets()[i];
    Json const& model = root["models"][i];
    CHECK(contains(table.out, std::string(preset.name)));
    CHECK(model["name"] == std::string(preset.name));
    CHECK(model["kv_bytes_per_token"] == preset.geometry.kv_bytes_per_token());
    CHECK(model["total_layers"] == preset.total_layers);
    CHECK(model["state_bytes_per_sequence"] ==
          preset.geometry.composite_bytes() * preset.geometry.recurrent_layers);
    CHECK(model.contains("native_attention_share") == (preset.attention_ppm != 0));
  }
  CHECK(contains(table.out, "70,152,192"));
  CHECK(contains(table.out, "0.527383"));
  REQUIRE(root["devices"].size() == rt::step_laws().size());
  for (std::size_t i = 0; i < rt::step_laws().size(); ++i) {
    CHECK(root["devices"][i]["name"] == rt::step_laws()[i].name);
    CHECK(contains(table.out, rt::step_laws()[i].name));
  }
  CHECK(root["devices"][0]["base_ms"] == 15.4);
  REQUIRE(root["workloads"].size() == 4);
  for (Json const& kind : root["workloads"]) {
    CHECK_NOTHROW(rt::parse_workload_spec(kind["name"].get<std::string>()));
    CHECK(contains(table.out, kind["name"].get<std::string>()));
  }
  check_refused("presets extra", {"extra"});
}
