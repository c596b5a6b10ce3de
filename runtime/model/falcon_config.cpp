// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/falcon_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "model/model_json.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t largest_count = 0x7fffffffU;
constexpr std::size_t largest_file = std::size_t{16} << 20;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Fields that change no result of this forward pass: what training, other code or this reader's
/// user (the cache) does with them is their business.
constexpr std::string_view harmless_fields[] = {
    "_name_or_path",     "attention_dropout",    "attn_layer_indices",   "auto_map",
    "initializer_range", "mamba_use_mlp",        "mlp_expansion_factor", "num_logits_to_keep",
    "output_attentions", "output_hidden_states", "pad_token_id",         "return_dict",
    "time_step_floor",   "time_step_max",        "time_step_min",        "transformers_version",
    "use_cache",         "use_mamba_kernels",
};

/// Fields that would change a result and must be null, false or absent.
constexpr const char* refused_fields[] = {"quantization_config", "rope_scaling", "sliding_window"};

/// The fields of one object; a field that is null counts as absent. Remembers which were asked for.
class Fields {
 public:
  Fields(std::string file, std::string prefix, const Json& object)
      : file_(std::move(file)), prefix_(std::move(prefix)), object_(object) {}

  template <class... Args>
  [[noreturn]] void fail(std::string_view name, fmt::format_string<Args...> format,
                         Args&&... args) const {
    throw ModelError(fmt::format("{}: field {} {}", file_, quoted_name(prefix_ + std::string(name)),
                                 fmt::format(format, std::forward<Args>(args)...)));
  }

  const std::string& file() const noexcept { return file_; }

  const Json* find(const char* name) {
    asked_.insert(name);
    auto const at = object_.find(name);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  const Json& need(const char* name, std::string_view kind) {
    if (const Json* const value = find(name)) return *value;
    fail(name, "is missing; it must be {}", kind);
  }

  std::uint32_t as_count(const char* name, const Json& value, std::uint64_t least) const {
    if (value.is_number_unsigned()) {
      auto const number = value.get<std::uint64_t>();
      if (number >= least && number <= largest_count) return static_cast<std::uint32_t>(number);
    }
    fail(name, "is {}, but it must be a whole number from {} to {}", shown_value(value), least,
         largest_count);
  }
  std::uint32_t count(const char* name, std::uint64_t least = 1) {
    return as_count(name, need(name, fmt::format("a whole number from {} up", least)), least);
  }
  std::optional<std::uint32_t> count_if_any(const char* name, std::uint64_t least = 1) {
    const Json* const value = find(name);
    return value != nullptr ? std::optional(as_count(name, *value, least)) : std::nullopt;
  }

  bool as_flag(const char* name, const Json& value) const {
    if (!value.is_boolean()) fail(name, "is {}, but it must be true or false", shown_value(value));
    return value.get<bool>();
  }
  bool flag(const char* name) { return as_flag(name, need(name, "true or false")); }
  bool flag_or(const char* name, bool otherwise) {
    const Json* const value = find(name);
    return value != nullptr ? as_flag(name, *value) : otherwise;
  }

  double as_number(const char* name, const Json& value) const {
    if (!value.is_number()) fail(name, "is {}, but it must be a number", shown_value(value));
    auto const number = value.get<double>();
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max())))
      fail(name, "is {}, which is too large for a 32-bit float", shown_value(value));
    return number;
  }
  double number(const char* name) { return as_number(name, need(name, "a number")); }
  template <std::size_t N>
  std::array<double, N> numbers(const char* name, std::string_view meaning) {
    std::string const kind = fmt::format("a list of {} numbers ({})", N, meaning);
    const Json& value = need(name, kind);
    if (!value.is_array() || value.size() != N)
      fail(name, "is {}, but it must be {}", shown_value(value), kind);
    std::array<double, N> numbers{};
    for (std::size_t i = 0; i < N; ++i) numbers[i] = as_number(name, value[i]);
    return numbers;
  }

  /// The fields that nobody asked for, in the file's order of names.
  std::vector<std::string> unasked() const {
    std::vector<std::string> names;
    for (auto const& [name, value] : object_.items())
      if (!asked_.contains(name)) names.push_back(name);
    return names;
  }

 private:
  std::string file_;
  std::string prefix_;
  const Json& object_;
  std::set<std::string, std::less<>> asked_;
};

