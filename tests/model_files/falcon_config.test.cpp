// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/falcon_config.hpp"

#include <nlohmann/json.hpp>

#include "math/deterministic.hpp"
#include "support.hpp"

using namespace hybridstate::runtime;
using Json = nlohmann::json;

namespace {

Json sound() { return Json::parse(falcon_config_json(falcon_preset("tiny").config, Dtype::bf16)); }

FalconH1Config parsed(const Json& json) { return parse_falcon_config("c.json", json.dump()); }

}  // namespace

TEST_CASE("what is written is read back, for every preset") {
  for (FalconPreset const& preset : falcon_presets()) {
    CAPTURE(preset.name);
    FalconH1Config expected = preset.config;
    expected.dtype = Dtype::f16;
    CHECK(parse_falcon_config("c.json", falcon_config_json(preset.config, Dtype::f16)) == expected);
  }
  FalconH1Config odd = small_config();
  odd.ssm_groups = 3;
  odd.attention_bias = odd.mlp_bias = odd.in_proj_bias = odd.out_proj_bias = true;
  odd.conv_bias = odd.gated_norm = false;
  odd.norm_before_gate = odd.tied = true;
  odd.chunk = odd.max_positions = 0;
  odd.time_step_low = 0.001;
  odd.eos_ids = {11, 22};
  odd.bos_id.reset();
  odd.dtype = Dtype::f32;
  CHECK(parse_falcon_config("c.json", falcon_config_json(odd, Dtype::f32)) == odd);
  odd.time_step_high = 0.25;
  CHECK(parse_falcon_config("c.json", falcon_config_json(odd, Dtype::f32)) == odd);
}

