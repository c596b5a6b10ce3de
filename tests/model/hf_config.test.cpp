// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/hf_config.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "workload/support.hpp"

namespace hs = hybridstate;
namespace rt = hybridstate::runtime;
using Json = nlohmann::json;

namespace {

constexpr const char* falcon_7b = R"({"architectures": ["FalconH1ForCausalLM"],
  "model_type": "falcon_h1", "torch_dtype": "bfloat16", "hidden_size": 3072,
  "num_hidden_layers": 44, "num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 128,
  "mamba_d_ssm": 3072, "mamba_expand": 2, "mamba_n_heads": 24, "mamba_d_head": 128,
  "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4, "attn_layer_indices": null,
  "rope_theta": 100000000000.0, "time_step_limit": [0.0, Infinity],
  "ssm_multipliers": [0.35, 0.25, 0.17, 0.5, 0.35]})";

constexpr const char* falcon_34b = R"({"model_type": "falcon_h1", "dtype": "bfloat16",
  "hidden_size": 5120, "num_hidden_layers": 72, "num_attention_heads": 20,
  "num_key_value_heads": 4, "head_dim": 128, "mamba_d_ssm": 4096, "mamba_expand": 2,
  "mamba_n_heads": 32, "mamba_d_head": "auto", "mamba_d_state": 256, "mamba_n_groups": 2,
  "mamba_d_conv": 4})";

std::string repeated(const std::string& word, int times, const std::string& between) {
  std::string text;
  for (int i = 0; i < times; ++i) text += (i == 0 ? "" : between) + word;
  return text;
}

/// A JSON list of `total` words: `special` at layers first, first + step, ...
std::string layer_list(int total, int first, int step, const char* special, const char* other) {
  std::string text = "[";
  for (int i = 0; i < total; ++i) {
    bool const here = i >= first && (i - first) % step == 0;
    text += std::string(i == 0 ? "\"" : ", \"") + (here ? special : other) + "\"";
  }
  return text + "]";
}

std::string granite_micro() {
  return R"({"model_type": "granitemoehybrid", "torch_dtype": "bfloat16", "hidden_size": 2048,
    "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
    "mamba_expand": 2, "mamba_n_heads": 64, "mamba_d_head": 64, "mamba_d_state": 128,
    "mamba_n_groups": 1, "mamba_d_conv": 4, "layer_types": )" +
         layer_list(40, 5, 10, "attention", "mamba") + "}";
}

std::string granite_tiny() {
  return R"({"model_type": "granitemoehybrid", "dtype": "bfloat16", "hidden_size": 1536,
    "num_hidden_layers": 40, "num_attention_heads": 12, "num_key_value_heads": 4,
    "mamba_expand": 2, "mamba_n_heads": 48, "mamba_d_head": "auto", "mamba_d_state": 128,
    "mamba_n_groups": 1, "mamba_d_conv": 4, "layer_types": )" +
         layer_list(40, 5, 10, "full_attention", "linear_attention") + "}";
}

constexpr const char* bamba = R"({"model_type": "bamba", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27], "mamba_expand": 2,
  "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_d_state": 128, "mamba_n_groups": 1,
  "mamba_d_conv": 4})";

std::string nemotron(const std::string& pattern, const std::string& rest) {
  return R"({"model_type": "nemotron_h", "torch_dtype": "bfloat16", "num_hidden_layers": )" +
         std::to_string(pattern.size()) + R"(, "hybrid_override_pattern": ")" + pattern +
         R"(", "time_step_limit": [0.0, Infinity], "time_step_rank": NaN, "expand": 2,
         "conv_kernel": 4, "n_groups": 8, "ssm_state_size": 128, )" +
         rest + "}";
}
std::string nemotron_8b() {
  return nemotron("M-M-M-M*-" + repeated("M-M-M-M-M*-", 3, "") + "M-M-M-M-M-",
                  R"("hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
         "attention_head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64)");
}
std::string nemotron_nano_9b() {
  return nemotron(repeated("M", 27, "") + "****" + repeated("-", 25, ""),
                  R"("hidden_size": 4480, "num_attention_heads": 40, "num_key_value_heads": 8,
         "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 80)");
}
std::string nemotron_3_nano() {
  return nemotron(repeated("ME", 23, "") + "******",
                  R"("hidden_size": 2688, "num_attention_heads": 32, "num_key_value_heads": 2,
         "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64)");
}

