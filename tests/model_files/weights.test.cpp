// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/weights.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "support.hpp"

using namespace hybridstate::runtime;
using Json = nlohmann::json;

namespace {

/// A made model whose tensors a test may damage before it loads them.
class Workbench {
 public:
  explicit Workbench(const FalconH1Config& config) {
    make_model(config, folder_ / "m", {});
    tensors = loose_tensors(folder_ / "m");
  }

  std::vector<LooseTensor> tensors;

  LooseTensor& tensor(const std::string& name) {
    for (LooseTensor& t : tensors)
      if (t.name == name) return t;
    FAIL("no tensor " << name);
    return tensors.front();
  }
  void erase(const std::string& name) {
    std::erase_if(tensors, [&](auto& t) { return t.name == name; });
  }

  std::filesystem::path folder() const { return folder_ / "m"; }
  FalconH1Model load() const {
    write_file(folder() / "model.safetensors", safetensors_text(tensors));
    return FalconH1Model::load(folder());
  }
  std::string refusal() const {
    return sentence_of([&] { load(); });
  }

 private:
  TestFolder folder_;
};

}  // namespace

TEST_CASE("the tiny model, in every dtype") {
  for (Dtype const dtype : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    TestFolder const folder;
    const FalconH1Config& config = falcon_preset("tiny").config;
    MakeModelOptions options;
    options.seed = 7;
    options.dtype = dtype;
    MadeModel const made = make_model(config, folder / "m", options);
    FalconH1Model loaded = FalconH1Model::load(folder / "m");
    FalconH1Model const model = std::move(loaded);
    CHECK(model.parameters() == made.parameters);
    CHECK(model.parameters() == 568672);
    CHECK(model.bytes() == model.parameters() * dtype_bytes(dtype));
    CHECK(std::filesystem::file_size(folder / "m" / "model.safetensors") == made.bytes);
    CHECK(model.config().layers == 4);
    CHECK(model.embed().shape == TensorShape{500, 64});
    CHECK(model.embed().dtype == dtype);
    CHECK(model.lm_head().data != model.embed().data);
    CHECK(model.final_norm().shape == TensorShape{64});
    for (std::uint32_t l = 0; l < 4; ++l) {
      const LayerWeights& w = model.layer(l);
      CHECK(w.q.shape == TensorShape{32, 64});
      CHECK(w.k.shape == TensorShape{16, 64});
      CHECK(w.v.shape == TensorShape{16, 64});
      CHECK(w.o.shape == TensorShape{64, 32});
      CHECK(w.in_proj.shape == TensorShape{2 * 384 + 2 * 128 + 24, 64});
      CHECK(w.conv.shape == TensorShape{640, 1, 4});
      CHECK(w.conv_bias.shape == TensorShape{640});
      CHECK(w.a_log.shape == TensorShape{24});
      CHECK(w.ssm_norm.shape == TensorShape{384});
      CHECK(w.out_proj.shape == TensorShape{64, 384});
      CHECK(w.gate.shape == TensorShape{128, 64});
      CHECK(w.down.shape == TensorShape{64, 128});
      CHECK_FALSE(w.q_bias);
      CHECK_FALSE(w.in_proj_bias);
      CHECK_FALSE(w.down_bias);
    }
  }
}

