// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <hybridstate/core/error.hpp>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::json;
using Names = std::initializer_list<const char*>;

constexpr std::uint64_t largest_count = 0x7fffffffU;
constexpr std::size_t largest_file = std::size_t{16} << 20;

std::string read_text(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw ConfigError(fmt::format("{}: is a folder; give the config.json inside it", file));
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw ConfigError(
        fmt::format("{}: cannot be opened; give a readable Hugging Face config.json", file));
  std::string text;
  std::array<char, 65536> part{};
  while (in.read(part.data(), part.size()), in.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > largest_file)
      throw ConfigError(fmt::format(
          "{}: has more than 16 MiB, which no config.json has; give the model's config.json, not "
          "its weights",
          file));
  }
  if (in.bad()) throw ConfigError(fmt::format("{}: reading failed; check the disk", file));
  return text;
}

/// Python's JSON writer stores unbounded limits (time_step_limit) as Infinity, which JSON lacks.
/// Outside strings such words become values that parse; no field read here may hold one.
void replace_python_numbers(std::string& text) {
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        in_string = false;
    } else if (text[i] == '"') {
      in_string = true;
    } else {
      for (std::string_view const word : {"-Infinity", "Infinity", "NaN"}) {
        if (text.compare(i, word.size(), word) != 0) continue;
        std::string value(word.size() < 4 ? "0" : "null");
        value.resize(word.size(), ' ');
        text.replace(i, word.size(), value);
        i += word.size() - 1;
        break;
      }
    }
  }
}

Json parse(const std::string& file, std::string text) {
  replace_python_numbers(text);
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::parse_error& error) {
    std::size_t const end = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    auto const lines =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    throw ConfigError(fmt::format(
        "{}: line {} is not valid JSON (byte {}); give an unbroken Hugging Face config.json", file,
        lines + 1, error.byte));
  } catch (const Json::exception&) {
    throw ConfigError(fmt::format(
        "{}: a number is beyond every range that JSON readers know; correct that number", file));
  }
  if (!root.is_object())
    throw ConfigError(
        fmt::format("{}: holds {} instead of an object of fields; give a Hugging Face config.json",
                    file, root.type_name()));
  return root;
}

