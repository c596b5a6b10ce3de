// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <hybridstate/geometry/model.hpp>
#include <string>
#include <type_traits>

namespace hs = hybridstate;

namespace {

hs::ModelGeometry falcon_7b() {
  hs::ModelGeometry m;
  m.attention_layers = 44;
  m.recurrent_layers = 44;
  m.kv_heads = 2;
  m.head_dim = 128;
  m.ssm_heads = 24;
  m.ssm_head_dim = 128;
  m.ssm_state = 256;
  m.conv_groups = 1;
  return m;
}

bool says(const std::string& sentence, const char* part) {
  return sentence.find(part) != std::string::npos;
}

static_assert(std::is_aggregate_v<hs::ModelGeometry>);
static_assert(std::is_trivially_copyable_v<hs::ModelGeometry>);

template <hs::ModelGeometry M>
struct AsTemplateArgument {
  static constexpr hs::Bytes conv = M.conv_bytes();
};

}  // namespace

TEST_CASE("bytes of one layer follow from the fields") {
  auto const m = falcon_7b();
  CHECK(m.kv_bytes_per_token() == 1024);
  CHECK(m.head_bytes() == 65536);
  CHECK(m.row_bytes() == 512);
  CHECK(m.ssm_bytes() == 1536 * 1024);
  CHECK(m.conv_bytes() == 21 * 1024);
  CHECK(m.composite_bytes() == 1594368);
  CHECK(hs::with_ssm_dtype(m, 4).ssm_bytes() == 3072 * 1024);
  CHECK(hs::with_ssm_dtype(m, 4).conv_bytes() == 21 * 1024);
  CHECK(hs::sound(m));
  CHECK(hs::problem(m).empty());
}

TEST_CASE("each field counts") {
  auto m = falcon_7b();
  m.d_conv = 5;
  CHECK(m.conv_bytes() == 28672);  // an implementation that keeps four columns
  m = falcon_7b();
  m.conv_dtype_bytes = 4;
  CHECK(m.conv_bytes() == 43008);
  CHECK(m.ssm_bytes() == 1572864);
  m = falcon_7b();
  m.kv_dtype_bytes = 1;
  CHECK(m.kv_bytes_per_token() == 512);
  m = falcon_7b();
  m.conv_groups = 2;
  CHECK(m.conv_bytes() == (3072 + 4 * 256) * 3 * 2);
}

TEST_CASE("a geometry is a template argument") {
  constexpr hs::ModelGeometry m{1, 1, 1, 64, 3, 5, 7, 1};
  CHECK(AsTemplateArgument<m>::conv == (15 + 14) * 3 * 2);
}

TEST_CASE("one form covers the recurrent families") {
  // Mamba-1: channels as heads of one row, only the inner channels convolved.
  hs::ModelGeometry mamba1{4, 28, 8, 128, 8192, 1, 16, 0};
  CHECK(mamba1.conv_bytes() == 8192 * 3 * 2);
  CHECK(mamba1.ssm_bytes() == 8192 * 16 * 2);
  // Gated delta net: 16 key heads of 128, 32 value heads of 128.
  hs::ModelGeometry delta{12, 36, 2, 256, 32, 128, 128, 16};
  CHECK(delta.conv_bytes() == (2 * 16 * 128 + 32 * 128) * 3 * 2);
  CHECK(delta.ssm_bytes() == 32 * 128 * 128 * 2);
}

TEST_CASE("tensor parallelism divides heads and replicates what cannot be divided") {
  auto const two = hs::with_tensor_parallel(falcon_7b(), 2);
  REQUIRE(hs::problem(two).empty());
  CHECK(two.kv_bytes_per_token() == 512);
  CHECK(two.ssm_bytes() == 768 * 1024);
  CHECK(two.conv_bytes() == 12288);  // B and C stay whole on both ranks

  auto const four = hs::with_tensor_parallel(falcon_7b(), 4);
  REQUIRE(hs::problem(four).empty());
  CHECK(four.kv_bytes_per_token() == 512);  // one replicated head, not half of one
  CHECK(four.ssm_bytes() == 384 * 1024);
  CHECK(four.conv_bytes() == (768 + 512) * 3 * 2);

  hs::ModelGeometry nemotron{4, 24, 8, 128, 128, 64, 128, 8};
  auto const n4 = hs::with_tensor_parallel(nemotron, 4);
  CHECK(n4.conv_bytes() == (2048 + 2 * 2 * 128) * 3 * 2);
  auto const n16 = hs::with_tensor_parallel(nemotron, 16);
  REQUIRE(hs::problem(n16).empty());
  CHECK(n16.conv_bytes() == (512 + 2 * 128) * 3 * 2);
  CHECK(n16.kv_bytes_per_token() == 512);

  hs::ModelGeometry jamba{4, 28, 8, 128, 8192, 1, 16, 0};
  auto const j8 = hs::with_tensor_parallel(jamba, 8);
  REQUIRE(hs::problem(j8).empty());
  CHECK(j8.conv_bytes() == 1024 * 3 * 2);
  CHECK(j8.ssm_bytes() == 1024 * 16 * 2);
}