TEST_CASE("optional norm and biases, groups, tied embeddings: each combination loads") {
  for (unsigned bits = 0; bits < 128; ++bits) {
    FalconH1Config config = small_config();
    config.gated_norm = (bits & 1) != 0;
    config.conv_bias = (bits & 2) != 0;
    config.attention_bias = (bits & 4) != 0;
    config.mlp_bias = (bits & 8) != 0;
    config.in_proj_bias = (bits & 16) != 0;
    config.out_proj_bias = (bits & 32) != 0;
    config.tied = (bits & 64) != 0;
    config.ssm_groups = 1 + bits % 3;
    TestFolder const folder;
    make_model(config, folder / "m", {});
    FalconH1Model const model = FalconH1Model::load(folder / "m");
    const LayerWeights& w = model.layer(1);
    CHECK(bool(w.ssm_norm) == config.gated_norm);
    CHECK(bool(w.conv_bias) == config.conv_bias);
    for (const TensorView* const v : {&w.q_bias, &w.k_bias, &w.v_bias, &w.o_bias})
      CHECK(bool(*v) == config.attention_bias);
    for (const TensorView* const v : {&w.gate_bias, &w.up_bias, &w.down_bias})
      CHECK(bool(*v) == config.mlp_bias);
    CHECK(bool(w.in_proj_bias) == config.in_proj_bias);
    CHECK(bool(w.out_proj_bias) == config.out_proj_bias);
    CHECK((model.lm_head().data == model.embed().data) == config.tied);
    CHECK(w.conv.shape == TensorShape{24 + 16 * std::uint64_t{config.ssm_groups}, 1, 4});
    CHECK(model.parameters() == parameter_count(config));
  }
}

TEST_CASE("every slot of a layer has its own tensor") {
  FalconH1Config config = small_config();
  config.attention_bias = config.mlp_bias = config.in_proj_bias = config.out_proj_bias = true;
  TestFolder const folder;
  make_model(config, folder / "m", {});
  FalconH1Model const model = FalconH1Model::load(folder / "m");
  Checkpoint const checkpoint = Checkpoint::open(folder / "m");
  std::set<const void*> seen{model.embed().data, model.lm_head().data, model.final_norm().data};
  auto const list = layer_tensors(config);
  CHECK(list.size() * sizeof(TensorView) == sizeof(LayerWeights));
  for (std::uint32_t l = 0; l < config.layers; ++l)
    for (LayerTensor const& t : list) {
      const TensorView& view = model.layer(l).*t.slot;
      CHECK(seen.insert(view.data).second);
      auto const* const there = checkpoint.find(layer_tensor_name(l, t));
      REQUIRE(there != nullptr);
      CHECK(std::memcmp(there->view.data, view.data, view.bytes()) == 0);
    }
}