void refuse_other_models(Fields& fields) {
  const Json& type = fields.need("model_type", "\"falcon_h1\"");
  if (type != "falcon_h1")
    fields.fail("model_type", "is {}, but only \"falcon_h1\" can be run", shown_value(type));
  if (const Json* const named = fields.find("architectures"))
    if (!named->is_array() ||
        std::find(named->begin(), named->end(), "FalconH1ForCausalLM") == named->end())
      fields.fail("architectures", "is {}, but it must list \"FalconH1ForCausalLM\"",
                  shown_value(*named));
  if (const Json* const act = fields.find("hidden_act"); act != nullptr && *act != "silu")
    fields.fail("hidden_act", "is {}, but only \"silu\" is supported", shown_value(*act));
  for (const char* const name : refused_fields)
    if (const Json* const value = fields.find(name); value != nullptr && *value != false)
      fields.fail(name, "is {}, which is not supported; it must be null or absent",
                  shown_value(*value));
}

double as_theta(const Fields& fields, const char* name, const Json& value) {
  double const theta = fields.as_number(name, value);
  if (!(theta > 0)) fields.fail(name, "is {}, but it must be above 0", shown_value(value));
  return theta;
}

double read_rope_theta(Fields& fields) {
  std::optional<double> older;
  if (const Json* const value = fields.find("rope_theta"))
    older = as_theta(fields, "rope_theta", *value);
  std::optional<double> newer;
  if (const Json* const object = fields.find("rope_parameters")) {
    if (!object->is_object())
      fields.fail("rope_parameters", "is {}, but it must be an object with a rope_theta",
                  shown_value(*object));
    Fields rope(fields.file(), "rope_parameters.", *object);
    for (const char* const name : {"rope_type", "type"})
      if (const Json* const type = rope.find(name); type != nullptr && *type != "default")
        rope.fail(name, "is {}, but only \"default\" is supported", shown_value(*type));
    if (const Json* const part = rope.find("partial_rotary_factor");
        part != nullptr && *part != 1.0)
      rope.fail("partial_rotary_factor", "is {}, but all of a head is rotated: it must be 1",
                shown_value(*part));
    if (const Json* const value = rope.find("rope_theta"))
      newer = as_theta(rope, "rope_theta", *value);
    for (std::string const& name : rope.unasked())
      if (!(*object)[name].is_null()) rope.fail(name, "is not supported; remove it");
  }
  if (!older && !newer)
    fields.fail("rope_theta", "is missing and so is \"rope_parameters\"; give one of them");
  if (older && newer && *older != *newer)
    fields.fail("rope_theta", "is {}, but rope_parameters.rope_theta is {}; they must be the same",
                *older, *newer);
  return older ? *older : *newer;
}

/// One end of time_step_limit: a number, or an infinity in one of the spellings of Python writers.
double limit_end(const Fields& fields, const Json& value) {
  const Json* inner = &value;
  if (value.is_object() && value.size() == 1 && value.contains("__float__"))
    inner = &value["__float__"];
  if (inner->is_number()) {
    auto const number = inner->get<double>();
    if (std::isfinite(number)) return number;
  }
  if (*inner == "Infinity" || *inner == "inf" || *inner == "+inf") return infinity;
  fields.fail("time_step_limit", "has the end {}, but it must be a number or Infinity",
              shown_value(value));
}

void read_time_step_limit(Fields& fields, FalconH1Config& config) {
  const Json* const limit = fields.find("time_step_limit");
  if (limit == nullptr) return;
  if (!limit->is_array() || limit->size() != 2)
    fields.fail("time_step_limit", "is {}, but it must be a list of two numbers (low, high)",
                shown_value(*limit));
  config.time_step_low = limit_end(fields, (*limit)[0]);
  config.time_step_high = limit_end(fields, (*limit)[1]);
}

void read_recurrent_sizes(Fields& fields, FalconH1Config& config) {
  config.ssm_heads = fields.count("mamba_n_heads");
  config.ssm_state = fields.count("mamba_d_state");
  config.ssm_groups = fields.count("mamba_n_groups");
  config.conv_width = fields.count("mamba_d_conv", 2);
  config.chunk = fields.count_if_any("mamba_chunk_size").value_or(0);
  const Json* const expand = fields.find("mamba_expand");
  std::optional<std::uint32_t> width = fields.count_if_any("mamba_d_ssm");
  if (!width) {
    if (expand == nullptr)
      fields.fail("mamba_d_ssm", "is missing and so is \"mamba_expand\"; give the first");
    double const product = fields.as_number("mamba_expand", *expand) * config.hidden;
    if (!(product >= 1) || product > static_cast<double>(largest_count) ||
        product != std::floor(product))
      fields.fail(
          "mamba_expand",
          "is {}, but its product with hidden_size = {} must be a whole number from 1 to {}",
          shown_value(*expand), config.hidden, largest_count);
    width = static_cast<std::uint32_t>(product);
  }
  const Json& rows = fields.need("mamba_d_head", "a whole number or \"auto\"");
  if (rows == "auto") {
    if (*width % config.ssm_heads != 0)
      fields.fail("mamba_d_head",
                  "is \"auto\", but mamba_d_ssm = {} is not a multiple of mamba_n_heads = {}",
                  *width, config.ssm_heads);
    config.ssm_head_dim = *width / config.ssm_heads;
  } else {
    config.ssm_head_dim = fields.as_count("mamba_d_head", rows, 1);
  }
  if (std::uint64_t const product = std::uint64_t{config.ssm_heads} * config.ssm_head_dim;
      product != *width)
    fields.fail("mamba_d_ssm", "is {}, but mamba_n_heads x mamba_d_head = {} x {} is {}", *width,
                config.ssm_heads, config.ssm_head_dim, product);
}

