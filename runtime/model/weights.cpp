// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/weights.hpp"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>
#include <utility>

#include "model/model_json.hpp"

namespace hybridstate::runtime {

namespace {

/// A buffer that follows from the configuration; some converters store it.
bool is_computed_buffer(std::string_view name) { return name.ends_with(".mup_vector"); }

}  // namespace

std::vector<LayerTensor> layer_tensors(const FalconH1Config& c) {
  using W = LayerWeights;
  std::uint64_t const d = c.hidden;
  std::uint64_t const queries = c.query_width();
  std::uint64_t const keys = c.kv_width();
  std::uint64_t const ssm = c.ssm_width();
  std::uint64_t const inner = c.intermediate;
  std::vector<LayerTensor> list;
  auto const add = [&](const char* suffix, TensorShape shape, Draw draw, TensorView W::* slot) {
    list.push_back({suffix, shape, draw, slot});
  };
  auto const linear = [&](const std::string& module, std::uint64_t out, std::uint64_t in,
                          TensorView W::* weight, bool has_bias, TensorView W::* bias) {
    list.push_back({module + ".weight", {out, in}, Draw::normal, weight});
    if (has_bias) list.push_back({module + ".bias", {out}, Draw::normal, bias});
  };
  add("input_layernorm.weight", {d}, Draw::about_one, &W::input_norm);
  linear("self_attn.q_proj", queries, d, &W::q, c.attention_bias, &W::q_bias);
  linear("self_attn.k_proj", keys, d, &W::k, c.attention_bias, &W::k_bias);
  linear("self_attn.v_proj", keys, d, &W::v, c.attention_bias, &W::v_bias);
  linear("self_attn.o_proj", d, queries, &W::o, c.attention_bias, &W::o_bias);
  linear("mamba.in_proj", c.in_proj_rows(), d, &W::in_proj, c.in_proj_bias, &W::in_proj_bias);
  add("mamba.conv1d.weight", {c.conv_channels(), 1, c.conv_width}, Draw::normal, &W::conv);
  if (c.conv_bias) add("mamba.conv1d.bias", {c.conv_channels()}, Draw::normal, &W::conv_bias);
  add("mamba.A_log", {c.ssm_heads}, Draw::a_log, &W::a_log);
  add("mamba.D", {c.ssm_heads}, Draw::about_one, &W::d);
  add("mamba.dt_bias", {c.ssm_heads}, Draw::dt_bias, &W::dt_bias);
  if (c.gated_norm) add("mamba.norm.weight", {ssm}, Draw::about_one, &W::ssm_norm);
  linear("mamba.out_proj", d, ssm, &W::out_proj, c.out_proj_bias, &W::out_proj_bias);
  add("pre_ff_layernorm.weight", {d}, Draw::about_one, &W::ff_norm);
  linear("feed_forward.gate_proj", inner, d, &W::gate, c.mlp_bias, &W::gate_bias);
  linear("feed_forward.up_proj", inner, d, &W::up, c.mlp_bias, &W::up_bias);
  linear("feed_forward.down_proj", d, inner, &W::down, c.mlp_bias, &W::down_bias);
  return list;
}

std::string layer_tensor_name(std::uint32_t layer, const LayerTensor& tensor) {
  return fmt::format("model.layers.{}.{}", layer, tensor.suffix);
}

FalconH1Model FalconH1Model::load(const std::filesystem::path& folder) {
  Checkpoint checkpoint = Checkpoint::open(folder);  // says first when it is no model's folder
  FalconH1Model model(read_falcon_config(folder / "config.json"), std::move(checkpoint));
  FalconH1Config& config = model.config_;
  if (config.tied_unsaid) {
    config.tied = model.checkpoint_.find(lm_head_name) == nullptr;
    config.tied_unsaid = false;
  }
  std::unordered_set<std::string_view> used;
  auto const take = [&](const std::string& name, const TensorShape& shape) -> const TensorView& {
    const Checkpoint::Tensor* const tensor = model.checkpoint_.find(name);
    if (tensor == nullptr)
      throw ModelError(fmt::format(
          "{}: tensor {} of shape {}, which config.json calls for, is in none of its files",
          folder.string(), quoted_name(name), shape.text()));
    if (!(tensor->view.shape == shape))
      throw ModelError(fmt::format("{}: tensor {} has the shape {}, but config.json calls for {}",
                                   model.checkpoint_.files()[tensor->file], quoted_name(name),
                                   tensor->view.shape.text(), shape.text()));
    used.insert(tensor->name);
    model.parameters_ += shape.elements();
    return tensor->view;
  };
  TensorShape const table{config.vocabulary, config.hidden};
  model.embed_ = take(embedding_name, table);
  std::vector<LayerTensor> const list = layer_tensors(config);
  for (std::uint32_t l = 0; l < config.layers; ++l) {
    LayerWeights layer;
    for (LayerTensor const& tensor : list)
      layer.*tensor.slot = take(layer_tensor_name(l, tensor), tensor.shape);
    model.layers_.push_back(
        layer);  // grows with what the files hold, not with what config.json says
  }
  model.final_norm_ = take(final_norm_name, {config.hidden});
  model.lm_head_ = config.tied ? model.embed_ : take(lm_head_name, table);
  for (Checkpoint::Tensor const& tensor : model.checkpoint_.tensors()) {
    if (used.contains(tensor.name) || is_computed_buffer(tensor.name)) continue;
    const std::string& file = model.checkpoint_.files()[tensor.file];
    if (tensor.name == lm_head_name)
      throw ModelError(
          fmt::format("{}: tensor \"{}\" is there, but config.json says tie_word_embeddings = true",
                      file, lm_head_name));
    throw ModelError(fmt::format(
        "{}: tensor {} is unknown under this config.json (which has {} layers); only the layout "
        "of a Falcon-H1 model is accepted",
        file, quoted_name(tensor.name), config.layers));
  }
  return model;
}

}  // namespace hybridstate::runtime
