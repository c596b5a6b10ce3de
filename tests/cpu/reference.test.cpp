// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <map>
#include <string>

#include "cpu/harness.hpp"
#include "executor/sampling.hpp"
#include "model/safetensors.hpp"

#ifndef HYBRIDSTATE_TEST_DIR
#define HYBRIDSTATE_TEST_DIR "tests"
#endif

using namespace harness;

namespace {

constexpr TokenId fixture_tokens[] = {3, 17, 8, 29, 0, 11, 5, 23, 14, 2, 30};

FalconH1Config fixture_config(char variant) {
  FalconH1Config c = small_config();
  c.layers = 2;
  c.hidden = 16;
  c.intermediate = 20;
  c.vocabulary = 32;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.ssm_heads = 6;
  c.ssm_head_dim = 4;
  c.ssm_state = 8;
  c.ssm_groups = 2;
  c.rope_theta = variant == 'B' ? 1e11 : 10000;
  c.gated_norm = variant != 'B';
  c.norm_before_gate = variant == 'C';
  return c;
}

OwnModel fixture(char variant) {
  OwnModel model(fixture_config(variant));
  model.fill([](std::size_t t, std::size_t i, int kind) {
    double const b = std::sin(1.0 + 0.7 * static_cast<double>(i) + 1.3 * static_cast<double>(t));
    if (kind == 1) return 1 + 0.1 * b;
    if (kind == 2) return std::log(1.0 + static_cast<double>(i)) + 0.1 * b;
    if (kind == 3) return -2 + 0.5 * b;
    return 0.2 * b;
  });
  return model;
}

struct Expected {
  std::array<double, 4> first;
  std::array<double, 8> last;
  std::array<unsigned, 11> argmax;
  double layer1_sum;
  std::array<double, 3> layer1_row;
  double layer1_last;
  std::array<double, 3> conv_first, conv_last;  // of layer 1
  std::array<double, 2> key;
};

const std::map<char, Expected>& expectations() {
  static const std::map<char, Expected> all = {
      {'A',
       {{0.1965128311, 0.1476088565, -0.1365821995, -0.2030625581},
        {-0.008401876, -0.0886195585, -0.0275785268, 0.0774224083, 0.0590127777, -0.0534626465,
         -0.0807191323, 0.0206898936},
        {5, 5, 14, 8, 25, 13, 16, 20, 11, 13, 8},
        0.0233948221,
        {0.0007611357, 0.0031793851, 0.0017002589},
        0.0004350934,
        {0.1650783342, 0.1538815447, 0.0531142855},
        {0.5530084523, 0.1035069444, 0.054787996},
        {0.0354171588, 0.0670591206}}},
      {'B',
       {{-0.253363872, -0.5468215194, 0.0313490158, 0.5595495248},
        {-0.5350394092, -0.3008311831, 0.4128990225, 0.4684722027, -0.222694751, -0.558888438,
         -0.0042193914, 0.557175324},
        {17, 8, 22, 20, 14, 25, 19, 14, 5, 16, 21},
        0.0164001165,
        {-0.001956785, 0.0024825723, 0.0034567335},
        -0.0071988981,
        {-0.9222986748, 0.8126798592, 0.69389097},
        {-1.1907445238, 1.2792335735, 0.9428208095},
        {-0.5684668813, 0.8908633663}}},
      {'C',
       {{0.2873068362, 0.2369702252, -0.1910946197, -0.3145564996},
        {0.2118809527, -0.0831824544, -0.2456538384, -0.0165553937, 0.2389321875, 0.113564186,
         -0.1928240233, -0.1918526152},
        {28, 28, 28, 31, 16, 4, 30, 2, 16, 4, 18},
        0.0365537439,
        {0.0011222869, 0.0022758172, 0.0002610131},
        0.0003946117,
        {0.2060983686, 0.2269757624, -0.0028385277},
        {0.7022179495, 0.1468198771, -0.2004778043},
        {0.3867602687, 0.3590694624}}}};
  return all;
}

double ssm_sum(const Memory& memory, const FalconH1Config& c, std::uint32_t layer) {
  double sum = 0;
  for (std::uint32_t h = 0; h < c.ssm_heads; ++h)
    for (std::uint32_t p = 0; p < c.ssm_head_dim; ++p)
      for (std::uint32_t n = 0; n < c.ssm_state; ++n)
        sum += static_cast<double>(memory.ssm(memory.state(0, 0), layer, h, p, n));
  return sum;
}

struct Near {
  double bound;
  double worst = 0;
  void operator()(float got, double want) {
    double const error = std::abs(static_cast<double>(got) - want);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);  // max() would drop a NaN
  }
};