/// A value as it stands in the file, short enough for a sentence.
std::string shown(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

std::string quoted(Names names) {
  std::string text;
  for (const char* const name : names) {
    if (!text.empty()) text += " or ";
    text += fmt::format("\"{}\"", name);
  }
  return text;
}

/// What the layers keep.
struct Layers {
  std::uint32_t attention = 0;
  std::uint32_t recurrent = 0;
};

enum class LayerKind : std::uint8_t { attention, recurrent, both, neither };

struct LayerWord {
  std::string_view word;
  LayerKind kind;
};

void count_layer(Layers& layers, LayerKind kind) {
  if (kind == LayerKind::attention || kind == LayerKind::both) ++layers.attention;
  if (kind == LayerKind::recurrent || kind == LayerKind::both) ++layers.recurrent;
}

/// The fields of one config.json. A field that is null counts as absent.
class Fields {
 public:
  Fields(std::string file, const Json& object, const Json* outer)
      : file_(std::move(file)), object_(object), outer_(outer) {}

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError(
        fmt::format("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...)));
  }

  struct Found {
    const char* name = "";
    const Json* value = nullptr;
    explicit operator bool() const noexcept { return value != nullptr; }
  };

  /// The first of these fields that is there.
  Found find(Names names) const {
    for (const char* const name : names)
      if (auto const at = object_.find(name); at != object_.end() && !at->is_null())
        return {name, &*at};
    return {};
  }
  /// As find(), also in the object around a "text_config".
  Found find_anywhere(Names names) const {
    if (Found const found = find(names)) return found;
    if (outer_ != nullptr)
      for (const char* const name : names)
        if (auto const at = outer_->find(name); at != outer_->end() && !at->is_null())
          return {name, &*at};
    return {};
  }

  std::uint32_t as_count(Found field, std::uint64_t least = 1) const {
    const Json& value = *field.value;
    if (value.is_number_unsigned()) {
      auto const number = value.get<std::uint64_t>();
      if (number >= least && number <= largest_count) return static_cast<std::uint32_t>(number);
    }
    fail("field \"{}\" is {}, but it must be a whole number from {} to {}", field.name,
         shown(value), least, largest_count);
  }
  std::uint32_t count(Names names, std::uint64_t least = 1) const {
    if (Found const field = find(names)) return as_count(field, least);
    fail("field {} is missing; it must be a whole number from {} to {}", quoted(names), least,
         largest_count);
  }
  std::optional<std::uint32_t> count_if_any(Names names) const {
    Found const field = find(names);
    return field ? std::optional(as_count(field)) : std::nullopt;
  }

  /// expand x hidden_size, when there is an expand.
  std::optional<std::uint32_t> expanded() const {
    Found const field = find({"mamba_expand"});
    if (!field) return std::nullopt;
    if (!field.value->is_number() || !(field.value->get<double>() > 0))
      fail("field \"mamba_expand\" is {}, but it must be a positive number", shown(*field.value));
    std::uint32_t const hidden = count({"hidden_size"});
    double const inner = field.value->get<double>() * hidden;
    if (inner != std::floor(inner) || inner < 1 || inner > static_cast<double>(largest_count))
      fail(
          "field \"mamba_expand\" is {}, but its product with hidden_size = {} must be a whole "
          "number from 1 to {}",
          shown(*field.value), hidden, largest_count);
    return static_cast<std::uint32_t>(inner);
  }

  std::uint32_t dtype_bytes(Found field) const {
    std::string name = field.value->is_string() ? field.value->get<std::string>() : std::string();
    if (name.starts_with("torch.")) name.erase(0, 6);
    if (name == "bfloat16" || name == "float16" || name == "half") return 2;
    if (name == "float32" || name == "float") return 4;
    fail(R"(field "{}" is {}, but it must be "bfloat16", "float16" or "float32")", field.name,
         shown(*field.value));
  }
  std::uint32_t model_dtype_bytes() const {
    Found const newer = find_anywhere({"dtype"});
    Found const older = find_anywhere({"torch_dtype"});
    if (!newer && !older)
      fail(
          "field \"torch_dtype\" (or \"dtype\") is missing; it must be \"bfloat16\", \"float16\" "
          "or \"float32\"");
    std::uint32_t const bytes = dtype_bytes(newer ? newer : older);
    if (newer && older && dtype_bytes(older) != bytes)
      fail(R"(field "dtype" is {}, but "torch_dtype" is {}; they must be the same)",
           shown(*newer.value), shown(*older.value));
    return bytes;
  }
  std::uint32_t state_dtype_bytes(std::uint32_t model_bytes) const {
    Found const field = find_anywhere({"mamba_ssm_cache_dtype", "mamba_ssm_dtype"});
    if (!field || *field.value == "auto") return model_bytes;
    return dtype_bytes(field);
  }

  /// One word per layer.
  Layers listed(Found field, const std::vector<LayerWord>& words, std::uint32_t total) const {
    if (!field.value->is_array())
      fail("field \"{}\" is {}, but it must list one word per layer", field.name,
           shown(*field.value));
    if (field.value->size() != total)
      fail("field \"{}\" lists {} layers, but num_hidden_layers is {}; they must agree", field.name,
           field.value->size(), total);
    Layers layers;
    for (std::size_t i = 0; i < field.value->size(); ++i) {
      const Json& entry = (*field.value)[i];
      auto const known = std::find_if(words.begin(), words.end(), [&](const LayerWord& w) {
        return entry.is_string() && entry.get_ref<const std::string&>() == w.word;
      });
      if (known == words.end()) {
        std::string all;
        for (LayerWord const& w : words)
          all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", w.word);
        fail("field \"{}\" has {} for layer {}, but a layer must be one of {}", field.name,
             shown(entry), i, all);
      }
      count_layer(layers, known->kind);
    }
    return layers;
  }

  /// Layer numbers, each once; how many there are.
  std::uint32_t indices(Found field, std::uint32_t total) const {
    if (!field.value->is_array())
      fail("field \"{}\" is {}, but it must list layer numbers", field.name, shown(*field.value));
    std::vector<std::uint64_t> seen;
    for (const Json& entry : *field.value) {
      if (!entry.is_number_unsigned() || entry.get<std::uint64_t>() >= total)
        fail("field \"{}\" has the layer number {}, but it must be a whole number from 0 to {}",
             field.name, shown(entry), total - 1);
      seen.push_back(entry.get<std::uint64_t>());
    }
    std::sort(seen.begin(), seen.end());
    if (auto const twice = std::adjacent_find(seen.begin(), seen.end()); twice != seen.end())
      fail("field \"{}\" has layer {} twice, but each layer number must be there once", field.name,
           *twice);
    return static_cast<std::uint32_t>(seen.size());
  }

 private:
  std::string file_;
  const Json& object_;
  const Json* outer_;
};

/// What every family gives; its reader fills in the rest.
struct Model {
  ModelGeometry geometry;
  std::uint32_t total = 0;
  std::string decided_by;  ///< the field that says which layers are which
};

void set_layers(Model& model, Layers layers, const char* decided_by) {
  model.geometry.attention_layers = layers.attention;
  model.geometry.recurrent_layers = layers.recurrent;
  model.decided_by = decided_by;
}

/// KV heads; `derived` is the family's own factor of hidden_size / num_attention_heads, 0 where it
/// derives none.
void set_attention(Model& model, const Fields& fields, Names head_dim, std::uint32_t derived) {
  std::uint32_t const heads = fields.count({"num_attention_heads"});
  std::uint32_t const kv_heads = fields.count({"num_key_value_heads"});
  if (heads % kv_heads != 0)
    fields.fail("field \"num_key_value_heads\" is {}, but it must divide num_attention_heads = {}",
                kv_heads, heads);
  model.geometry.kv_heads = kv_heads;
  if (auto const given = fields.count_if_any(head_dim)) {
    model.geometry.head_dim = *given;
    return;
  }
  if (derived == 0) {
    model.geometry.head_dim = fields.count(head_dim);  // says what is missing
    return;
  }
  std::uint64_t const width = std::uint64_t{derived} * fields.count({"hidden_size"});
  if (width % heads != 0 || width / heads > largest_count)
    fields.fail(
        "field {} is missing and {} x hidden_size = {} is not a multiple of num_attention_heads = "
        "{}; give {}",
        quoted(head_dim), derived, width, heads, quoted(head_dim));
  model.geometry.head_dim = static_cast<std::uint32_t>(width / heads);
}

/// Heads x rows x columns and the groups beside them. `inner`: what heads x rows must be, from the
/// field or product called `inner_name`. Rows that are absent or "auto" follow from it.
struct MambaNames {
  const char* heads;
  const char* rows;
  const char* columns;
  const char* groups;
  const char* width;
};
void set_mamba2(Model& model, const Fields& fields, const MambaNames& names,
                std::optional<std::uint32_t> inner, const char* inner_name) {
  ModelGeometry& m = model.geometry;
  m.ssm_heads = fields.count({names.heads});
  Fields::Found const rows = fields.find({names.rows});
  if (rows && *rows.value == "auto") {
    if (!inner)
      fields.fail(R"(field "{}" is "auto", which needs {}; give that or the number)", names.rows,
                  inner_name);
    if (*inner % m.ssm_heads != 0)
      fields.fail(
          "field \"{}\" is \"auto\", but {} = {} is not a multiple of {} = {}; correct one "
          "of them",
          names.rows, inner_name, *inner, names.heads, m.ssm_heads);
    m.ssm_head_dim = *inner / m.ssm_heads;
  } else {
    m.ssm_head_dim = fields.count({names.rows});
  }
  std::uint64_t const product = std::uint64_t{m.ssm_heads} * m.ssm_head_dim;
  if (inner && product != *inner)
    fields.fail("field \"{}\" is {}, but {} x {} must be {} = {}", names.rows, m.ssm_head_dim,
                names.heads, names.rows, inner_name, *inner);
  m.ssm_state = fields.count({names.columns});
  m.conv_groups = fields.count({names.groups});
  if (m.ssm_heads % m.conv_groups != 0)
    fields.fail("field \"{}\" is {}, but it must divide {} = {}", names.groups, m.conv_groups,
                names.heads, m.ssm_heads);
  m.d_conv = fields.count({names.width}, 2);
}

constexpr MambaNames mamba_names{"mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups",
                                 "mamba_d_conv"};
constexpr const char* expand_name = "mamba_expand x hidden_size";

const std::vector<LayerWord>& mamba_words() {
  static const std::vector<LayerWord> words = {{"mamba", LayerKind::recurrent},
                                               {"attention", LayerKind::attention},
                                               {"linear_attention", LayerKind::recurrent},
                                               {"full_attention", LayerKind::attention}};
  return words;
}

void read_falcon_h1(Model& model, const Fields& fields) {
  set_layers(model, {model.total, model.total}, "num_hidden_layers");
  set_attention(model, fields, {"head_dim"}, 1);
  if (auto const given = fields.count_if_any({"mamba_d_ssm"})) {
    set_mamba2(model, fields, mamba_names, given, "mamba_d_ssm");
    return;
  }
  auto const inner = fields.expanded();
  if (!inner)
    fields.fail(R"(field "mamba_d_ssm" is missing and so is "mamba_expand"; give the first)");
  set_mamba2(model, fields, mamba_names, inner, expand_name);
}

void read_granite(Model& model, const Fields& fields) {
  auto const types = fields.find({"layer_types", "layers_block_type"});
  if (!types)
    fields.fail(
        "field \"layer_types\" is missing; it must list \"mamba\" or \"attention\" for "
        "each layer");
  set_layers(model, fields.listed(types, mamba_words(), model.total), types.name);
  if (model.geometry.recurrent_layers == 0) return;  // refused by the caller; H fields may be junk
  set_attention(model, fields, {"head_dim"}, 1);
  set_mamba2(model, fields, mamba_names, fields.expanded(), expand_name);
}

void read_bamba(Model& model, const Fields& fields) {
  if (auto const listed = fields.find({"attn_layer_indices"})) {
    std::uint32_t const attention = fields.indices(listed, model.total);
    set_layers(model, {attention, model.total - attention}, listed.name);
  } else if (auto const types = fields.find({"layer_types", "layers_block_type"})) {
    set_layers(model, fields.listed(types, mamba_words(), model.total), types.name);
  } else {
    fields.fail("field \"attn_layer_indices\" is missing; it must list the attention layers");
  }
  set_attention(model, fields, {"head_dim"}, 1);
  set_mamba2(model, fields, mamba_names, fields.expanded(), expand_name);
}

void read_nemotron_h(Model& model, const Fields& fields) {
  if (auto const pattern = fields.find({"hybrid_override_pattern"})) {
    if (!pattern.value->is_string())
      fields.fail("field \"hybrid_override_pattern\" is {}, but it must be one letter per layer",
                  shown(*pattern.value));
    auto const& text = pattern.value->get_ref<const std::string&>();
    if (text.size() != model.total)
      fields.fail(
          "field \"hybrid_override_pattern\" has {} letters, but num_hidden_layers is {}; they "
          "must agree",
          text.size(), model.total);
    Layers layers;
    for (std::size_t i = 0; i < text.size(); ++i) {
      switch (text[i]) {
        case 'M':
          count_layer(layers, LayerKind::recurrent);
          break;
        case '*':
          count_layer(layers, LayerKind::attention);
          break;
        case '-':
        case 'E':
          break;
        default:
          fields.fail(
              "field \"hybrid_override_pattern\" has {} for layer {}, but a layer must be M "
              "(Mamba), * (attention), - (MLP) or E (experts)",
              shown(Json(std::string(1, text[i]))), i);
      }
    }
    set_layers(model, layers, pattern.name);
  } else if (auto const types = fields.find({"layers_block_type", "layer_types"})) {
    static const std::vector<LayerWord> words = {{"mamba", LayerKind::recurrent},
                                                 {"attention", LayerKind::attention},
                                                 {"linear_attention", LayerKind::recurrent},
                                                 {"full_attention", LayerKind::attention},
                                                 {"mlp", LayerKind::neither},
                                                 {"moe", LayerKind::neither}};
    set_layers(model, fields.listed(types, words, model.total), types.name);
  } else {
    fields.fail("field \"hybrid_override_pattern\" is missing; it must be one letter per layer");
  }
  set_attention(model, fields, {"head_dim", "attention_head_dim"}, 0);
  set_mamba2(model, fields,
             {"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"},
             std::nullopt, "");
}

void read_qwen(Model& model, const Fields& fields) {
  if (auto const types = fields.find({"layer_types", "layers_block_type"})) {
    static const std::vector<LayerWord> words = {{"linear_attention", LayerKind::recurrent},
                                                 {"full_attention", LayerKind::attention}};
    set_layers(model, fields.listed(types, words, model.total), types.name);
  } else if (auto const interval = fields.count_if_any({"full_attention_interval"})) {
    std::uint32_t const attention = model.total / *interval;
    set_layers(model, {attention, model.total - attention}, "full_attention_interval");
  } else {
    fields.fail(
        "field \"layer_types\" is missing and so is \"full_attention_interval\"; one of them must "
        "say which layers have full attention");
  }
  set_attention(model, fields, {"head_dim"}, 0);
  set_mamba2(model, fields,
             {"linear_num_value_heads", "linear_value_head_dim", "linear_key_head_dim",
              "linear_num_key_heads", "linear_conv_kernel_dim"},
             std::nullopt, "");
}

void read_zamba2(Model& model, const Fields& fields) {
  if (auto const types = fields.find({"layers_block_type", "layer_types"})) {
    static const std::vector<LayerWord> words = {{"mamba", LayerKind::recurrent},
                                                 {"hybrid", LayerKind::both}};
    set_layers(model, fields.listed(types, words, model.total), types.name);
  } else if (auto const ids = fields.find({"hybrid_layer_ids"})) {
    set_layers(model, {fields.indices(ids, model.total), model.total}, ids.name);
  } else {
    fields.fail(
        "field \"layers_block_type\" is missing and so is \"hybrid_layer_ids\"; one of them must "
        "say which layers are hybrid");
  }
  // The shared blocks attend over the layer's input beside the embeddings: twice the width.
  set_attention(model, fields, {"attention_head_dim"}, 2);
  set_mamba2(model, fields,
             {"n_mamba_heads", "mamba_headdim", "mamba_d_state", "mamba_ngroups", "mamba_d_conv"},
             fields.expanded(), expand_name);
}

void read_jamba(Model& model, const Fields& fields) {
  std::uint32_t const period = fields.count({"attn_layer_period"});
  std::uint32_t const offset = fields.count({"attn_layer_offset"}, 0);
  if (offset >= period)
    fields.fail("field \"attn_layer_offset\" is {}, but it must be below attn_layer_period = {}",
                offset, period);
  std::uint32_t const attention =
      offset < model.total ? (model.total - 1 - offset) / period + 1 : 0;
  set_layers(model, {attention, model.total - attention}, "attn_layer_period");
  set_attention(model, fields, {"head_dim"}, 1);
  auto const inner = fields.expanded();
  if (!inner) fields.fail("field \"mamba_expand\" is missing; it must be a positive number");
  ModelGeometry& m = model.geometry;
  m.ssm_heads = *inner;
  m.ssm_head_dim = 1;
  m.conv_groups = 0;
  m.ssm_state = fields.count({"mamba_d_state"});
  m.d_conv = fields.count({"mamba_d_conv"}, 2);
}

struct Family {
  std::string_view model_type;
  void (*read)(Model&, const Fields&);
};
constexpr Family families[] = {
    {"falcon_h1", read_falcon_h1},   {"granitemoehybrid", read_granite},
    {"bamba", read_bamba},           {"nemotron_h", read_nemotron_h},
    {"qwen3_next", read_qwen},       {"qwen3_5", read_qwen},
    {"qwen3_5_text", read_qwen},     {"qwen3_5_moe", read_qwen},
    {"qwen3_5_moe_text", read_qwen}, {"zamba2", read_zamba2},
    {"jamba", read_jamba},
};

std::string family_names() {
  std::string names;
  for (Family const& family : families)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.model_type);
  return names;
}

}  // namespace

