// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <hybridstate/kernels/linear.hpp>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "kernels/recording.hpp"
#include "math/deterministic.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

namespace {

const cpu::Kernels& reference() { return cpu::kernels(cpu::Isa::scalar); }

struct Types {
  ElementType weights, input;
};

/// A linear with its memory, whose rows of x and y are further apart than they are long.
struct LinearCase {
  LinearCase(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens, Types types,
             std::uint64_t seed)
      : bits(seed) {
    ElementType const type = job.type = types.weights;
    job.input = types.input;
    job.rows = rows;
    job.columns = columns;
    job.tokens = tokens;
    job.scale = 0.7F;
    job.post = 1.3F;
    job.x.stride = (columns + 7) / 2 * 2;
    job.y.stride = rows + 3;
    std::vector<float> const drawn = draw(std::size_t{rows} * columns);
    weight_bytes = drawn.size() * static_cast<std::size_t>(kernels::bytes_of(type));
    weights.resize(weight_bytes / sizeof(Line) + 1);
    reference().store(drawn.data(), dtype(), drawn.size(), weights.data());
    x = draw(tokens * static_cast<std::size_t>(job.x.stride));
    bias = draw(rows);
    y.assign(tokens * static_cast<std::size_t>(job.y.stride), untouched);
    job.weights = weights.data();
    job.x.data = x.data();
    job.y.data = y.data();
    job.bias = bias.data();
  }
  LinearCase(const LinearCase&) = delete;
  LinearCase& operator=(const LinearCase&) = delete;

