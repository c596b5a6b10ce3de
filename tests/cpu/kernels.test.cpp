// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu/kernels.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "executor/cpu/workers.hpp"
#include "executor/rotation.hpp"
#include "executor/sampling.hpp"
#include "math/deterministic.hpp"

using namespace hybridstate;
using namespace hybridstate::runtime;
using namespace hybridstate::runtime::cpu;

namespace {

std::vector<float> random_floats(std::size_t n, std::uint64_t seed, double scale = 1) {
  BitGenerator bits(seed);
  std::vector<float> v(n);
  for (float& f : v) f = static_cast<float>(scale * bits.normal());
  return v;
}

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> v;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16})
    if (available(isa)) v.push_back(&kernels(isa));
  return v;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

double d(float f) { return static_cast<double>(f); }

}  // namespace

TEST_CASE("BF16 rounds to nearest, ties to even, and keeps NaN and infinity") {
  float const inf = std::numeric_limits<float>::infinity();
  CHECK(numeric::to_bf16(1.0F) == 0x3f80);
  CHECK(numeric::to_bf16(0x1.01p+0F) == 0x3f80);      // a tie, down to even
  CHECK(numeric::to_bf16(0x1.03p+0F) == 0x3f82);      // a tie, up to even
  CHECK(numeric::to_bf16(0x1.010002p+0F) == 0x3f81);  // above the tie
  CHECK(numeric::to_bf16(-0.0F) == 0x8000);
  CHECK(numeric::to_bf16(inf) == 0x7f80);
  CHECK(numeric::to_bf16(-inf) == 0xff80);
  CHECK(numeric::to_bf16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(numeric::to_bf16(numeric::float_of(0x7f800001U)) == 0x7fc0);  // would become infinity
  CHECK(numeric::to_bf16(numeric::float_of(0xffffffffU)) == 0xffff);
  CHECK(numeric::to_bf16(numeric::float_of(0x00008000U)) == 0x0000);  // subnormal tie
  static_assert(numeric::to_bf16(numeric::from_bf16(0x1234)) == 0x1234);

  // All kernels, over bit patterns of every exponent.
  std::vector<float> values;
  for (std::uint32_t e = 0; e < 512; ++e)
    for (std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0x18000U, 0x7fffffU, 0x7f8000U})
      values.push_back(numeric::float_of(e << 23 | low));
  values.pop_back();  // a tail
  for (const Kernels* k : all_kernels()) {
    std::vector<std::uint16_t> stored(values.size());
    k->store(values.data(), Dtype::bf16, values.size(), stored.data());
    std::vector<float> rounded = values;
    k->round(rounded.data(), Dtype::bf16, rounded.size());
    std::vector<float> loaded(values.size());
    k->load(stored.data(), Dtype::bf16, stored.size(), loaded.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      REQUIRE(stored[i] == numeric::to_bf16(values[i]));
      REQUIRE(stored[i] == float_to_bf16(values[i]));
      REQUIRE(numeric::bits_of(rounded[i]) == std::uint32_t{stored[i]} << 16);
      REQUIRE(numeric::bits_of(loaded[i]) == std::uint32_t{stored[i]} << 16);
    }
    std::vector<std::uint16_t> halves(65536 - 1);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(halves.size());
    k->load(halves.data(), Dtype::f16, halves.size(), wide.data());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      float const want = f16_to_float(halves[i]);
      REQUIRE((numeric::bits_of(wide[i]) == numeric::bits_of(want) ||
               (std::isnan(wide[i]) && std::isnan(want))));
    }
  }
}