std::optional<Dtype> as_dtype(const Fields& fields, const char* name, const Json* value) {
  if (value == nullptr) return std::nullopt;
  std::string word = value->is_string() ? value->get<std::string>() : std::string();
  if (word.starts_with("torch.")) word.erase(0, 6);
  if (word == "bfloat16") return Dtype::bf16;
  if (word == "float16" || word == "half") return Dtype::f16;
  if (word == "float32" || word == "float") return Dtype::f32;
  fields.fail(name, R"(is {}, but it must be "bfloat16", "float16" or "float32")",
              shown_value(*value));
}

std::vector<std::uint32_t> as_ids(const Fields& fields, const char* name, const Json& value,
                                  std::uint32_t vocabulary) {
  std::vector<std::uint32_t> ids;
  auto const add = [&](const Json& id) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocabulary)
      fields.fail(name,
                  "has the id {}, but it must be a whole number from 0 to vocab_size - 1 = {}",
                  shown_value(id), vocabulary - 1);
    auto const number = static_cast<std::uint32_t>(id.get<std::uint64_t>());
    if (std::find(ids.begin(), ids.end(), number) == ids.end()) ids.push_back(number);
  };
  if (value.is_array())
    for (const Json& id : value) add(id);
  else
    add(value);
  return ids;
}

/// Whether `a` times `b` is too large to number rows.
bool too_wide(std::uint64_t a, std::uint64_t b) { return a * b > largest_count; }

}  // namespace

ModelGeometry FalconH1Config::geometry(std::uint32_t kv_bytes, std::uint32_t ssm_bytes,
                                       std::uint32_t conv_bytes) const noexcept {
  ModelGeometry geometry;
  geometry.attention_layers = layers;
  geometry.recurrent_layers = layers;
  geometry.kv_heads = kv_heads;
  geometry.head_dim = head_dim;
  geometry.ssm_heads = ssm_heads;
  geometry.ssm_head_dim = ssm_head_dim;
  geometry.ssm_state = ssm_state;
  geometry.conv_groups = ssm_groups;
  geometry.d_conv = conv_width;
  geometry.kv_dtype_bytes = kv_bytes;
  geometry.ssm_dtype_bytes = ssm_bytes;
  geometry.conv_dtype_bytes = conv_bytes;
  return geometry;
}