ForwardOptions exact_options(std::uint32_t max_tokens) {
  ForwardOptions o;
  o.carry = Carry::fp32;
  o.linear_input = LinearInput::fp32;
  o.conv_dtype = Dtype::f32;
  o.max_tokens = max_tokens;
  o.threads = 1;
  return o;
}

}  // namespace

TEST_CASE("closed-form models give the reference's numbers") {
  for (auto const& [variant, want] : expectations()) {
    CAPTURE(variant);
    OwnModel const model = fixture(variant);
    const FalconH1Config& c = model.tensors().config;
    CpuForward forward(model.tensors(), exact_options(16));
    for (std::uint32_t cut : {1U, 11U}) {
      Memory memory(c, {});
      auto const logits = feed(forward, memory, fixture_tokens, {cut});
      Near near{1e-5};
      if (cut == 1) {
        for (std::size_t i = 0; i < 4; ++i) near(logits[0][i], want.first[i]);
        for (std::size_t t = 0; t < 11; ++t) CHECK(Sampler::greedy(logits[t]) == want.argmax[t]);
      }
      for (std::size_t i = 0; i < 8; ++i) near(logits.back()[i], want.last[i]);
      StateRow const row = memory.state(0, 0);
      near(static_cast<float>(ssm_sum(memory, c, 0)), 0.2341734830);
      near(static_cast<float>(ssm_sum(memory, c, 1)), want.layer1_sum);
      double const layer0[] = {-0.0079147602, -0.0061842603, 0.0088437079};
      double const conv0[] = {-0.1564387488, -0.7653462122, -0.0239100445};
      double const conv55[] = {-0.8771212413, -0.5834101138, 0.6112359365};
      for (std::uint32_t n = 0; n < 3; ++n) {
        near(memory.ssm(row, 0, 0, 0, n), layer0[n]);
        near(memory.ssm(row, 1, 0, 0, n), want.layer1_row[n]);
        near(memory.conv(row, 0, 0, n), conv0[n]);
        near(memory.conv(row, 0, 55, n), conv55[n]);
        near(memory.conv(row, 1, 0, n), want.conv_first[n]);
        near(memory.conv(row, 1, 55, n), want.conv_last[n]);
      }
      near(memory.ssm(row, 0, 5, 3, 7), 0.0002260352);
      near(memory.ssm(row, 1, 5, 3, 7), want.layer1_last);
      for (std::uint32_t d = 0; d < 2; ++d) near(memory.key(0, 1, 1, 10, d), want.key[d]);
      MESSAGE("variant " << variant << ": largest error " << near.worst);
      CHECK(near.worst < near.bound);
    }
  }
}

TEST_CASE("a checkpoint inside a chunk is the state after its tokens") {
  OwnModel const model = fixture('A');
  CpuForward forward(model.tensors(), exact_options(16));
  Memory memory(model.tensors().config, {});
  ForwardChunk chunk;
  chunk.tokens = fixture_tokens;
  chunk.blocks = memory.blocks(0);
  StateTarget const targets[] = {
      {1, memory.state(0, 1)}, {8, memory.state(0, 2)}, {11, memory.state(0, 0)}};
  chunk.targets = targets;
  forward.run({&chunk, 1}, memory.kv(), {});
  StateRow const at8 = memory.state(0, 2);
  double const conv[] = {-1.0725381962, -0.5301815319, 0.2170056102};
  for (std::uint32_t n = 0; n < 3; ++n)
    CHECK(static_cast<double>(memory.conv(at8, 0, 0, n)) == doctest::Approx(conv[n]).epsilon(1e-5));
  double sum = 0;
  for (std::uint32_t h = 0; h < 6; ++h)
    for (std::uint32_t p = 0; p < 4; ++p)
      for (std::uint32_t n = 0; n < 8; ++n) sum += static_cast<double>(memory.ssm(at8, 0, h, p, n));
  CHECK(std::abs(sum - 0.0355162465) < 1e-5);
}

