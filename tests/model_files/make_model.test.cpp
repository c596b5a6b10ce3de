// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/make_model.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/presets.hpp>

#include "model/hf_config.hpp"
#include "support.hpp"

using namespace hybridstate;
using namespace hybridstate::runtime;

namespace {

MakeModelOptions seeded(std::uint64_t seed, Dtype dtype = Dtype::bf16) {
  MakeModelOptions options;
  options.seed = seed;
  options.dtype = dtype;
  options.label = "tiny";
  return options;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (auto const& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("the published sizes have the published numbers of parameters and tensors") {
  struct Row {
    const char* name;
    std::uint64_t parameters;
    std::size_t tensors;
  } const rows[] = {
      {"falcon-h1-tiny-90m", 91131072, 386}, {"falcon-h1-0.5b", 521411104, 579},
      {"falcon-h1-1.5b", 1554863488, 411},   {"falcon-h1-1.5b-deep", 1554874768, 1125},
      {"falcon-h1-3b", 3149392384, 547},     {"falcon-h1-7b", 7585654880, 751},
      {"falcon-h1-34b", 33642516224, 1227},
  };
  for (Row const& row : rows) {
    CAPTURE(row.name);
    const FalconH1Config& c = falcon_preset(row.name).config;
    CHECK(parameter_count(c) == row.parameters);
    CHECK(layer_tensors(c).size() * c.layers + (c.tied ? 2 : 3) == row.tensors);
    REQUIRE(find_preset(row.name) != nullptr);
    CHECK(find_preset(row.name)->geometry == c.geometry());
    CHECK(config_problem(c) == "");
  }
  CHECK(falcon_presets().size() == std::size(rows) + 1);
  CHECK(contains(sentence_of([] { falcon_preset("falcon-h1-8b"); }),
                 "preset \"falcon-h1-8b\" is not known; choose one of tiny, falcon-h1-tiny-90m"));
}

TEST_CASE("multipliers follow the rule that the published ones follow") {
  for (FalconPreset const& preset : falcon_presets()) {
    const FalconH1Config& c = preset.config;
    if (preset.name == "tiny" || preset.name == "falcon-h1-tiny-90m") continue;
    CAPTURE(preset.name);
    double const r = 1280.0 / c.hidden;
    auto const same = [](double a, double b) { return std::abs(a - b) <= 1e-14 * std::abs(b); };
    CHECK(same(c.embedding_multiplier, 4 * std::sqrt(2.0)));
    CHECK(same(c.lm_head_multiplier, r / 32));
    CHECK(same(c.key_multiplier, std::pow(2, -2.5) * r * r * std::sqrt(128.0 / c.head_dim)));
    CHECK(same(c.attention_out_multiplier, 0.5 * r * 768 / c.query_width()));
    CHECK(same(c.ssm_in_multiplier, r));
    CHECK(same(c.ssm_out_multiplier, std::sqrt(2.0) / 6 * 1536 / c.ssm_width()));
    CHECK(same(c.gate_multiplier, r / std::sqrt(2.0)));
    CHECK(same(c.down_multiplier, 0.3125 * r * 3072 / c.intermediate));
    CHECK(same(c.ssm_multipliers[2], std::pow(2, -2.5) * 256 / c.ssm_state));
  }
}

TEST_CASE("the tiny model has the proportions of Falcon-H1-7B in every organization") {
  TestFolder const folder;
  make_model(falcon_preset("tiny").config, folder / "m", seeded(7));
  ConfigGeometry const read = read_geometry(folder / "m" / "config.json");
  CHECK(read.geometry == falcon_preset("tiny").config.geometry());
  StateLayout const tiny = make_layout(read.geometry);
  StateLayout const large = make_layout(find_preset("falcon-h1-7b")->geometry);
  CHECK(tiny.members() == 3);
  CHECK(tiny.members() == large.members());
  CHECK(tiny.heads_per_page() == large.heads_per_page());
  CHECK(tiny.native_interval() == 1792);
  CHECK(tiny.native_interval() == large.native_interval());
  CHECK(tiny.page_bytes() == 32768);
  CHECK(tiny.page_bytes() * 16 == large.page_bytes());
  CHECK(tiny.ssm_bytes() == 3 * tiny.page_bytes());
  CHECK(tiny.ssm_bytes() * 16 == large.ssm_bytes());
  CHECK(tiny.conv_bytes() == 3840);
  CHECK(tiny.slots_per_slab() == 8);
}

TEST_CASE("equal seeds give equal files, whatever machine and compiler") {
  TestFolder const folder;
  const FalconH1Config& config = falcon_preset("tiny").config;
  make_model(config, folder / "bf16", seeded(7));
  make_model(config, folder / "again", seeded(7));
  make_model(config, folder / "f32", seeded(7, Dtype::f32));
  make_model(config, folder / "other", seeded(8));
  auto const weights = [&](const char* name) {
    return read_file(folder.path() / name / "model.safetensors");
  };
  CHECK(weights("bf16") == weights("again"));
  CHECK(weights("bf16") != weights("other"));
  CHECK(fnv1a(weights("bf16")) == 0xfab2b680e60d3c23U);
  CHECK(fnv1a(weights("f32")) == 0x3466f2f022f80f45U);
  CHECK(fnv1a(read_file(folder / "bf16" / "config.json")) == 0xe2ac71fcc4fcfddcU);
}

TEST_CASE("16-bit files hold the rounded values of the F32 file") {
  TestFolder const folder;
  const FalconH1Config config = small_config();
  make_model(config, folder / "f32", seeded(7, Dtype::f32));
  make_model(config, folder / "bf16", seeded(7, Dtype::bf16));
  make_model(config, folder / "f16", seeded(7, Dtype::f16));
  Checkpoint const f32 = Checkpoint::open(folder / "f32");
  Checkpoint const bf16 = Checkpoint::open(folder / "bf16");
  Checkpoint const f16 = Checkpoint::open(folder / "f16");
  for (auto const& tensor : f32.tensors()) {
    const TensorView& b = bf16.find(tensor.name)->view;
    const TensorView& h = f16.find(tensor.name)->view;
    bool same = true;
    for (std::size_t i = 0; i < tensor.view.elements(); ++i) {
      float const value = tensor.view.at(i);
      same = same && b.at(i) == bf16_to_float(float_to_bf16(value)) &&
             h.at(i) == f16_to_float(float_to_f16(value));
    }
    CHECK_MESSAGE(same, tensor.name);
  }
}

TEST_CASE("the draws have their distributions") {
  TestFolder const folder;
  make_model(falcon_preset("tiny").config, folder / "m", seeded(5, Dtype::f32));
  FalconH1Model const model = FalconH1Model::load(folder / "m");
  struct Moments {
    double mean = 0, deviation = 0, kurtosis = 0, least = 1e9, largest = -1e9;
  };
  auto const moments = [](const TensorView& v, double step = 0) {
    auto const n = static_cast<double>(v.elements());
    Moments m;
    auto const value = [&](std::size_t i) {
      return v.at(i) - (step != 0 ? std::log(1.0 + static_cast<double>(i)) : 0);
    };
    for (std::size_t i = 0; i < v.elements(); ++i) {
      m.mean += value(i) / n;
      m.least = std::min(m.least, value(i));
      m.largest = std::max(m.largest, value(i));
    }
    double fourth = 0;
    for (std::size_t i = 0; i < v.elements(); ++i) {
      double const square = std::pow(value(i) - m.mean, 2);
      m.deviation += square / n;
      fourth += square * square / n;
    }
    m.kurtosis = fourth / (m.deviation * m.deviation);
    m.deviation = std::sqrt(m.deviation);
    return m;
  };
  for (const TensorView& v : {model.embed(), model.lm_head(), model.layer(0).in_proj}) {
    Moments const m = moments(v);
    CHECK(std::abs(m.mean) < 0.005);
    CHECK(m.deviation == doctest::Approx(0.2).epsilon(0.02));
    CHECK(m.kurtosis == doctest::Approx(3.0).epsilon(0.05));
    CHECK(m.largest > 0.7);
    CHECK(m.largest < 0.9);
  }
  Moments const conv_bias = moments(model.layer(1).conv_bias);
  CHECK(conv_bias.deviation == doctest::Approx(0.2).epsilon(0.15));
  Moments const norm = moments(model.layer(2).ssm_norm);
  CHECK(norm.mean == doctest::Approx(1.0).epsilon(0.05));
  CHECK(norm.deviation == doctest::Approx(0.2).epsilon(0.2));
  Moments const d = moments(model.layer(2).d);
  CHECK(d.mean == doctest::Approx(1.0).epsilon(0.2));
  Moments const a_log = moments(model.layer(3).a_log, 1);
  CHECK(std::abs(a_log.mean) < 0.2);
  CHECK(a_log.deviation < 0.4);
  for (std::uint32_t l = 0; l < 4; ++l) {
    Moments const dt = moments(model.layer(l).dt_bias);
    CHECK(dt.least >= -4);
    CHECK(dt.largest < 0);
    CHECK(dt.largest - dt.least > 2.5);
  }
  // Layers differ, and so do tensors of one shape.
  CHECK(std::memcmp(model.layer(0).gate.data, model.layer(1).gate.data, 64) != 0);
  CHECK(std::memcmp(model.layer(0).gate.data, model.layer(0).up.data, 64) != 0);
}

TEST_CASE("whole cache lines come first in the file") {
  TestFolder const folder;
  make_model(falcon_preset("tiny").config, folder / "m", seeded(7));
  Checkpoint const checkpoint = Checkpoint::open(folder / "m");
  for (auto const& t : checkpoint.tensors())
    if (t.view.bytes() % 64 == 0) CHECK(reinterpret_cast<std::uintptr_t>(t.view.data) % 64 == 0);
}

TEST_CASE("a folder that holds anything is refused; force replaces a made model only") {
  TestFolder const folder;
  FalconH1Config const config = small_config();
  auto const refusal = [&](const char* name, bool force = false) {
    MakeModelOptions options = seeded(2);
    options.force = force;
    return sentence_of([&] { make_model(config, folder / name, options); });
  };
  CHECK(refusal("new/parents/m") == "");
  CHECK(names_in(folder / "new" / "parents") == std::vector<std::string>{"m"});
  std::filesystem::create_directory(folder / "empty");
  CHECK(refusal("empty/") == "");
  CHECK(names_in(folder / "empty") == std::vector<std::string>{"config.json", "model.safetensors"});

  make_model(config, folder / "m", seeded(1));
  std::string const before = read_file(folder / "m" / "model.safetensors");
  CHECK(contains(refusal("m"), "already holds \""));
  CHECK(read_file(folder / "m" / "model.safetensors") == before);
  CHECK(refusal("m", true) == "");
  CHECK(read_file(folder / "m" / "model.safetensors") != before);
  write_file(folder / "m" / "tokenizer.json", "{}");
  CHECK(contains(refusal("m", true), "holds \"tokenizer.json\", which make-model did not write"));
  CHECK(std::filesystem::exists(folder / "m" / "tokenizer.json"));

  write_file(folder / "file", "x");
  CHECK(contains(refusal("file", true), "is not a folder"));
  CHECK(contains(refusal("file/m"), "file/m: "));
  CHECK(contains(sentence_of([&] { make_model(config, "", seeded(1)); }), "is empty"));
  CHECK(contains(sentence_of([&] { make_model(config, "/", seeded(1)); }), "root"));
  // A link to a folder stays a link.
  std::filesystem::create_directory_symlink(folder / "target", folder / "link");
  CHECK(contains(refusal("link"), "is a link to nothing"));
  std::filesystem::create_directory(folder / "target");
  CHECK(refusal("link") == "");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(std::filesystem::exists(folder / "target" / "config.json"));
  CHECK(names_in(folder.path()) ==
        std::vector<std::string>{"empty", "file", "link", "m", "new", "target"});
}

TEST_CASE("an interrupted or impossible run leaves nothing") {
  TestFolder const folder;
  std::atomic<bool> const stop{true};
  MakeModelOptions options = seeded(1);
  options.stop = &stop;
  CHECK(contains(sentence_of([&] { make_model(small_config(), folder / "m", options); }),
                 "interrupted"));
  CHECK(names_in(folder.path()).empty());
  // Far more than any disk has.
  FalconH1Config huge = falcon_preset("falcon-h1-34b").config;
  huge.vocabulary = huge.hidden = huge.intermediate = 0x7fffffff;
  CHECK(contains(sentence_of([&] { make_model(huge, folder / "m", seeded(1)); }), "needs "));
  CHECK(names_in(folder.path()).empty());
  FalconH1Config wrong = small_config();
  wrong.ssm_groups = 4;
  CHECK(contains(sentence_of([&] { make_model(wrong, folder / "m", seeded(1)); }),
                 "field \"mamba_n_groups\" is 4"));
}