constexpr const char* delta_net = R"("linear_num_key_heads": 16, "linear_num_value_heads": 32,
  "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
  "head_dim": 256, "num_attention_heads": 16, )";

std::string qwen_next() {
  return std::string(R"({"model_type": "qwen3_next", "torch_dtype": "bfloat16", )") + delta_net +
         R"("hidden_size": 2048, "num_hidden_layers": 48, "num_key_value_heads": 2,
         "full_attention_interval": 4})";
}
std::string qwen_4b(const char* state = "float32") {
  return std::string(R"({"model_type": "qwen3_5", "vision_config": {"hidden_size": 1024},
    "text_config": {"model_type": "qwen3_5_text", "dtype": "bfloat16", )") +
         delta_net + R"("hidden_size": 2560, "num_hidden_layers": 32, "num_key_value_heads": 4,
         "mamba_ssm_dtype": ")" +
         state + R"(", "layer_types": )" +
         layer_list(32, 3, 4, "full_attention", "linear_attention") + "}}";
}
std::string qwen_35b() {
  return std::string(R"({"model_type": "qwen3_5_moe", "dtype": "bfloat16", "text_config": {)") +
         delta_net + R"("hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2,
         "full_attention_interval": 4}})";
}

std::string zamba(const std::string& layers) {
  return R"({"model_type": "zamba2", "torch_dtype": "bfloat16", "hidden_size": 2048,
    "num_hidden_layers": 38, "num_attention_heads": 32, "num_key_value_heads": 32,
    "mamba_expand": 2, "n_mamba_heads": 64, "mamba_headdim": 64, "mamba_d_state": 128,
    "mamba_ngroups": 1, "mamba_d_conv": 4, )" +
         layers + "}";
}

constexpr const char* jamba = R"({"model_type": "jamba", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_expand": 2,
  "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_dt_rank": 256})";

rt::ConfigGeometry read(const std::string& text, std::uint32_t ranks = 1) {
  workload_test::TemporaryFolder const folder;
  return rt::read_geometry(folder.write("config.json", text), ranks);
}

/// The sentence of the ConfigError; empty when there is none.
std::string refusal(const std::string& text, std::uint32_t ranks = 1) {
  workload_test::TemporaryFolder const folder;
  std::string const file = folder.write("config.json", text);
  try {
    rt::read_geometry(file, ranks);
  } catch (const rt::ConfigError& error) {
    std::string const sentence = error.what();
    CHECK(sentence.rfind(file + ": ", 0) == 0);  // names the file
    CHECK(sentence.find('\n') == std::string::npos);
    return sentence;
  }
  return {};
}

/// The text with one field changed, added, or taken away by a null.
std::string with(std::string text, const char* field, const std::string& value) {
  for (std::string_view const word : {"Infinity", "NaN"})
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word))
      text.replace(at, word.size(), "0");
  Json object = Json::parse(text);
  object[field] = Json::parse(value);
  return object.dump();
}