TEST_CASE("exp, silu and softplus against doubles; the vector forms equal the scalar ones") {
  std::vector<float> x;
  for (int i = -110000; i <= 95000; ++i) x.push_back(static_cast<float>(i) * 1e-3F);
  x.push_back(std::numeric_limits<float>::infinity());
  x.push_back(-std::numeric_limits<float>::infinity());
  x.push_back(-0.0F);
  double worst = 0, worst_softplus = 0;
  for (float f : x) {
    double const want = std::exp(d(f));
    float const got = numeric::exp(f);
    if (want < 3.4e38 && want > 1.2e-38) worst = std::max(worst, std::abs(d(got) / want - 1));
    if (want > 3.5e38) CHECK(std::isinf(got));
    if (want < 1e-46) CHECK(got == 0.0F);
    if (std::isfinite(f) && f > -80) {
      double const soft = f > 0 ? d(f) + std::log1p(std::exp(-d(f))) : std::log1p(want);
      worst_softplus = std::max(worst_softplus, std::abs(d(numeric::softplus(f)) / soft - 1));
    }
  }
  CHECK(worst < 2.4e-7);
  CHECK(worst_softplus < 4e-7);
  CHECK(std::isnan(numeric::exp(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(numeric::softplus(std::numeric_limits<float>::quiet_NaN())));
  CHECK(numeric::exp(0.0F) == 1.0F);
  for (const Kernels* k : all_kernels()) {
    std::vector<float> y(x.size());
    k->exp(x.data(), x.size(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      REQUIRE(numeric::bits_of(y[i]) == numeric::bits_of(numeric::exp(x[i])));
    std::vector<float> const up = random_floats(x.size(), 2);
    k->silu_product(x.data(), up.data(), x.size(), y.data());
    for (std::size_t i = 0; i < x.size(); i += 7) {
      REQUIRE(numeric::bits_of(y[i]) == numeric::bits_of(up[i] * numeric::silu(x[i])));
      if (std::isfinite(x[i]))
        REQUIRE(std::abs(d(y[i]) - d(up[i]) * d(x[i]) / (1 + std::exp(-d(x[i])))) <
                1e-6 * std::abs(d(x[i]) * d(up[i])) + 1e-6);
    }
  }
}

TEST_CASE("sines and cosines of large angles") {
  BitGenerator bits(1);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    auto const a = static_cast<float>(bits.uniform() * (i % 2 == 0 ? 10 : 1048576));
    SineCosine const sc = sine_cosine(a);
    worst = std::max(
        {worst, std::abs(d(sc.sine) - std::sin(d(a))), std::abs(d(sc.cosine) - std::cos(d(a)))});
  }
  CHECK(worst < 7e-8);
  Rotation const rotation(1e11, 8);
  std::vector<float> c(4), s(4);
  rotation.fill(0, c.data(), s.data());
  for (int i = 0; i < 4; ++i) CHECK(c[static_cast<std::size_t>(i)] == 1.0F);
}

namespace {

/// A linear with its memory.
struct LinearCase {
  static constexpr std::uint32_t rows = 27, tokens = 14;

  LinearCase(Dtype dtype, LinearInput input, std::uint32_t columns)
      : w(random_floats(std::size_t{rows} * columns, 3)),
        x(random_floats(std::size_t{tokens} * columns, 4)),
        bias(random_floats(rows, 5)) {
    job.dtype = dtype;
    job.input = input;
    job.rows = rows;
    job.columns = columns;
    job.x_stride = packed_stride(columns, input);
    job.y_stride = rows + 1;
    job.scale = 0.75F;
    job.bias = bias.data();
    job.post = 1.5F;
    store_weights();
  }
  LinearCase(const LinearCase&) = delete;
  LinearCase& operator=(const LinearCase&) = delete;

  void store_weights() {
    stored.resize(w.size() * dtype_bytes(job.dtype));
    for (std::size_t i = 0; i < w.size(); ++i) {
      std::uint16_t const h = job.dtype == Dtype::bf16 ? float_to_bf16(w[i]) : float_to_f16(w[i]);
      if (job.dtype == Dtype::f32)
        std::memcpy(stored.data() + i * 4, &w[i], 4);
      else
        std::memcpy(stored.data() + i * 2, &h, 2);
    }
    job.weights = stored.data();
  }
  float weight(std::size_t row, std::size_t k) const {
    return element_as_float(stored.data(), job.dtype, row * job.columns + k);
  }
  float element(std::size_t token, std::size_t k) const {
    float const f = x[token * job.columns + k];
    return job.input == LinearInput::bf16 ? numeric::round_to_bf16(f) : f;
  }
  /// All tokens and rows at once.
  std::vector<float> run(const Kernels& k) { return run_first(k, tokens); }
  /// The first `count` tokens, the rest zero.
  std::vector<float> run_first(const Kernels& k, std::uint32_t count) {
    pack(k);
    std::vector<float> y(std::size_t{tokens} * job.y_stride);
    job.y = y.data();
    k.linear(job, count, 0, rows);
    return y;
  }
  /// One token at a time, rows in two pieces.
  std::vector<float> run_in_pieces(const Kernels& k) {
    pack(k);
    std::vector<float> y(std::size_t{tokens} * job.y_stride);
    for (std::uint32_t t = 0; t < tokens; ++t) {
      job.x = packed.data() + std::size_t{t} * job.x_stride * element_bytes();
      job.y = y.data() + std::size_t{t} * job.y_stride;
      k.linear(job, 1, 0, 5);
      k.linear(job, 1, 5, rows);
    }
    return y;
  }

  std::vector<float> w, x, bias;
  std::vector<unsigned char> stored;
  Linear job;

 private:
  std::size_t element_bytes() const { return job.input == LinearInput::bf16 ? 2 : 4; }
  void pack(const Kernels& k) {
    packed.assign(tokens * job.x_stride * element_bytes(), 0xff);
    for (std::size_t t = 0; t < tokens; ++t)
      k.pack(x.data() + t * job.columns, job.columns, job.input,
             packed.data() + t * job.x_stride * element_bytes());
    job.x = packed.data();
  }

  std::vector<unsigned char> packed;
};

/// As the instruction set's manuals describe a product and a sum that flush subnormal numbers, for
/// BF16 values a and b: exact, then rounded to 24 bits with any exponent.
float flushing_sum(float a, float b, float c) {
  auto const zero_if_subnormal = [](float v) {
    return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0F, v) : v;
  };
  a = zero_if_subnormal(a);
  b = zero_if_subnormal(b);
  float const r = std::fma(a, b, c);
  if (std::abs(r) > 0x1p-120F || !std::isfinite(r)) return r;
  // No operand is large here: 2^100 times larger, nothing is subnormal.
  float const larger = std::fma(std::ldexp(a, 50), std::ldexp(b, 50), std::ldexp(c, 100));
  return std::abs(larger) < 0x1p-26F ? std::copysign(0.0F, larger) : r;
}

/// One output of a linear with BF16 inputs, written down as the contract says it.
float naive_bf16(const LinearCase& c, std::size_t row, std::size_t token) {
  float chains[16] = {};
  std::size_t const n = c.job.columns;
  for (std::size_t k = 0; k < packed_size(n); k += 2) {
    float& chain = chains[k / 2 % 16];
    for (std::size_t const i : {k + 1, k})
      chain = i < n ? flushing_sum(c.weight(row, i), c.element(token, i), chain)
                    : flushing_sum(0, 0, chain);
  }
  for (std::size_t step = 8; step > 0; step /= 2)
    for (std::size_t i = 0; i < step; ++i) chains[i] += chains[i + step];
  float const y = chains[0] * c.job.scale;
  return (y + c.bias[row]) * c.job.post;
}

constexpr std::pair<Dtype, LinearInput> linear_types[] = {{Dtype::f32, LinearInput::fp32},
                                                          {Dtype::bf16, LinearInput::fp32},
                                                          {Dtype::f16, LinearInput::fp32},
                                                          {Dtype::bf16, LinearInput::bf16}};

}  // namespace

TEST_CASE("linear: near the exact product, and independent of the number of tokens and rows") {
  for (auto const& [dtype, input] : linear_types)
    for (std::uint32_t columns : {1U, 15U, 16U, 48U, 100U, 1031U}) {
      LinearCase c(dtype, input, columns);
      std::vector<float> first;
      for (const Kernels* k : all_kernels()) {
        std::vector<float> const y = c.run(*k);
        if (first.empty()) first = y;
        CHECK(same_bits(first, y));
        CHECK(same_bits(y, c.run_in_pieces(*k)));
      }
      for (std::uint32_t t = 0; t < c.tokens; ++t)
        for (std::uint32_t r = 0; r < c.rows; ++r) {
          double sum = 0, size = 0;
          for (std::uint32_t i = 0; i < columns; ++i) {
            double const p = d(c.weight(r, i)) * d(c.element(t, i));
            sum += p;
            size += std::abs(p);
          }
          double const want = (0.75 * sum + d(c.bias[r])) * 1.5;
          REQUIRE(std::abs(d(first[t * (c.rows + 1) + r]) - want) < 1e-6 * (size + 1));
        }
    }
}

TEST_CASE("linear: inputs that a few tokens read in several passes") {
  for (auto const& [dtype, input] : linear_types)
    for (std::uint32_t columns : {2048U, 4099U}) {
      LinearCase c(dtype, input, columns);
      std::vector<float> const want = c.run_in_pieces(*all_kernels().front());
      for (const Kernels* k : all_kernels())
        for (std::uint32_t count = 2; count <= 9; ++count) {
          std::vector<float> y = want;
          std::fill(y.begin() + count * (c.rows + 1), y.end(), 0.0F);
          CHECK(same_bits(y, c.run_first(*k, count)));
        }
    }
}

TEST_CASE("linear of BF16 inputs: every instruction set follows the contract to the bit") {
  // What elements may be, by their exponents: ordinary, sums that end below the normal numbers,
  // anything, zeros and specials between.
  struct Range {
    const char* name;
    std::uint32_t least_w, w, least_x, x;
  };
  constexpr Range ranges[] = {{"ordinary", 110, 20, 110, 20},
                              {"tiny products", 40, 30, 40, 30},
                              {"around the smallest product", 56, 12, 56, 12},
                              {"tiny elements", 0, 12, 120, 100},
                              {"anything", 0, 255, 0, 255},
                              {"special", 0, 256, 0, 256}};
  BitGenerator bits(31);
  auto const below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(bits.below(n)); };
  for (const Range& range : ranges)
    for (std::uint32_t const columns : {1U, 2U, 31U, 33U, 64U, 65U, 200U, 611U}) {
      CAPTURE(range.name);
      CAPTURE(columns);
      LinearCase c(Dtype::bf16, LinearInput::bf16, columns);
      auto const draw = [&](std::vector<float>& v, std::uint32_t least, std::uint32_t span) {
        for (float& f : v)
          f = below(8) == 0 ? 0.0F
                            : numeric::float_of(below(2) << 31 | (least + below(span)) << 23 |
                                                below(1U << 23));
      };
      draw(c.w, range.least_w, range.w);
      draw(c.x, range.least_x, range.x);
      std::fill(c.bias.begin(), c.bias.end(), -0.0F);  // shows the sums themselves
      c.job.scale = c.job.post = 1;
      c.store_weights();
      std::size_t numbers = 0;
      std::vector<float> want(std::size_t{c.tokens} * c.job.y_stride);
      for (std::size_t t = 0; t < c.tokens; ++t)
        for (std::size_t r = 0; r < c.rows; ++r) {
          float const y = naive_bf16(c, r, t);
          want[t * c.job.y_stride + r] = std::isnan(y) ? 0 : y;  // payloads are nobody's promise
          numbers += std::isfinite(y) ? 1 : 0;
        }
      if (columns < 40 || range.w < 255) CHECK(numbers > 0);
      for (const Kernels* k : all_kernels())
        for (bool const pieces : {false, true}) {
          CAPTURE(k->name);
          std::vector<float> y = pieces ? c.run_in_pieces(*k) : c.run(*k);
          for (float& f : y) f = std::isnan(f) ? 0 : f;
          CHECK(same_bits(want, y));
        }
    }
}

TEST_CASE("linear of BF16 inputs: sums just below the smallest normal number are zeros") {
  // sum + a b, where a b = -2^(-150) is flushed (below 2^-126 even in 24 bits) and -2^(-151) rounds
  // back up; and a flushed sum keeps its sign.
  struct Case {
    float sum, a, b, want;
  };
  constexpr Case cases[] = {
      {0x1p-126F, -0x1p-75F, 0x1p-75F, 0.0F},        {-0x1p-126F, 0x1p-75F, 0x1p-75F, -0.0F},
      {0x1p-126F, -0x1p-75F, 0x1p-76F, 0x1p-126F},   {0x1p-126F, -0x1p-75F, 0x1.02p-76F, 0.0F},
      {0x1.8p-126F, -0x1p-63F, 0x1p-64F, 0x1p-126F}, {-0x1.8p-126F, 0x1p-63F, 0x1p-63F, -0.0F},
      {0x1p-126F, 0x1p-127F, 0x1p100F, 0x1p-126F},   {0x1p-126F, 0x1p127F, 0.0F, 0x1p-126F}};
  for (const Case& e : cases) {
    CHECK(numeric::bits_of(numeric::fused_flushed(numeric::flushed(e.a), e.b, e.sum)) ==
          numeric::bits_of(e.want));
    CHECK(numeric::bits_of(flushing_sum(e.a, e.b, e.sum)) == numeric::bits_of(e.want));
    // The chain of elements 0 and 1: the odd one's product first.
    LinearCase c(Dtype::bf16, LinearInput::bf16, 33);
    std::fill(c.w.begin(), c.w.end(), 0.0F);
    std::fill(c.x.begin(), c.x.end(), 0.0F);
    for (std::size_t r = 0; r < c.rows; ++r) {
      c.w[r * 33] = e.b;
      c.w[r * 33 + 1] = e.sum * 0x1p60F;
    }
    for (std::size_t t = 0; t < c.tokens; ++t) {
      c.x[t * 33] = e.a;
      c.x[t * 33 + 1] = 0x1p-60F;
    }
    std::fill(c.bias.begin(), c.bias.end(), -0.0F);
    c.job.scale = c.job.post = 1;
    c.store_weights();
    for (const Kernels* k : all_kernels()) {
      std::vector<float> const y = c.run(*k);
      for (std::size_t t = 0; t < c.tokens; ++t)
        for (std::size_t r = 0; r < c.rows; ++r)  // the other chains are +0
          CHECK(numeric::bits_of(y[t * c.job.y_stride + r]) == numeric::bits_of(e.want + 0.0F));
    }
  }
}

TEST_CASE("linear of BF16 inputs: the floating-point environment is as it was") {
  volatile float const tiny = 0x1p-140F;
  LinearCase c(Dtype::bf16, LinearInput::bf16, 70);
  for (const Kernels* k : all_kernels()) {
    c.run(*k);
    CHECK(tiny * 0.5F == 0x1p-141F);
  }
}

TEST_CASE("norms against doubles") {
  for (std::size_t n : {1UL, 7UL, 16UL, 48UL, 256UL, 300UL, 1024UL, 3072UL}) {
    auto const x = random_floats(2 * n, 6, 3), w = random_floats(2 * n, 7),
               z = random_floats(2 * n, 8);
    auto const reference = [&](std::size_t at, const std::vector<double>& v) {
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += v[at + i] * v[at + i];
      return 1 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
    };
    std::vector<double> plain(x.begin(), x.end()), gated(2 * n);
    auto const silu = [&](std::size_t i) { return d(z[i]) / (1 + std::exp(-d(z[i]))); };
    for (std::size_t i = 0; i < 2 * n; ++i) gated[i] = plain[i] * silu(i);
    std::vector<float> first[4];
    for (const Kernels* k : all_kernels()) {
      std::vector<float> y(n);
      k->rms_norm(x.data(), w.data(), 1e-5F, n, y.data());
      for (std::size_t i = 0; i < n; ++i)
        REQUIRE(std::abs(d(y[i]) - plain[i] * reference(0, plain) * d(w[i])) <
                4e-6 * (1 + std::abs(d(y[i]))));
      if (first[0].empty()) first[0] = y;
      CHECK(same_bits(first[0], y));
      for (int variant = 0; variant < 3; ++variant) {
        GatedNorm norm;
        norm.width = static_cast<std::uint32_t>(2 * n);
        norm.groups = 2;
        norm.weight = variant == 2 ? nullptr : w.data();
        norm.norm_before_gate = variant == 1;
        norm.epsilon = 1e-5F;
        std::vector<float> g = x;
        k->gated_norm(norm, g.data(), z.data());
        for (std::size_t i = 0; i < 2 * n; ++i) {
          std::size_t const at = i < n ? 0 : n;
          double const want = variant == 0   ? gated[i] * reference(at, gated) * d(w[i])
                              : variant == 1 ? plain[i] * reference(at, plain) * d(w[i]) * silu(i)
                                             : gated[i];
          REQUIRE(std::abs(d(g[i]) - want) < 4e-6 * (1 + std::abs(want)));
        }
        auto& kept = first[variant + 1];
        if (kept.empty()) kept = g;
        CHECK(same_bits(kept, g));
      }
    }
  }
}

TEST_CASE("the convolution against doubles, channels in any pieces") {
  std::uint32_t const channels = 53, tokens = 9, width = 4;
  auto const w = random_floats(channels * width, 9), bias = random_floats(channels, 10);
  auto const history = random_floats(channels * 3, 11), x = random_floats(tokens * 60, 12);
  std::vector<float> first;
  for (const Kernels* k : all_kernels()) {
    std::vector<float> y(tokens * channels);
    Convolution j{tokens,         channels, width, w.data(), bias.data(),
                  history.data(), x.data(), 60,    y.data(), channels};
    k->convolve(j, 0, 20);
    k->convolve(j, 20, channels);
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t c = 0; c < channels; ++c) {
        double acc = d(bias[c]);
        for (std::size_t i = 0; i < 4; ++i)
          acc += d(w[i * channels + c]) *
                 d(t + i < 3 ? history[(t + i) * channels + c] : x[(t + i - 3) * 60 + c]);
        REQUIRE(std::abs(d(y[t * channels + c]) - acc / (1 + std::exp(-acc))) < 3e-6);
      }
    if (first.empty()) first = y;
    CHECK(same_bits(first, y));
  }
}