TEST_CASE("shards hold the same model") {
  Workbench bench(small_config());
  FalconH1Model const single = FalconH1Model::load(bench.folder());
  TestFolder const folder;
  std::filesystem::copy_file(bench.folder() / "config.json", folder / "config.json");
  Json map;
  for (std::size_t s = 0; s < 3; ++s) {
    std::vector<LooseTensor> part;
    std::string const file = fmt::format("model-{:05}-of-00003.safetensors", s + 1);
    for (std::size_t i = s; i < bench.tensors.size(); i += 3) {
      part.push_back(bench.tensors[i]);
      map[bench.tensors[i].name] = file;
    }
    write_file(folder.path() / file, safetensors_text(part));
  }
  write_file(folder / "model.safetensors.index.json",
             Json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  FalconH1Model const sharded = FalconH1Model::load(folder.path());
  CHECK(sharded.parameters() == single.parameters());
  for (auto const& t : layer_tensors(single.config())) {
    const TensorView& a = single.layer(1).*t.slot;
    const TensorView& b = sharded.layer(1).*t.slot;
    CHECK(std::memcmp(a.data, b.data, a.bytes()) == 0);
  }
}

TEST_CASE("tensors of mixed dtypes are taken as they are") {
  Workbench bench(small_config());
  LooseTensor& t = bench.tensor("model.layers.0.mamba.A_log");
  std::string wide;
  for (std::size_t i = 0; i < 6; ++i) {
    float const value = element_as_float(t.data.data(), Dtype::bf16, i);
    wide.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  t.dtype = Dtype::f32;
  t.data = wide;
  FalconH1Model const model = bench.load();
  CHECK(model.layer(0).a_log.dtype == Dtype::f32);
  CHECK(model.layer(1).a_log.dtype == Dtype::bf16);
}

TEST_CASE("each missing tensor is named") {
  Workbench bench(small_config());
  auto const all = bench.tensors;
  for (LooseTensor const& t : all) {
    bench.tensors = all;
    bench.erase(t.name);
    std::string const sentence = bench.refusal();
    CAPTURE(sentence);
    CHECK(contains(sentence, fmt::format("tensor \"{}\" of shape {}", t.name, t.shape.text())));
    CHECK(contains(sentence, "is in none of its files"));
  }
}

TEST_CASE("each wrong shape is named, also one with as many elements") {
  Workbench bench(small_config());
  auto const all = bench.tensors;
  for (std::size_t i = 0; i < all.size(); ++i) {
    bench.tensors = all;
    LooseTensor& t = bench.tensors[i];
    std::string const right = t.shape.text();
    if (t.shape.rank == 1)
      t.shape = {1, t.shape.dims[0]};
    else if (t.shape.rank == 3)
      t.shape = {t.shape.dims[0], t.shape.dims[2], 1};  // as re-quantized exports have it
    else
      t.shape = {t.shape.elements()};
    std::string const sentence = bench.refusal();
    CAPTURE(sentence);
    CHECK(contains(sentence, fmt::format("model.safetensors: tensor \"{}\" has the shape {}, but "
                                         "config.json calls for {}",
                                         t.name, t.shape.text(), right)));
  }
}

TEST_CASE("unknown tensors are named, computed buffers are not minded") {
  Workbench bench(small_config());
  auto const all = bench.tensors;
  std::string const two(2, '\0');
  bench.tensors.push_back({"model.layers.0.mamba.mup_vector", Dtype::bf16, {1}, two});
  CHECK(bench.refusal() == "");
  for (const char* const name :
       {"model.layers.2.mamba.D", "model.norm.weight", "model.layers.0.mamba.in_proj.bias",
        "model.layers.00.mamba.D", "x"}) {
    bench.tensors = all;
    bench.tensors.push_back({name, Dtype::bf16, {1}, two});
    CHECK(contains(bench.refusal(), fmt::format("tensor \"{}\" is unknown", name)));
  }
}

TEST_CASE("tied embeddings, said and unsaid") {
  Workbench bench(small_config());
  Json config = Json::parse(read_file(bench.folder() / "config.json"));
  auto const write = [&] { write_file(bench.folder() / "config.json", config.dump()); };
  config["tie_word_embeddings"] = true;
  write();
  CHECK(contains(bench.refusal(), "\"lm_head.weight\" is there, but config.json says tie_word"));
  config.erase("tie_word_embeddings");
  write();
  CHECK_FALSE(bench.load().config().tied);
  bench.erase("lm_head.weight");
  FalconH1Model const model = bench.load();
  CHECK(model.config().tied);
  CHECK(model.lm_head().data == model.embed().data);
  config["tie_word_embeddings"] = false;
  write();
  CHECK(contains(bench.refusal(), "tensor \"lm_head.weight\""));
}

TEST_CASE("a config.json of two thousand million layers is refused by the tensors") {
  Workbench bench(small_config());
  Json config = Json::parse(read_file(bench.folder() / "config.json"));
  config["num_hidden_layers"] = 2147483647;
  write_file(bench.folder() / "config.json", config.dump());
  CHECK(contains(bench.refusal(), "model.layers.2."));
}

TEST_CASE("a truncated file of weights") {
  Workbench bench(small_config());
  std::string const whole = read_file(bench.folder() / "model.safetensors");
  for (std::size_t const size :
       {whole.size() - 1, whole.size() / 2, std::size_t{100}, std::size_t{3}}) {
    write_file(bench.folder() / "model.safetensors", whole.substr(0, size));
    CHECK(
        contains(sentence_of([&] { FalconH1Model::load(bench.folder()); }), "model.safetensors: "));
  }
  std::filesystem::remove(bench.folder() / "config.json");
  write_file(bench.folder() / "model.safetensors", whole);
  CHECK(contains(sentence_of([&] { FalconH1Model::load(bench.folder()); }),
                 "config.json: cannot be opened"));
}