bool says(const std::string& sentence, const std::string& part) {
  CAPTURE(sentence);
  CAPTURE(part);
  bool const found = sentence.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("every family gives the published bytes") {
  struct Row {
    const char* preset;
    const char* family;
    std::string text;
    hs::Bytes kv, conv, ssm, sequence;
    std::uint32_t ssm_dtype;
  };
  std::vector<Row> const rows = {
      {"falcon-h1-7b", "falcon_h1", falcon_7b, 1024, 21504, 1572864, 70152192, 2},
      {"falcon-h1-34b", "falcon_h1", falcon_34b, 2048, 30720, 2097152, 153206784, 2},
      {"granite-4.0-h-micro", "granitemoehybrid", granite_micro(), 2048, 26112, 1048576, 38688768,
       2},
      {"granite-4.0-h-tiny", "granitemoehybrid", granite_tiny(), 2048, 19968, 786432, 29030400, 2},
      {"bamba-9b", "bamba", bamba, 4096, 50688, 2097152, 62287360, 2},
      {"nemotron-h-8b", "nemotron_h", nemotron_8b(), 4096, 61440, 2097152, 51806208, 2},
      {"nemotron-nano-9b-v2", "nemotron_h", nemotron_nano_9b(), 4096, 73728, 2621440, 72769536, 2},
      {"nemotron-3-nano-30b-a3b", "nemotron_h", nemotron_3_nano(), 1024, 36864, 1048576, 24965120,
       2},
      {"qwen3-next-80b-a3b", "qwen3_next", qwen_next(), 2048, 49152, 1048576, 39518208, 2},
      {"qwen3.5-4b", "qwen3_5", qwen_4b(), 4096, 49152, 2097152, 51511296, 4},
      {"qwen3.5-4b", "qwen3_5", qwen_4b("auto"), 4096, 49152, 1048576, 26345472, 2},
      {"qwen3.5-35b-a3b", "qwen3_5_moe", qwen_35b(), 2048, 49152, 1048576, 32931840, 2},
      {"zamba2-1.2b", "zamba2", zamba(R"("hybrid_layer_ids": [5, 11, 17, 23, 29, 35])"), 16384,
       26112, 1048576, 40838144, 2},
      {"zamba2-1.2b", "zamba2",
       zamba(R"("attention_head_dim": 128, "layers_block_type": )" +
             layer_list(38, 5, 6, "hybrid", "mamba")),
       16384, 26112, 1048576, 40838144, 2},
      {"jamba-v0.1", "jamba", jamba, 4096, 49152, 262144, 8716288, 2},
  };
  for (Row const& row : rows) {
    CAPTURE(row.preset);
    CAPTURE(row.text);
    rt::ConfigGeometry const got = read(row.text);
    const hs::ModelPreset* const preset = hs::find_preset(row.preset);
    REQUIRE(preset != nullptr);
    CHECK(got.family == row.family);
    CHECK(got.total_layers == preset->total_layers);
    CHECK(got.geometry == hs::with_ssm_dtype(preset->geometry, row.ssm_dtype));
    CHECK(got.geometry.kv_bytes_per_token() == row.kv);
    CHECK(got.geometry.conv_bytes() == row.conv);
    CHECK(got.geometry.ssm_bytes() == row.ssm);
    CHECK(got.geometry.composite_bytes() * got.geometry.recurrent_layers == row.sequence);
  }
}

TEST_CASE("what a family derives, and only that") {
  // Falcon-H1-7B's head_dim is not hidden_size / heads; without the field it is that.
  CHECK(read(with(falcon_7b, "head_dim", "null")).geometry.head_dim == 256);
  CHECK(says(refusal(with(with(falcon_7b, "head_dim", "null"), "hidden_size", "3073")),
             "hidden_size = 3073 is not a multiple of num_attention_heads = 12"));
  // 2 x 3072 is not 24 x 128.
  CHECK(says(refusal(with(falcon_7b, "mamba_d_ssm", "null")), "mamba_expand x hidden_size = 6144"));
  std::string const automatic =
      with(with(falcon_7b, "mamba_d_ssm", "null"), "mamba_d_head", "\"auto\"");
  CHECK(read(automatic).geometry.ssm_head_dim == 256);
  CHECK(says(refusal(with(automatic, "mamba_expand", "null")), "\"mamba_d_ssm\" is missing"));
  CHECK(says(refusal(with(with(bamba, "mamba_expand", "null"), "mamba_d_head", "\"auto\"")),
             "\"auto\", which needs mamba_expand x hidden_size"));
  // Qwen and Nemotron-H have a head_dim of their own: no default for it.
  CHECK(says(refusal(with(qwen_next(), "head_dim", "null")), "field \"head_dim\" is missing"));
  CHECK(says(refusal(with(nemotron_8b(), "attention_head_dim", "null")),
             "field \"head_dim\" or \"attention_head_dim\" is missing"));
}

TEST_CASE("element widths come from the config") {
  CHECK(read(with(falcon_7b, "mamba_ssm_cache_dtype", "\"float32\"")).geometry.ssm_dtype_bytes ==
        4);
  hs::ModelGeometry const wide = read(with(falcon_7b, "torch_dtype", "\"float32\"")).geometry;
  CHECK(wide.kv_dtype_bytes == 4);
  CHECK(wide.conv_dtype_bytes == 4);
  CHECK(wide.ssm_dtype_bytes == 4);
  CHECK(read(with(falcon_7b, "torch_dtype", "\"torch.float16\"")).geometry.kv_dtype_bytes == 2);
  CHECK(says(refusal(with(falcon_7b, "torch_dtype", "null")), "\"torch_dtype\" (or \"dtype\")"));
  CHECK(says(refusal(with(falcon_7b, "torch_dtype", "\"int4\"")),
             "field \"torch_dtype\" is \"int4\", but it must be \"bfloat16\""));
  CHECK(says(refusal(with(falcon_7b, "dtype", "\"float32\"")), "they must be the same"));
  CHECK(says(refusal(with(falcon_7b, "mamba_ssm_dtype", "4")), "field \"mamba_ssm_dtype\" is 4"));
}

TEST_CASE("tensor parallel ranks share the heads") {
  hs::ModelGeometry const two = read(falcon_7b, 2).geometry;
  CHECK(two.kv_bytes_per_token() == 512);
  CHECK(two.ssm_bytes() == 768 * 1024);
  CHECK(two.conv_bytes() == 12288);
  CHECK(says(refusal(falcon_7b, 5), "tensor_parallel is 5, which does not divide the 24"));
  CHECK(says(refusal(falcon_7b, 0), "tensor_parallel is 0"));
}

TEST_CASE("the layers decide whether a model is hybrid") {
  // Granite-4.0-micro has the mamba fields, but only attention layers.
  std::string const plain =
      with(granite_micro(), "layer_types", layer_list(40, 0, 1, "attention", "mamba"));
  CHECK(says(refusal(plain),
             "field \"layer_types\" gives 40 attention and 0 recurrent layers, but a hybrid model "
             "has both"));
  CHECK(says(refusal(with(bamba, "attn_layer_indices", "[]")), "gives 0 attention and 32"));
  CHECK(says(refusal(with(bamba, "attn_layer_indices", "null")),
             "\"attn_layer_indices\" is missing"));
  CHECK(says(refusal(with(bamba, "attn_layer_indices", "[9, 32]")),
             "has the layer number 32, but it must be a whole number from 0 to 31"));
  CHECK(says(refusal(with(bamba, "attn_layer_indices", "[9, 9]")), "has layer 9 twice"));
  CHECK(says(refusal(with(bamba, "attn_layer_indices", "[-1]")), "has the layer number -1"));
  CHECK(says(refusal(with(bamba, "attn_layer_indices", "9")), "must list layer numbers"));
  CHECK(says(refusal(with(granite_micro(), "num_hidden_layers", "39")),
             "lists 40 layers, but num_hidden_layers is 39"));
  CHECK(says(refusal(with(granite_micro(), "layer_types", "null")), "\"layer_types\" is missing"));
  CHECK(says(refusal(with(granite_micro(), "layer_types", "\"mamba\"")), "one word per layer"));
  CHECK(says(refusal(with(granite_micro(), "layer_types",
                          layer_list(40, 5, 10, "sliding_attention", "mamba"))),
             "has \"sliding_attention\" for layer 5"));
  CHECK(says(refusal(with(nemotron_8b(), "num_hidden_layers", "51")), "has 52 letters"));
  CHECK(says(refusal(nemotron("M*X", R"("num_attention_heads": 8)")), "has \"X\" for layer 2"));
  CHECK(says(refusal(with(qwen_next(), "full_attention_interval", "null")),
             "so is \"full_attention_interval\""));
  CHECK(says(refusal(with(qwen_next(), "full_attention_interval", "49")), "gives 0 attention"));
  CHECK(says(refusal(with(qwen_next(), "full_attention_interval", "1")), "and 0 recurrent"));
  CHECK(says(refusal(zamba("\"x\": 0")), "so is \"hybrid_layer_ids\""));
  CHECK(says(refusal(with(jamba, "attn_layer_offset", "8")), "must be below attn_layer_period"));
  CHECK(read(with(jamba, "attn_layer_offset", "0")).geometry.attention_layers == 4);
  CHECK(says(refusal(with(jamba, "num_hidden_layers", "3")), "gives 0 attention"));
}

TEST_CASE("every field that bytes depend on must be there and make sense") {
  struct Case {
    std::string text;
    std::vector<const char*> fields;
  };
  std::vector<Case> const cases = {
      {falcon_7b,
       {"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "mamba_n_heads",
        "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"}},
      {granite_micro(), {"num_hidden_layers", "num_key_value_heads", "mamba_n_heads"}},
      {nemotron_8b(),
       {"num_key_value_heads", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups",
        "conv_kernel"}},
      {qwen_next(),
       {"num_key_value_heads", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"}},
      {zamba("\"hybrid_layer_ids\": [5]"),
       {"num_key_value_heads", "n_mamba_heads", "mamba_headdim", "mamba_d_state", "mamba_ngroups",
        "mamba_d_conv"}},
      {jamba,
       {"num_key_value_heads", "attn_layer_period", "attn_layer_offset", "mamba_d_state",
        "mamba_d_conv", "mamba_expand", "hidden_size"}},
  };
  for (Case const& c : cases)
    for (const char* const field : c.fields) {
      std::string const name = "\"" + std::string(field) + "\"";
      CAPTURE(name);
      CHECK(says(refusal(with(c.text, field, "null")), name + " is missing"));
      for (std::string const value :
           {"-1", "1.0001", "\"4\"", "true", "[]", "{}", "2147483648", "1e300"}) {
        CAPTURE(value);
        CHECK(says(refusal(with(c.text, field, value)), field));
      }
      if (name != "\"attn_layer_offset\"")
        CHECK(says(refusal(with(c.text, field, "0")), name + " is 0, but"));
    }
  CHECK(says(refusal(with(falcon_7b, "mamba_d_conv", "1")), "a whole number from 2"));
  CHECK(says(refusal(with(falcon_7b, "mamba_n_groups", "5")), "must divide mamba_n_heads = 24"));
  CHECK(says(refusal(with(falcon_7b, "num_key_value_heads", "5")), "must divide"));
  CHECK(says(refusal(with(falcon_7b, "mamba_n_heads", "25")),
             "mamba_n_heads x mamba_d_head must be mamba_d_ssm = 3072"));
  std::string huge = falcon_7b;
  for (const char* const field : {"mamba_n_heads", "mamba_d_head", "mamba_d_state"})
    huge = with(huge, field, "2147483647");
  CHECK(says(refusal(with(huge, "mamba_d_ssm", "2147483647")), "must be mamba_d_ssm"));
  std::string wide = nemotron_8b();
  for (const char* const field : {"mamba_num_heads", "mamba_head_dim", "ssm_state_size"})
    wide = with(wide, field, "2147483647");
  CHECK(says(refusal(with(wide, "n_groups", "1")), "exceed 2^62 bytes"));
}

TEST_CASE("files that are no config") {
  CHECK(says(refusal(R"({"model_type": "llama"})"),
             "field \"model_type\" is \"llama\", but it must be one of falcon_h1"));
  CHECK(says(refusal(R"({"model_type": 7})"), "field \"model_type\" is 7"));
  CHECK(says(refusal(R"({"model_type": ["falcon_h1"]})"), "field \"model_type\" is a list"));
  CHECK(says(refusal("{}"), "field \"model_type\" is missing"));
  CHECK(says(refusal("[]"), "holds array"));
  CHECK(says(refusal(""), "line 1 is not valid JSON"));
  CHECK(says(refusal("{\n\"model_type\": \n}"), "line 3 is not valid JSON"));
  CHECK(says(refusal("{\"a\": 1e999}"), "beyond every range"));
  CHECK(says(refusal(std::string("\x80\xff\0{", 4)), "not valid JSON"));
  CHECK(says(
      refusal("{\"model_type\": " + repeated("[", 300000, "") + repeated("]", 300000, "") + "}"),
      "field \"model_type\" is a list"));
  // Words in strings stay as they are.
  CHECK(says(refusal(R"({"model_type": "Infinity \" NaN"})"), R"("Infinity \" NaN")"));

  workload_test::TemporaryFolder const folder;
  auto const sentence = [](const std::string& path) {
    try {
      rt::read_geometry(path);
    } catch (const rt::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(says(sentence(folder.path()), "is a folder; give the config.json inside it"));
  CHECK(says(sentence(folder.path() + "/absent.json"), "cannot be opened"));
  CHECK(says(sentence(folder.write("big.json", std::string(std::size_t{17} << 20, ' '))),
             "more than 16 MiB"));
}

TEST_CASE("broken configs are refused, never followed") {
  std::vector<std::string> const texts = {falcon_7b,
                                          granite_micro(),
                                          bamba,
                                          nemotron_8b(),
                                          qwen_next(),
                                          qwen_4b(),
                                          zamba(R"("hybrid_layer_ids": [5, 11])"),
                                          jamba};
  std::mt19937 random(7);
  auto const below = [&random](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::string const alphabet = "0123456789-+.eE\"{}[]:,nulltrueINaf\\ \n\x80\xff";
  auto const change_bytes = [&](std::string& text) {
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
      std::size_t const at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        case 2:
          text.erase(at, 1 + below(8));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), 1 + below(20)));
          break;
      }
      if (text.empty()) text = " ";
    }
  };
  std::vector<std::string> const values = {
      "0",      "1",   "2",  "3",    "16",  "128",      "2147483647", "18446744073709551615",
      "-1",     "[]",  "{}", "null", "0.5", "\"auto\"", "[0]",        "[[[1]]]",
      "\"M*\"", "true"};
  auto const change_field = [&](std::string& text) {
    Json object = Json::parse(with(text, "seed", "1"));
    Json& inner = object.contains("text_config") ? object["text_config"] : object;
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      auto at = inner.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(below(inner.size())));
      *at = Json::parse(values[below(values.size())]);
    }
    text = object.dump();
  };
  int accepted = 0;
  int refused = 0;
  workload_test::TemporaryFolder const folder;
  for (int i = 0; i < 4000; ++i) {
    std::string text = texts[below(texts.size())];
    if (i % 2 == 0)
      change_bytes(text);
    else
      change_field(text);
    std::string const file = folder.write("config.json", text);
    try {
      rt::ConfigGeometry const got = rt::read_geometry(file, 1 + static_cast<std::uint32_t>(i) % 3);
      CHECK(hs::problem(got.geometry).empty());
      ++accepted;
    } catch (const rt::ConfigError& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      ++refused;
    }
  }
  CHECK(accepted > 100);
  CHECK(refused > 100);
}