TEST_CASE("ranks that do not divide the heads are refused with a sentence") {
  auto five = hs::with_tensor_parallel(falcon_7b(), 5);
  CHECK(hs::problem(five) ==
        "model geometry: tensor_parallel is 5, which does not divide the 24 SSM heads; choose a "
        "divisor of 24");
  CHECK_FALSE(hs::sound(five));
  CHECK_FALSE(static_cast<bool>(hs::checked(five)));

  auto kv = hs::with_tensor_parallel(falcon_7b(), 3);  // 24 SSM heads fit, 8 KV heads do not
  kv.kv_heads = 8;
  CHECK(says(hs::problem(kv), "tensor_parallel is 3"));
  CHECK(says(hs::problem(kv), "8 KV heads"));
  kv.kv_heads = 2;  // fewer heads than ranks, and a rank would straddle both
  CHECK(says(hs::problem(kv), "2 KV heads"));
  kv.kv_heads = 1;
  CHECK(hs::problem(kv).empty());

  auto groups = kv;
  groups.conv_groups = 2;
  CHECK(says(hs::problem(groups), "2 convolution groups"));
  groups.conv_groups = 5;
  CHECK(says(hs::problem(groups), "conv_groups is 5, which does not divide the 24 SSM heads"));
}

TEST_CASE("every impossible field is named") {
  struct Row {
    std::uint32_t hs::ModelGeometry::* field;
    const char* name;
  };
  for (Row const row : {Row{&hs::ModelGeometry::attention_layers, "attention_layers is 0"},
                        Row{&hs::ModelGeometry::recurrent_layers, "recurrent_layers is 0"},
                        Row{&hs::ModelGeometry::kv_heads, "kv_heads is 0"},
                        Row{&hs::ModelGeometry::head_dim, "head_dim is 0"},
                        Row{&hs::ModelGeometry::ssm_heads, "ssm_heads is 0"},
                        Row{&hs::ModelGeometry::ssm_head_dim, "ssm_head_dim is 0"},
                        Row{&hs::ModelGeometry::ssm_state, "ssm_state is 0"},
                        Row{&hs::ModelGeometry::d_conv, "d_conv is 0"},
                        Row{&hs::ModelGeometry::kv_dtype_bytes, "kv_dtype_bytes is 0"},
                        Row{&hs::ModelGeometry::ssm_dtype_bytes, "ssm_dtype_bytes is 0"},
                        Row{&hs::ModelGeometry::conv_dtype_bytes, "conv_dtype_bytes is 0"},
                        Row{&hs::ModelGeometry::tensor_parallel, "tensor_parallel is 0"}}) {
    auto m = falcon_7b();
    m.*row.field = 0;
    CAPTURE(row.name);
    std::string const sentence = hs::problem(m);
    CHECK(says(sentence, row.name));
    CHECK(sentence.find("model geometry: ") == 0);
    CHECK(sentence.find('\n') == std::string::npos);
    CHECK_FALSE(static_cast<bool>(hs::checked(m)));
    CHECK(hs::checked(m).sentence() == sentence);
  }
  auto m = falcon_7b();
  m.d_conv = 1;
  CHECK(says(hs::problem(m), "d_conv is 1"));
  m = falcon_7b();
  m.ssm_dtype_bytes = 3;
  CHECK(says(hs::problem(m), "ssm_dtype_bytes is 3"));
}

TEST_CASE("sizes that would wrap around are refused") {
  auto const big = 0xffffffffU;
  auto m = falcon_7b();
  m.head_dim = big;
  m.attention_layers = big;
  m.kv_heads = big;
  CHECK(says(hs::problem(m), "KV bytes of one token"));
  m = falcon_7b();
  m.ssm_head_dim = big;
  m.ssm_state = big;
  CHECK(says(hs::problem(m), "SSM bytes of one sequence"));
  m = falcon_7b();
  m.ssm_heads = 1;
  m.ssm_head_dim = 1;
  m.ssm_state = 1 << 30;
  m.d_conv = big;
  CHECK(says(hs::problem(m), "convolution bytes of one sequence"));
  // A product that is a multiple of 2^64 wraps to 0 and must not pass for small.
  m = falcon_7b();
  m.ssm_heads = 1U << 31;
  m.ssm_head_dim = 1U << 31;
  m.ssm_state = 4;
  m.conv_groups = 0;
  CHECK(m.ssm_bytes() < (std::uint64_t{1} << 62));
  CHECK(says(hs::problem(m), "exceed 2^62"));
}

#if HYBRIDSTATE_EXCEPTIONS
TEST_CASE("the value of a refused geometry throws the sentence") {
  auto m = hs::with_tensor_parallel(falcon_7b(), 7);
  CHECK_THROWS_WITH_AS(static_cast<void>(hs::checked(m).value()), hs::problem(m).c_str(),
                       hs::ConfigurationError);
  CHECK(hs::checked(falcon_7b()).value() == falcon_7b());
}
#endif