  runtime::Dtype dtype() const {
    return job.type == ElementType::bf16 ? runtime::Dtype::bf16 : runtime::Dtype::f32;
  }
  /// Normal values, and some so small that sums of their products end in zeros of either sign.
  std::vector<float> draw(std::size_t n) {
    std::vector<float> v(n);
    float const unit = bits.normal() > 1 ? 1e-24F : 1.0F;
    for (float& f : v) f = static_cast<float>(bits.normal()) * unit;
    return v;
  }
  /// What the CPU executor makes of it.
  std::vector<float> expected() const {
    bool const rounds = job.input == ElementType::bf16;
    auto const input = rounds ? runtime::LinearInput::bf16 : runtime::LinearInput::fp32;
    std::size_t const row_bytes = cpu::packed_stride(job.columns) * (rounds ? 2 : 4);
    std::vector<std::byte> packed(job.tokens * row_bytes);
    for (std::uint32_t i = 0; i < job.tokens; ++i)
      reference().pack(job.x.row(i), job.columns, input, packed.data() + i * row_bytes);
    std::vector<float> out(y.size(), untouched);
    cpu::Linear linear;
    linear.weights = job.weights;
    linear.dtype = dtype();
    linear.input = input;
    linear.rows = job.rows;
    linear.columns = job.columns;
    linear.x = packed.data();
    linear.x_stride = cpu::packed_stride(job.columns);
    linear.y = out.data();
    linear.y_stride = static_cast<std::size_t>(job.y.stride);
    linear.scale = job.scale;
    linear.bias = job.bias;
    linear.post = job.post;
    reference().linear(linear, job.tokens, 0, job.rows);
    return out;
  }
  void check() {
    std::vector<float> const wanted = expected();
    for (ThreadOrder const order :
         {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
      y.assign(y.size(), untouched);
      CHECK(with_kernel(job, [&](const auto& kernel) { Interpreter(order).run(kernel); }));
      CHECK((y.empty() || std::memcmp(y.data(), wanted.data(), y.size() * sizeof(float)) == 0));
    }
  }

  struct alignas(line_bytes) Line {
    std::byte of[line_bytes];
  };
  static constexpr float untouched = -7.25F;
  runtime::BitGenerator bits;
  std::size_t weight_bytes = 0;
  std::vector<Line> weights;
  std::vector<float> x, bias, y;
  LinearJob job;
};

constexpr Types types[] = {{ElementType::bf16, ElementType::f32},
                           {ElementType::f32, ElementType::f32},
                           {ElementType::bf16, ElementType::bf16}};

TEST_CASE("the linear gives the CPU executor's bits for every shape") {
  std::uint64_t seed = 0;
  for (Types const type : types)
    for (std::uint32_t const tokens : {1U, 2U, 3U, 5U, 8U, 9U, 37U})
      for (std::uint32_t const columns : {1U, 2U, 30U, 32U, 33U, 64U, 608U, 1100U}) {
        std::uint32_t const rows = 1 + static_cast<std::uint32_t>(seed * 7 % 45);
        CAPTURE(tokens);
        CAPTURE(columns);
        CAPTURE(rows);
        LinearCase c(rows, columns, tokens, type, ++seed);
        if (seed % 3 == 0) c.job.bias = nullptr;
        c.check();
      }
}

TEST_CASE("rows of x, or weights, that begin at odd elements: the same bits") {
  for (Types const type : types) {
    LinearCase c(20, 70, 3, type, 1);
    ++c.job.x.data;
    --c.job.tokens;
    c.check();
    --c.job.x.data;
    c.job.weights = c.weights.front().of + kernels::bytes_of(type.weights);
    --c.job.rows;
    c.check();
  }
}

TEST_CASE("a short last step is padded: chains of -0 become +0 there") {
  LinearCase c(1, 62, 1, {ElementType::f32, ElementType::f32}, 1);
  std::vector<float> const w(62, -1e-30F);
  std::memcpy(c.weights.front().of, w.data(), w.size() * sizeof(float));
  c.x.assign(c.x.size(), 1e-30F);
  c.job.bias = nullptr;
  c.check();
  CHECK_FALSE(std::signbit(c.y[0]));
  c.job.columns = 32;  // nothing is padded, though a lane may take several steps at once
  c.check();
  CHECK(std::signbit(c.y[0]));
}

TEST_CASE("inputs rounded to BF16: sums below the normal numbers are flushed as on the CPU") {
  std::uint64_t seed = 100;
  for (std::uint32_t const tokens : {1U, 2U, 5U, 20U})
    for (std::uint32_t const columns : {33U, 64U, 96U, 640U}) {
      CAPTURE(tokens);
      CAPTURE(columns);
      LinearCase c(19, columns, tokens, {ElementType::bf16, ElementType::bf16}, ++seed);
      // Products around 2^-126, and one that is subnormal as an element.
      auto const tiny = [&](float& f) {
        f = static_cast<float>(c.bits.normal()) * (c.bits.below(9) == 0 ? 0x1p-70F : 0x1p-63F);
      };
      for (float& f : c.x) tiny(f);
      std::vector<float> w(std::size_t{19} * columns);
      for (float& f : w) tiny(f);
      w.front() = 0x1p-128F;
      c.x.front() = 1;
      reference().store(w.data(), runtime::Dtype::bf16, w.size(), c.weights.data());
      c.job.scale = 0x1p100F;
      c.job.post = 1;
      c.job.bias = nullptr;
      c.check();
    }
}

TEST_CASE("empty linears write nothing, sums of nothing are +0, too many rows are refused") {
  LinearCase none(5, 40, 0, {ElementType::bf16, ElementType::bf16}, 1);
  none.check();
  LinearCase empty(5, 0, 2, {ElementType::bf16, ElementType::bf16}, 1);
  empty.check();
  empty.job.rows = 524281;
  CHECK_FALSE(with_kernel(empty.job, [](const auto&) { FAIL("refused jobs have no kernel"); }));
  LinearCase mixed(5, 40, 2, {ElementType::f32, ElementType::f32}, 1);
  mixed.job.input = ElementType::bf16;  // rounded inputs need weights in BF16
  CHECK_FALSE(with_kernel(mixed.job, [](const auto&) { FAIL("refused jobs have no kernel"); }));
}

TEST_CASE("up to 8 tokens read Falcon-H1-7B's weights once, in whole sectors") {
  for (Types const type : types)
    for (std::uint32_t const tokens : {1U, 2U, 4U, 8U}) {
      LinearCase c(64, 3072, tokens, type, tokens);
      c.job.x.stride = c.job.columns;
      c.job.y.stride = c.job.rows;
      auto const once = static_cast<std::int64_t>(c.weight_bytes);
      std::uint64_t const x_bytes = std::uint64_t{tokens} * c.job.columns * sizeof(float);
      std::uint64_t const y_bytes = std::uint64_t{tokens} * c.job.rows * sizeof(float);
      std::vector<Region> const regions = {
          {"weights", c.weights.data(), c.weight_bytes, once},
          {"x", c.x.data(), x_bytes},
          {"bias", c.bias.data(), c.job.rows * sizeof(float)},
          {"y", c.y.data(), y_bytes, -1, static_cast<std::int64_t>(y_bytes)}};
      std::uint64_t least = 0;
      for (Region const& region : regions) least += region.bytes;
      with_kernel(c.job, [&](const auto& kernel) {
        Recording const recording = record(kernel, regions);
        check_traffic("linear, " + std::to_string(tokens) + " tokens", recording, least);
        CHECK(recording.traffic.at("weights").requested_bytes == c.weight_bytes);
      });
    }
}

}  // namespace