TEST_CASE("both spellings of rope_theta") {
  Json j = sound();
  j.erase("rope_theta");
  CHECK(contains(sentence_of([&] { parsed(j); }), "\"rope_theta\" is missing"));
  j["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e11}};
  CHECK(parsed(j).rope_theta == 1e11);
  j["rope_parameters"]["partial_rotary_factor"] = 1;
  j["rope_theta"] = 100000000000;  // a whole number
  CHECK(parsed(j).rope_theta == 1e11);
  j["rope_theta"] = 1e5;
  CHECK(contains(sentence_of([&] { parsed(j); }), "must be the same"));
  j.erase("rope_theta");
  j["rope_parameters"]["rope_type"] = "yarn";
  CHECK(contains(sentence_of([&] { parsed(j); }), "rope_parameters.rope_type\" is \"yarn\""));
  j["rope_parameters"] = {{"rope_theta", 1e11}, {"factor", 4.0}};
  CHECK(contains(sentence_of([&] { parsed(j); }), "rope_parameters.factor\" is not supported"));
  j["rope_parameters"] = {{"rope_theta", 1e11}, {"partial_rotary_factor", 0.5}};
  CHECK(contains(sentence_of([&] { parsed(j); }), "partial_rotary_factor"));
}

TEST_CASE("what may be absent, and what it then is") {
  Json j = sound();
  for (const char* const name :
       {"attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias", "mamba_conv_bias",
        "tie_word_embeddings", "torch_dtype", "bos_token_id", "eos_token_id", "mamba_chunk_size",
        "max_position_embeddings", "architectures", "hidden_act", "rope_scaling"})
    j.erase(name);
  j["head_dim"] = nullptr;     // 64 / 4
  j["mamba_d_ssm"] = nullptr;  // 6 x 64
  j["mamba_expand"] = 6;
  j["mamba_d_head"] = "auto";
  FalconH1Config const c = parsed(j);
  CHECK(c.head_dim == 16);
  CHECK(c.ssm_head_dim == 16);
  CHECK(c.ssm_width() == 384);
  CHECK(c.conv_bias);
  CHECK_FALSE(c.attention_bias);
  CHECK_FALSE(c.tied);
  CHECK(c.tied_unsaid);
  CHECK_FALSE(c.dtype);
  CHECK(c.eos_ids.empty());
}

TEST_CASE("mamba_expand means nothing beside mamba_d_ssm") {
  Json j = sound();
  j["mamba_expand"] = 2;
  CHECK(parsed(j).ssm_width() == 384);
}

TEST_CASE("the spellings of an unbounded time step") {
  std::string const text = sound().dump();
  for (const char* const high : {"Infinity", "{\"__float__\": \"Infinity\"}", "\"inf\"", "1e300"}) {
    std::string const with =
        fmt::format("{{\"time_step_limit\": [0.0, {}], {}", high, text.substr(1));
    double const read = parse_falcon_config("c.json", with).time_step_high;
    CHECK(read >= 1e300);
  }
  CHECK(contains(sentence_of([&] {
                   parse_falcon_config("c.json",
                                       "{\"time_step_limit\": [NaN, 1]," + text.substr(1));
                 }),
                 "time_step_limit"));
}

TEST_CASE("fields that change nothing are listed") {
  Json j = sound();
  j["use_cache"] = true;
  j["a_new_field"] = {1, 2};
  j["another"] = "x";
  CHECK(parsed(j).unread_fields == std::vector<std::string>{"a_new_field", "another"});
}

TEST_CASE("each bad value has its sentence, which names file and field") {
  struct Case {
    const char* field;
    Json value;  // null: erased
  };
  std::vector<Case> cases = {
      {"model_type", "falcon_mamba"},
      {"architectures", Json::array({"LlamaForCausalLM"})},
      {"architectures", "FalconH1ForCausalLM"},
      {"hidden_act", "gelu"},
      {"rope_scaling", {{"type", "linear"}}},
      {"quantization_config", {{"bits", 4}}},
      {"sliding_window", 4096},
      {"num_hidden_layers", 0},
      {"hidden_size", -64},
      {"hidden_size", 64.5},
      {"hidden_size", "64"},
      {"vocab_size", 4294967296},
      {"num_key_value_heads", 3},
      {"head_dim", 7},
      {"rope_theta", 0},
      {"rope_theta", "1e11"},
      {"rope_parameters", 7},
      {"mamba_d_ssm", 100},
      {"mamba_d_head", "automatic"},
      {"mamba_n_groups", 5},
      {"mamba_d_conv", 1},
      {"mamba_d_state", 2147483647},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", 1e300},
      {"mamba_rms_norm", 1},
      {"attention_bias", "false"},
      {"ssm_multipliers", {1, 1, 1, 1}},
      {"ssm_multipliers", {1, 1, 1, 1, "x"}},
      {"mlp_multipliers", 1.0},
      {"key_multiplier", "small"},
      {"time_step_limit", {1}},
      {"time_step_limit", {0.5, 0.25}},
      {"time_step_limit", {-1, 1}},
      {"torch_dtype", "int8"},
      {"dtype", "float32"},  // torch_dtype is bfloat16
      {"eos_token_id", 500},
      {"eos_token_id", {1, -1}},
      {"bos_token_id", "one"},
  };
  for (const char* const needed : {"model_type",
                                   "num_hidden_layers",
                                   "hidden_size",
                                   "intermediate_size",
                                   "vocab_size",
                                   "num_attention_heads",
                                   "num_key_value_heads",
                                   "rope_theta",
                                   "rms_norm_eps",
                                   "mamba_d_ssm",
                                   "mamba_n_heads",
                                   "mamba_d_head",
                                   "mamba_d_state",
                                   "mamba_n_groups",
                                   "mamba_d_conv",
                                   "mamba_rms_norm",
                                   "mamba_norm_before_gate",
                                   "embedding_multiplier",
                                   "lm_head_multiplier",
                                   "attention_in_multiplier",
                                   "attention_out_multiplier",
                                   "key_multiplier",
                                   "ssm_in_multiplier",
                                   "ssm_out_multiplier",
                                   "ssm_multipliers",
                                   "mlp_multipliers"})
    cases.push_back({needed, nullptr});
  for (Case const& bad : cases) {
    Json j = sound();
    if (bad.value.is_null())
      j.erase(bad.field);
    else
      j[bad.field] = bad.value;
    std::string const sentence = sentence_of([&] { parsed(j); });
    CAPTURE(bad.field);
    CAPTURE(bad.value.dump());
    CAPTURE(sentence);
    CHECK(contains(sentence, "c.json: field \""));
    CHECK(contains(sentence, bad.field));
    CHECK(contains(sentence, bad.value.is_null() ? "missing" : " "));
    CHECK_FALSE(contains(sentence, "\n"));
  }
}

TEST_CASE("broken texts") {
  auto const sentence = [](const std::string& text) {
    return sentence_of([&] { parse_falcon_config("c.json", text); });
  };
  CHECK(contains(sentence(""), "line 1 is not valid JSON"));
  CHECK(contains(sentence("{\n\"a\": 1,\n\"b\" 2}"), "line 3 is not valid JSON"));
  CHECK(contains(sentence("[1]"), "instead of an object"));
  CHECK(contains(sentence("{\"a\": 1e999}"), "beyond every range"));
  CHECK(contains(sentence("{\"a\": 1, \"a\": 2}"), "field \"a\" is there twice"));
  CHECK(contains(sentence("{\"a\": {\"b\": 1, \"b\": 2}}"), "field \"b\" is there twice"));
  CHECK(contains(sentence("{\"a\": " + std::string(100000, '[')), "nested deeper"));
  CHECK(contains(sentence("{\"\xff\": 1}"), "not valid JSON"));
}

TEST_CASE("folders, missing files and the end ids of generation_config.json") {
  TestFolder const folder;
  CHECK(contains(sentence_of([&] { read_falcon_config(folder.path()); }),
                 "config.json: cannot be opened"));
  Json j = sound();
  write_file(folder / "config.json", j.dump());
  CHECK(read_falcon_config(folder.path()).eos_ids == std::vector<std::uint32_t>{11});
  write_file(folder / "generation_config.json", R"({"eos_token_id": [11, 228, 11]})");
  CHECK(read_falcon_config(folder / "config.json").eos_ids == std::vector<std::uint32_t>{11, 228});
  write_file(folder / "generation_config.json", R"({"bos_token_id": 3})");
  CHECK(read_falcon_config(folder.path()).eos_ids == std::vector<std::uint32_t>{11});
  write_file(folder / "generation_config.json", R"({"eos_token_id": 500})");
  CHECK(contains(sentence_of([&] { read_falcon_config(folder.path()); }),
                 "generation_config.json: field \"eos_token_id\""));
  write_file(folder / "generation_config.json", "{");
  CHECK(contains(sentence_of([&] { read_falcon_config(folder.path()); }),
                 "generation_config.json: line 1"));
}

TEST_CASE("20,000 damaged texts are read or refused with one sentence") {
  int const runs = fuzz_runs(20000);
  BitGenerator bits(11);
  std::string const base = falcon_config_json(falcon_preset("tiny").config, Dtype::bf16);
  int accepted = 0;
  for (int run = 0; run < runs; ++run) {
    std::string text = base;
    for (std::uint64_t n = 1 + bits.below(3); n > 0 && !text.empty(); --n) {
      std::size_t const at = bits.below(text.size());
      std::uint64_t const kind = bits.below(5);
      std::uint64_t const a = bits.next();  // one draw a statement: equal on every compiler
      std::uint64_t const b = bits.next();
      if (kind == 0)
        text[at] = static_cast<char>(a % 256);
      else if (kind == 1)
        text.erase(at, 1 + a % 20);
      else if (kind == 2)
        text.insert(at, 1 + a % 3, "0123456789-.e{}[],:\""[b % 20]);
      else if (kind == 3)
        text.insert(at, text.substr(a % text.size(), b % 60));
      else
        text.resize(at + 1);
    }
    try {
      FalconH1Config const config = parse_falcon_config("c.json", text);
      CHECK(config_problem(config).empty());
      ++accepted;
    } catch (const ModelError& error) {
      std::string const sentence = error.what();
      CHECK(contains(sentence, "c.json: "));
      CHECK_FALSE(contains(sentence, "\n"));
      CHECK(sentence.size() < 600);
    }
  }
  CHECK(accepted > 0);
}