TEST_CASE("the recurrence against doubles") {
  for (std::uint32_t n : {1U, 8U, 16U, 32U, 40U, 64U, 128U, 256U, 300U}) {
    std::uint32_t const rows = 3, tokens = 20;
    auto const x = random_floats(tokens * (rows + 2 * n), 13);
    std::vector<float> dt(tokens), decay(tokens);
    for (std::uint32_t t = 0; t < tokens; ++t) {
      dt[t] = 0.01F * static_cast<float>(t + 1);
      decay[t] = numeric::exp(-dt[t]);
    }
    auto const start = random_floats(rows * n, 14);
    std::vector<float> first;
    for (const Kernels* k : all_kernels()) {
      std::vector<float> state = start, y(tokens * rows);
      std::int32_t const page = 0;
      SsmPages<> pages;
      pages.base = reinterpret_cast<std::byte*>(state.data());
      pages.pages = &page;
      pages.map = {rows * n * 4ULL, rows * n * 4ULL, 1, 1, 1};
      StateStore const store{tokens, pages, Dtype::f32};
      StateUpdate j;
      j.tokens = tokens;
      j.rows = rows;
      j.state = n;
      j.dt = dt.data();
      j.decay = decay.data();
      j.dt_stride = 1;
      j.x = x.data();
      j.b = x.data() + rows;
      j.c = x.data() + rows + n;
      j.stride = rows + 2 * n;
      j.d = 0.5F;
      j.y = y.data();
      j.y_stride = rows;
      j.source = &pages;
      j.stores = &store;
      j.store_count = 1;
      k->update_state(j, 0, rows);
      std::vector<double> s(start.begin(), start.end());
      for (std::size_t t = 0; t < tokens; ++t)
        for (std::size_t r = 0; r < rows; ++r) {
          const float* const in = x.data() + t * j.stride;
          double sum = 0;
          for (std::size_t i = 0; i < n; ++i) {
            double& e = s[r * n + i];
            e = d(decay[t]) * e + d(dt[t]) * d(in[r]) * d(in[rows + i]);
            sum += e * d(in[rows + n + i]);
          }
          REQUIRE(std::abs(d(y[t * rows + r]) - sum - 0.5 * d(in[r])) < 1e-5 * (1 + std::sqrt(n)));
        }
      for (std::size_t i = 0; i < s.size(); ++i) REQUIRE(std::abs(d(state[i]) - s[i]) < 1e-5);
      if (first.empty()) first = y;
      CHECK(same_bits(first, y));
    }
  }
}

