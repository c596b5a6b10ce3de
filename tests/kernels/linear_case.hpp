// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "executor/cpu/kernels.hpp"
#include "kernels/state_case.hpp"
#include "kernels/target.hpp"
#include "math/deterministic.hpp"

namespace linear_test {

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

inline const cpu::Kernels& reference() { return cpu::kernels(cpu::Isa::scalar); }

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
    std::size_t const row_bytes = cpu::packed_stride(job.columns, input) * (rounds ? 2 : 4);
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
    linear.x_stride = cpu::packed_stride(job.columns, input);
    linear.y = out.data();
    linear.y_stride = static_cast<std::size_t>(job.y.stride);
    linear.scale = job.scale;
    linear.bias = job.bias;
    linear.post = job.post;
    reference().linear(linear, job.tokens, 0, job.rows);
    return out;
  }
  template <class Targets>
  void check(Targets& targets) {
    std::vector<float> const wanted = expected();
    for (auto& target : targets) {
      y.assign(y.size(), untouched);
      run_on(target, job, weights, x, bias, y);
      CHECK(same_bits(y, wanted));
    }
  }

  static constexpr float untouched = -7.25F;
  runtime::BitGenerator bits;
  std::size_t weight_bytes = 0;
  std::vector<Line> weights;
  std::vector<float> x, bias, y;
  LinearJob job;
};

inline constexpr Types types[] = {{ElementType::bf16, ElementType::f32},
                                  {ElementType::f32, ElementType::f32},
                                  {ElementType::bf16, ElementType::bf16}};

/// Shapes of every kind.
template <class Targets>
void check_linears(Targets& targets) {
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
        c.check(targets);
      }
}

}  // namespace linear_test