ConfigGeometry read_geometry(const std::filesystem::path& config_json,
                             std::uint32_t tensor_parallel) {
  std::string const file = config_json.string();
  Json const root = parse(file, read_text(file));
  auto const type = root.find("model_type");
  if (type == root.end() || type->is_null())
    throw ConfigError(fmt::format("{}: field \"model_type\" is missing; it must be one of {}", file,
                                  family_names()));
  auto const family = std::find_if(std::begin(families), std::end(families), [&](const Family& f) {
    return type->is_string() && type->get_ref<const std::string&>() == f.model_type;
  });
  if (family == std::end(families))
    throw ConfigError(fmt::format("{}: field \"model_type\" is {}, but it must be one of {}", file,
                                  shown(*type), family_names()));

  // Models that also see images keep the language model's fields one level down.
  const Json* object = &root;
  if (auto const inner = root.find("text_config"); inner != root.end() && inner->is_object())
    object = &*inner;
  Fields const fields(file, *object, object == &root ? nullptr : &root);

  Model model;
  model.total = fields.count({"num_hidden_layers"});
  family->read(model, fields);
  ModelGeometry& m = model.geometry;
  if (m.recurrent_layers == 0 || m.attention_layers == 0)
    fields.fail(
        "field \"{}\" gives {} attention and {} recurrent layers, but a hybrid model has both; "
        "give the config.json of a hybrid model",
        model.decided_by, m.attention_layers, m.recurrent_layers);
  std::uint32_t const bytes = fields.model_dtype_bytes();
  m.kv_dtype_bytes = bytes;
  m.conv_dtype_bytes = bytes;
  m.ssm_dtype_bytes = fields.state_dtype_bytes(bytes);
  m.tensor_parallel = tensor_parallel;
  if (std::string const sentence = problem(m); !sentence.empty()) fields.fail("{}", sentence);
  return {std::string(family->model_type), m, model.total};
}

}  // namespace hybridstate::runtime