TEST_CASE("every BF16 element of a state is rounded once a token, whatever it is") {
  auto const bf16 = [](std::uint32_t bits) { return static_cast<std::uint16_t>(bits); };
  for (auto const& [n, tokens] : {std::pair{16U, 1U},
                                  {32U, 1U},
                                  {40U, 1U},
                                  {64U, 1U},
                                  {128U, 1U},
                                  {256U, 1U},
                                  {40U, 18U},
                                  {64U, 18U},
                                  {128U, 18U}}) {
    std::uint32_t const rows = 22;
    std::vector<std::uint16_t> start(std::size_t{rows} * n);
    auto const noise = random_floats(start.size(), 21);
    for (std::size_t i = 0; i < start.size(); ++i) start[i] = numeric::to_bf16(noise[i]);
    start[n + 3] = bf16(0x7fa5);      // row 1: a NaN
    start[2 * n + 1] = bf16(0x7f80);  // row 2: an infinity
    for (std::uint32_t i = 0; i < n; ++i)
      start[3 * n + i] = bf16(0x7f70 + i % 16);                        // row 3: overflows
    for (std::uint32_t i = 0; i < n; ++i) start[4 * n + i] = bf16(i);  // row 4: subnormal
    // Row 5: a NaN whose low bits would carry into the sign if it were rounded like a number.
    std::vector<float> x = {0.5F, 0.5F, 0.5F, 1e38F, 1e-39F, numeric::float_of(0x7fffffffU)};
    x.resize(rows, 0.25F);
    auto const b = random_floats(n, 22), c = random_floats(n, 23);
    float const dt = 0.75F, decay = 1.0F;
    std::vector<std::uint16_t> want = start;
    for (std::uint32_t t = 0; t < tokens; ++t)
      for (std::size_t i = 0; i < want.size(); ++i)
        want[i] = numeric::to_bf16(
            numeric::fused(decay, numeric::from_bf16(want[i]), dt * x[i / n] * b[i % n]));
    std::vector<float> first;
    for (const Kernels* k : all_kernels())
      for (bool in_place : {false, true}) {
        std::vector<std::uint16_t> from = start, to(start.size(), 0xffff);
        std::vector<float> y(std::size_t{tokens} * rows);
        std::int32_t const page = 0;
        SsmPages<> source;
        source.base = reinterpret_cast<std::byte*>(from.data());
        source.pages = &page;
        source.map = {rows * n * 2ULL, rows * n * 2ULL, 1, 1, 1};
        StateStore store{tokens, source, Dtype::bf16};
        if (!in_place) store.pages.base = reinterpret_cast<std::byte*>(to.data());
        StateUpdate j;  // every token is the same
        j.tokens = tokens;
        j.rows = rows;
        j.state = n;
        j.carry = Carry::bf16_per_token;
        j.dt = &dt;
        j.decay = &decay;
        j.x = x.data();
        j.b = b.data();
        j.c = c.data();
        j.d = 0.5F;
        j.y = y.data();
        j.y_stride = rows;
        j.source = &source;
        j.source_dtype = Dtype::bf16;
        j.stores = &store;
        j.store_count = 1;
        k->update_state(j, 0, rows);
        CHECK((in_place ? from : to) == want);
        for (std::uint32_t t = 0; t < tokens; ++t)
          for (std::size_t const row : {1U, 5U}) CHECK(std::isnan(y[t * rows + row]));
        for (float& f : y) f = std::isnan(f) ? 0 : f;  // its payload is nobody's promise
        if (first.empty()) first = y;
        CHECK(same_bits(first, y));
      }
  }
}

