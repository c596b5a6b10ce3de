// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear_case.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "kernels/recording.hpp"

using namespace linear_test;

TEST_CASE("the linear gives the CPU executor's bits for every shape") {
  check_linears(every_order);
}

TEST_CASE("rows of x, or weights, that begin at odd elements: the same bits") {
  for (Types const type : types) {
    LinearCase c(20, 70, 3, type, 1);
    ++c.job.x.data;
    --c.job.tokens;
    c.check(every_order);
    --c.job.x.data;
    c.job.weights = c.weights.front().bytes + kernels::bytes_of(type.weights);
    --c.job.rows;
    c.check(every_order);
  }
}

TEST_CASE("a short last step is padded: chains of -0 become +0 there") {
  LinearCase c(1, 62, 1, {ElementType::f32, ElementType::f32}, 1);
  std::vector<float> const w(62, -1e-30F);
  std::memcpy(c.weights.front().bytes, w.data(), w.size() * sizeof(float));
  c.x.assign(c.x.size(), 1e-30F);
  c.job.bias = nullptr;
  c.check(every_order);
  CHECK_FALSE(std::signbit(c.y[0]));
  c.job.columns = 32;  // nothing is padded, though a lane may take several steps at once
  c.check(every_order);
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
      c.check(every_order);
    }
}

TEST_CASE("empty linears write nothing, sums of nothing are +0, too many rows are refused") {
  LinearCase none(5, 40, 0, {ElementType::bf16, ElementType::bf16}, 1);
  none.check(every_order);
  LinearCase empty(5, 0, 2, {ElementType::bf16, ElementType::bf16}, 1);
  empty.check(every_order);
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