namespace {

/// The tensors of one safetensors file.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& path) : file_(path) {
    SafetensorsHeader const header = read_safetensors_header(file_.bytes(), path.string());
    for (const TensorEntry& e : header.tensors) entries_[e.name] = e;
    start_ = header.data_start;
  }
  std::vector<float> operator[](const std::string& name) const {
    const TensorEntry& e = entries_.at(name);
    std::vector<float> v(static_cast<std::size_t>(e.shape.elements()));
    std::memcpy(v.data(), file_.bytes().data() + start_ + e.begin, v.size() * 4);
    return v;
  }

 private:
  MappedFile file_;
  std::map<std::string, TensorEntry> entries_;
  std::uint64_t start_ = 0;
};

/// Safetensors headers of other dtypes than floats are not the loader's business: ids as text.
std::vector<TokenId> ids(const Golden& golden) {
  std::vector<TokenId> v;
  for (float f : golden["ids"]) v.push_back(static_cast<TokenId>(f));
  return v;
}

}  // namespace

TEST_CASE("the goldens of transformers") {
  std::filesystem::path const root = std::filesystem::path(HYBRIDSTATE_TEST_DIR) / "golden/data";
  for (std::string const variant : {"a", "b", "c"}) {
    CAPTURE(variant);
    Golden const golden(root / variant / "expected.safetensors");
    FalconH1Model const loaded = FalconH1Model::load(root / (variant == "c" ? "a" : variant));
    ModelTensors tensors = tensors_of(loaded);
    tensors.config = read_falcon_config(root / variant);
    tensors.config.tied = loaded.config().tied;
    const FalconH1Config c = tensors.config;
    CHECK(c.norm_before_gate == (variant == "c"));
    CpuForward forward(tensors, exact_options(64));
    auto const tokens = ids(golden);
    REQUIRE(tokens.size() == 45);

    Near logits_error{1e-4};
    Near state_error{1e-4};
    auto const want = golden["logits"];
    auto const compare_states = [&](const Memory& memory, const std::string& prefix) {
      StateRow const row = memory.state(0, 0);
      for (std::uint32_t l = 0; l < c.layers; ++l) {
        auto const ssm = golden[prefix + ".l" + std::to_string(l) + ".ssm"];
        auto const conv = golden[prefix + ".l" + std::to_string(l) + ".conv"];
        std::size_t i = 0;
        for (std::uint32_t h = 0; h < c.ssm_heads; ++h)
          for (std::uint32_t p = 0; p < c.ssm_head_dim; ++p)
            for (std::uint32_t n = 0; n < c.ssm_state; ++n)
              state_error(memory.ssm(row, l, h, p, n), static_cast<double>(ssm[i++]));
        i = 0;
        for (std::uint32_t channel = 0; channel < c.conv_channels(); ++channel)
          for (std::uint32_t tap = 0; tap < 3; ++tap)
            state_error(memory.conv(row, l, channel, tap), static_cast<double>(conv[i++]));
      }
    };
    for (std::uint32_t length : {2U, 16U, 32U, 37U}) {
      Memory memory(c, {});
      auto const got = feed(forward, memory, std::span(tokens).first(length), {length});
      for (std::uint32_t i = 0; i < c.vocabulary; ++i)
        logits_error(got[0][i], static_cast<double>(want[(length - 1) * c.vocabulary + i]));
      compare_states(memory, "at" + std::to_string(length));
      if (length != 37) continue;
      for (std::uint32_t l = 0; l < c.layers; ++l)
        for (bool const value : {false, true}) {
          auto const kv = golden["at37.l" + std::to_string(l) + (value ? ".v" : ".k")];
          std::size_t i = 0;
          for (std::uint32_t h = 0; h < c.kv_heads; ++h)
            for (std::uint32_t t = 0; t < length; ++t)
              for (std::uint32_t d = 0; d < c.head_dim; ++d)
                state_error(memory.key(0, l, h, t, d, value), static_cast<double>(kv[i++]));
        }
    }
    {
      Memory memory(c, {});
      auto const got = feed(forward, memory, tokens, {1});
      auto const decoded = golden["decode_logits"];
      for (std::size_t t = 0; t < 45; ++t)
        for (std::size_t i = 0; i < c.vocabulary; ++i)
          logits_error(got[t][i],
                       static_cast<double>(t < 37 ? want[t * c.vocabulary + i]
                                                  : decoded[(t - 37) * c.vocabulary + i]));
      compare_states(memory, "decoded");
    }
    MESSAGE("variant " << variant << ": logits within " << logits_error.worst << ", states within "
                       << state_error.worst);
    CHECK(logits_error.worst < logits_error.bound);
    CHECK(state_error.worst < state_error.bound);
  }
}