TEST_CASE("attention against doubles, over splits") {
  for (std::uint32_t dim : {8U, 10U, 64U, 80U, 128U, 256U})
    for (std::uint32_t heads : {1U, 2U, 6U, 11U}) {
      std::uint32_t const tokens = heads == 2 ? 2100 : 600, block = 24;
      std::uint32_t const units = (tokens + block - 1) / block;
      std::vector<std::int32_t> table(units);
      for (std::uint32_t i = 0; i < units; ++i)
        table[i] = static_cast<std::int32_t>((i * 7) % units);
      auto kv = random_floats(std::size_t{units} * 2 * block * dim, 15);
      auto const q = random_floats(heads * dim, 16);
      AttentionBlocks blocks;
      blocks.base = reinterpret_cast<std::byte*>(kv.data());
      blocks.units = table.data();
      blocks.strides = {std::int64_t{dim} * 4, std::int64_t{dim} * 4 * block,
                        std::int64_t{dim} * 4 * block, static_cast<std::int32_t>(block)};
      blocks.unit_stride = std::int64_t{dim} * 8 * block;
      for (std::uint32_t position : {0U, 3U, 255U, 256U, 599U, 1024U, 2099U}) {
        if (position >= tokens) continue;
        std::vector<float> first;
        std::vector<double> want(heads * dim);
        for (std::uint32_t h = 0; h < heads; ++h) {
          double denominator = 0;
          for (std::uint32_t t = 0; t <= position; ++t) {
            auto const at = [&](bool value, std::uint32_t i) {
              auto const token = static_cast<std::int32_t>(t);
              const std::byte* p =
                  value ? blocks.addr_value(0, 0, token) : blocks.addr_key(0, 0, token);
              return d(element_as_float(p, Dtype::f32, i));
            };
            double score = 0;
            for (std::uint32_t i = 0; i < dim; ++i) score += at(false, i) * d(q[h * dim + i]);
            double const p = std::exp(score / std::sqrt(dim));
            denominator += p;
            for (std::uint32_t i = 0; i < dim; ++i) want[h * dim + i] += p * at(true, i);
          }
          for (std::uint32_t i = 0; i < dim; ++i) want[h * dim + i] /= denominator;
        }
        for (const Kernels* k : all_kernels()) {
          std::vector<float> out(heads * dim);
          Attention j;
          j.blocks = blocks;
          j.kv_dtype = Dtype::f32;
          j.head_dim = dim;
          j.heads = heads;
          j.position = position;
          j.scale = 1 / std::sqrt(static_cast<float>(dim));
          j.q = q.data();
          j.out = out.data();
          k->attend(j);
          for (std::size_t i = 0; i < out.size(); ++i)
            REQUIRE(std::abs(d(out[i]) - want[i]) < 5e-6);
          if (first.empty()) first = out;
          CHECK(same_bits(first, out));
        }
      }
    }
}