std::string config_problem(const FalconH1Config& c) {
  struct {
    const char* name;
    std::uint32_t value;
  } const positive[] = {
      {"num_hidden_layers", c.layers},
      {"hidden_size", c.hidden},
      {"intermediate_size", c.intermediate},
      {"vocab_size", c.vocabulary},
      {"num_attention_heads", c.heads},
      {"num_key_value_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"mamba_n_heads", c.ssm_heads},
      {"mamba_d_head", c.ssm_head_dim},
      {"mamba_d_state", c.ssm_state},
      {"mamba_n_groups", c.ssm_groups},
  };
  for (auto const& field : positive)
    if (field.value == 0) return fmt::format("\"{}\" is 0, but it must be above 0", field.name);
  if (c.heads % c.kv_heads != 0)
    return fmt::format("\"num_key_value_heads\" is {}, but it must divide num_attention_heads = {}",
                       c.kv_heads, c.heads);
  if (c.head_dim % 2 != 0)
    return fmt::format("\"head_dim\" is {}, but its halves are rotated: it must be even",
                       c.head_dim);
  if (c.ssm_heads % c.ssm_groups != 0)
    return fmt::format("\"mamba_n_groups\" is {}, but it must divide mamba_n_heads = {}",
                       c.ssm_groups, c.ssm_heads);
  if (c.conv_width < 2)
    return fmt::format("\"mamba_d_conv\" is {}, but it must be at least 2", c.conv_width);
  if (too_wide(c.heads, c.head_dim))
    return fmt::format(
        "\"head_dim\" is {}, but num_attention_heads x head_dim must stay below 2^31", c.head_dim);
  if (too_wide(c.ssm_heads, c.ssm_head_dim) || too_wide(c.ssm_groups, c.ssm_state) ||
      2 * std::uint64_t{c.ssm_heads} * c.ssm_head_dim +
              2 * std::uint64_t{c.ssm_groups} * c.ssm_state + c.ssm_heads >
          largest_count)
    return fmt::format(
        "\"mamba_d_state\" is {}, but the rows of mamba.in_proj (2 d_ssm + 2 groups x d_state + "
        "heads) must stay below 2^31",
        c.ssm_state);
  if (!(c.norm_epsilon > 0))
    return fmt::format("\"rms_norm_eps\" is {}, but it must be above 0", c.norm_epsilon);
  if (!(c.time_step_low <= c.time_step_high) || c.time_step_low < 0)
    return fmt::format(
        "\"time_step_limit\" is [{}, {}], but it must begin at 0 or above and not run backwards",
        c.time_step_low, c.time_step_high);
  return {};
}

FalconH1Config parse_falcon_config(const std::string& file, const std::string& text) {
  Json const root = parse_model_json(file, text);
  Fields fields(file, "", root);
  refuse_other_models(fields);
  FalconH1Config c;
  c.layers = fields.count("num_hidden_layers");
  c.hidden = fields.count("hidden_size");
  c.intermediate = fields.count("intermediate_size");
  c.vocabulary = fields.count("vocab_size");
  c.max_positions = fields.count_if_any("max_position_embeddings").value_or(0);

  c.heads = fields.count("num_attention_heads");
  c.kv_heads = fields.count("num_key_value_heads");
  if (auto const given = fields.count_if_any("head_dim")) {
    c.head_dim = *given;
  } else {
    if (c.hidden % c.heads != 0)
      fields.fail("head_dim",
                  "is missing and hidden_size = {} is not a multiple of num_attention_heads = {}; "
                  "give it",
                  c.hidden, c.heads);
    c.head_dim = c.hidden / c.heads;
  }
  c.rope_theta = read_rope_theta(fields);
  read_recurrent_sizes(fields, c);

  c.norm_epsilon = fields.number("rms_norm_eps");
  c.gated_norm = fields.flag("mamba_rms_norm");
  c.norm_before_gate = c.gated_norm ? fields.flag("mamba_norm_before_gate")
                                    : fields.flag_or("mamba_norm_before_gate", false);
  c.conv_bias = fields.flag_or("mamba_conv_bias", true);
  c.attention_bias = fields.flag_or("attention_bias", false);
  c.mlp_bias = fields.flag_or("mlp_bias", false);
  c.in_proj_bias = fields.flag_or("mamba_proj_bias", false);
  c.out_proj_bias = fields.flag_or("projectors_bias", false);
  c.tied_unsaid = fields.find("tie_word_embeddings") == nullptr;
  c.tied = fields.flag_or("tie_word_embeddings", false);

  c.embedding_multiplier = fields.number("embedding_multiplier");
  c.lm_head_multiplier = fields.number("lm_head_multiplier");
  c.attention_in_multiplier = fields.number("attention_in_multiplier");
  c.attention_out_multiplier = fields.number("attention_out_multiplier");
  c.key_multiplier = fields.number("key_multiplier");
  c.ssm_in_multiplier = fields.number("ssm_in_multiplier");
  c.ssm_out_multiplier = fields.number("ssm_out_multiplier");
  c.ssm_multipliers = fields.numbers<5>("ssm_multipliers", "z, x, B, C, dt");
  auto const mlp = fields.numbers<2>("mlp_multipliers", "gate, down");
  c.gate_multiplier = mlp[0];
  c.down_multiplier = mlp[1];
  read_time_step_limit(fields, c);

  auto const newer = as_dtype(fields, "dtype", fields.find("dtype"));
  auto const older = as_dtype(fields, "torch_dtype", fields.find("torch_dtype"));
  if (newer && older && *newer != *older)
    fields.fail("dtype", "and \"torch_dtype\" differ; they must be the same");
  c.dtype = newer ? newer : older;
  if (const Json* const bos = fields.find("bos_token_id"))
    c.bos_id = fields.as_count("bos_token_id", *bos, 0);
  if (const Json* const eos = fields.find("eos_token_id"))
    c.eos_ids = as_ids(fields, "eos_token_id", *eos, c.vocabulary);

  if (std::string const why = config_problem(c); !why.empty())
    throw ModelError(fmt::format("{}: field {}", file, why));
  for (std::string const& name : fields.unasked())
    if (std::find(std::begin(harmless_fields), std::end(harmless_fields), name) ==
        std::end(harmless_fields))
      c.unread_fields.push_back(name);
  return c;
}

FalconH1Config read_falcon_config(const std::filesystem::path& config_json_or_folder) {
  std::filesystem::path path = config_json_or_folder;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  std::string const file = path.string();
  FalconH1Config config = parse_falcon_config(
      file, read_model_text(path, largest_file,
                            "the config.json of a Falcon-H1 model (or make one: hybridstate "
                            "make-model)"));
  std::filesystem::path const beside = path.parent_path() / "generation_config.json";
  if (std::filesystem::exists(beside, ignored)) {
    std::string const name = beside.string();
    Json const root =
        parse_model_json(name, read_model_text(beside, largest_file, "a readable file"));
    Fields fields(name, "", root);
    if (const Json* const eos = fields.find("eos_token_id"))
      config.eos_ids = as_ids(fields, "eos_token_id", *eos, config.vocabulary);
  }
  return config;
}

std::string falcon_config_json(const FalconH1Config& c, Dtype dtype) {
  nlohmann::ordered_json j;
  j["architectures"] = nlohmann::ordered_json::array({"FalconH1ForCausalLM"});
  j["model_type"] = "falcon_h1";
  j["torch_dtype"] = dtype == Dtype::bf16  ? "bfloat16"
                     : dtype == Dtype::f16 ? "float16"
                                           : "float32";
  j["num_hidden_layers"] = c.layers;
  j["hidden_size"] = c.hidden;
  j["intermediate_size"] = c.intermediate;
  j["vocab_size"] = c.vocabulary;
  if (c.max_positions != 0) j["max_position_embeddings"] = c.max_positions;
  j["num_attention_heads"] = c.heads;
  j["num_key_value_heads"] = c.kv_heads;
  j["head_dim"] = c.head_dim;
  j["hidden_act"] = "silu";
  j["rope_theta"] = c.rope_theta;
  j["rope_scaling"] = nullptr;
  j["rms_norm_eps"] = c.norm_epsilon;
  j["tie_word_embeddings"] = c.tied;
  j["attention_bias"] = c.attention_bias;
  j["mlp_bias"] = c.mlp_bias;
  j["mamba_proj_bias"] = c.in_proj_bias;
  j["projectors_bias"] = c.out_proj_bias;
  j["mamba_conv_bias"] = c.conv_bias;
  j["mamba_d_ssm"] = c.ssm_width();
  j["mamba_n_heads"] = c.ssm_heads;
  j["mamba_d_head"] = c.ssm_head_dim;
  j["mamba_d_state"] = c.ssm_state;
  j["mamba_n_groups"] = c.ssm_groups;
  j["mamba_d_conv"] = c.conv_width;
  if (c.chunk != 0) j["mamba_chunk_size"] = c.chunk;
  j["mamba_rms_norm"] = c.gated_norm;
  j["mamba_norm_before_gate"] = c.norm_before_gate;
  j["embedding_multiplier"] = c.embedding_multiplier;
  j["lm_head_multiplier"] = c.lm_head_multiplier;
  j["attention_in_multiplier"] = c.attention_in_multiplier;
  j["attention_out_multiplier"] = c.attention_out_multiplier;
  j["key_multiplier"] = c.key_multiplier;
  j["ssm_in_multiplier"] = c.ssm_in_multiplier;
  j["ssm_out_multiplier"] = c.ssm_out_multiplier;
  j["ssm_multipliers"] = c.ssm_multipliers;
  j["mlp_multipliers"] = std::array{c.gate_multiplier, c.down_multiplier};
  if (std::isfinite(c.time_step_high))
    j["time_step_limit"] = std::array{c.time_step_low, c.time_step_high};
  else if (c.time_step_low != 0)
    j["time_step_limit"] = nlohmann::ordered_json::array(
        {c.time_step_low, nlohmann::ordered_json::object({{"__float__", "Infinity"}})});
  if (c.bos_id) j["bos_token_id"] = *c.bos_id;
  if (c.eos_ids.size() == 1)
    j["eos_token_id"] = c.eos_ids[0];
  else if (!c.eos_ids.empty())
    j["eos_token_id"] = c.eos_ids;
  return j.dump(2) + "\n";
}

}  // namespace hybridstate::runtime