namespace {

/// The softmax over some tokens in the order of the numeric contract, one head of one dimension per
/// split, span and sequence: written down once more, without vectors and blocks of heads.
struct Joined {
  float largest = 0, denominator = 0;
  std::vector<float> output;

  void join(const Joined& next) {
    if (output.empty()) {
      *this = next;
      return;
    }
    float const m = largest < next.largest ? next.largest : largest;
    float const keep = numeric::exp(largest - m), take = numeric::exp(next.largest - m);
    largest = m;
    denominator = numeric::fused(denominator, keep, next.denominator * take);
    for (std::size_t i = 0; i < output.size(); ++i)
      output[i] = numeric::fused(output[i], keep, next.output[i] * take);
  }
};
float halved(std::vector<float> chains) {
  for (std::size_t n = chains.size() / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) chains[i] = chains[i] + chains[i + n];
  return chains[0];
}
/// Keys and values [token][dim], dim at most 16: a score has one product a chain.
Joined split_of(const float* q, const float* keys, const float* values, std::size_t count,
                std::size_t dim) {
  Joined split;
  std::vector<float> p(256), chains(16);
  for (std::size_t t = 0; t < count; ++t) {
    chains.assign(16, 0.0F);
    for (std::size_t i = 0; i < dim; ++i) chains[i] = q[i] * keys[t * dim + i];
    p[t] = halved(chains) * 0.25F;
    split.largest = t == 0 || split.largest < p[t] ? p[t] : split.largest;
  }
  for (std::size_t t = 0; t < count; ++t) p[t] = numeric::exp(p[t] - split.largest);
  split.denominator = halved(p);
  for (std::size_t i = 0; i < dim; ++i) {
    float sums[4] = {};
    for (std::size_t t = 0; t < count; ++t)
      sums[t % 4] = numeric::fused(p[t], values[t * dim + i], sums[t % 4]);
    split.output.push_back((sums[0] + sums[2]) + (sums[1] + sums[3]));
  }
  return split;
}

}  // namespace

TEST_CASE("attention joins splits of 256 tokens in spans of 1,024") {
  constexpr std::size_t dim = 12, most = 4200;
  auto const kv = random_floats(2 * most * dim, 21);
  auto const q = random_floats(dim, 22);
  std::int32_t const unit = 0;
  AttentionBlocks blocks;
  blocks.base = reinterpret_cast<std::byte*>(const_cast<float*>(kv.data()));
  blocks.units = &unit;
  blocks.strides = {dim * 4, 0, most * dim * 4, most};
  for (std::uint32_t const tokens :
       {1U, 255U, 256U, 257U, 1023U, 1024U, 1025U, 1280U, 2048U, 2049U, 2400U, 4097U, 4200U}) {
    CAPTURE(tokens);
    Joined want;
    for (std::size_t span = 0; span < tokens; span += 1024) {
      Joined of_span;
      for (std::size_t t = span; t < std::min<std::size_t>(tokens, span + 1024); t += 256)
        of_span.join(split_of(q.data(), &kv[t * dim], &kv[(most + t) * dim],
                              std::min<std::size_t>(256, tokens - t), dim));
      want.join(of_span);
    }
    for (float& f : want.output) f = f / want.denominator;
    for (const Kernels* k : all_kernels()) {
      std::vector<float> out(dim);
      Attention j;
      j.blocks = blocks;
      j.kv_dtype = Dtype::f32;
      j.head_dim = dim;
      j.heads = 1;
      j.position = tokens - 1;
      j.scale = 0.25F;
      j.q = q.data();
      j.out = out.data();
      k->attend(j);
      CHECK(same_bits(out, want.output));
    }
  }
}

TEST_CASE("sampling is a function of logits, options and position") {
  auto logits = random_floats(500, 17, 2);
  logits[44] = logits[321] = 9;
  CHECK(Sampler::greedy(logits) == 44);
  Sampler sampler;
  CHECK(sampler.sample(logits, {}, 3) == 44);
  SamplingOptions o;
  o.temperature = 1.3;
  o.seed = 5;
  TokenId const chosen = sampler.sample(logits, o, 100);
  CHECK(sampler.sample(logits, o, 100) == chosen);
  CHECK(Sampler().sample(logits, o, 100) == chosen);
  bool differs = false;
  for (Tokens p = 0; p < 20; ++p) differs = differs || sampler.sample(logits, o, p) != chosen;
  CHECK(differs);
  o.top_k = 2;
  for (Tokens p = 0; p < 200; ++p) {
    TokenId const t = sampler.sample(logits, o, p);
    CHECK((t == 44 || t == 321));
  }
  o.top_k = 1;
  CHECK(sampler.sample(logits, o, 7) == 44);
  o.top_k = 0;
  o.top_p = 1e-9;
  CHECK(sampler.sample(logits, o, 7) == 44);

  // Frequencies follow the probabilities of the kept set.
  std::vector<float> const few = {0, 1, 2, -30, 1};
  o = {};
  o.temperature = 1;
  o.top_p = 0.9;
  std::vector<double> count(5);
  int const draws = 20000;
  for (int i = 0; i < draws; ++i) count[sampler.sample(few, o, static_cast<Tokens>(i))] += 1;
  double const total = std::exp(2.0) + 2 * std::exp(1.0);
  CHECK(count[0] == 0);
  CHECK(count[3] == 0);
  CHECK(std::abs(count[2] / draws - std::exp(2.0) / total) < 0.02);
  CHECK(std::abs(count[1] / draws - std::exp(1.0) / total) < 0.02);
}

TEST_CASE("workers run every item once") {
  for (unsigned threads : {1U, 2U, 5U}) {
    Workers workers(threads);
    CHECK(workers.threads() == threads);
    for (std::size_t n : {0UL, 1UL, 2UL, 1000UL}) {
      std::vector<int> count(n);
      for (int round = 0; round < 50; ++round) workers.run(n, [&](std::size_t i) { ++count[i]; });
      CHECK(std::all_of(count.begin(), count.end(), [](int c) { return c == 50; }));
    }
  }
}
