// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "kernels/target.hpp"
#include "math/deterministic.hpp"

namespace convolution_test {

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

/// Runs of tokens through one layer, their states in lines of a pool, and what the CPU executor
/// makes of them.
struct ConvCase {
  std::uint32_t channels = 48, width = 4;
  bool bf16 = true, bias = true;
  std::int64_t part_bytes = 0;
  std::int64_t gap = 32;  ///< bytes between lines
  std::vector<std::int32_t> token_begin{0};
  std::vector<std::int32_t> store_begin{0}, store_after;
  std::vector<std::int32_t> source, stores;  ///< lines: `parts` a state
  std::vector<std::int32_t> checkpoint;      ///< of a decode step; empty: none

  std::vector<float> weights, bias_values, x, y;
  std::vector<Vector16> pool;

  ElementType type() const { return bf16 ? ElementType::bf16 : ElementType::f32; }
  std::int64_t element() const { return bf16 ? 2 : 4; }
  std::int64_t state_bytes() const { return std::int64_t{width - 1} * channels * element(); }
  std::int64_t parts() const {
    return part_bytes == 0 ? 1 : (state_bytes() + part_bytes - 1) / part_bytes;
  }
  std::int64_t stride() const {
    return ((part_bytes == 0 ? state_bytes() : part_bytes) + gap + 15) / 16 * 16;
  }
  std::int64_t x_stride() const { return channels + 16; }
  std::uint32_t sequences() const { return static_cast<std::uint32_t>(token_begin.size()) - 1; }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(pool.data()); }

  /// A sequence of `tokens` that leaves a state after each of `after`.
  void add(std::int32_t tokens, const std::vector<std::int32_t>& after) {
    token_begin.push_back(token_begin.back() + tokens);
    store_after.insert(store_after.end(), after.begin(), after.end());
    store_begin.push_back(static_cast<std::int32_t>(store_after.size()));
  }
  /// Draws everything: every state has lines of its own, in a random order.
  void draw(std::uint64_t seed) {
    runtime::BitGenerator bits(seed);
    auto const fill = [&](std::vector<float>& v, std::size_t n) {
      v.resize(n);
      for (float& f : v) f = static_cast<float>(bits.normal());
    };
    fill(weights, std::size_t{width} * channels);
    fill(bias_values, channels);
    fill(x, static_cast<std::size_t>(token_begin.back() * x_stride()));
    y.assign(static_cast<std::size_t>(token_begin.back()) * channels, -7.0F);
    auto const n = static_cast<std::size_t>(sequences() * parts());
    std::vector<std::int32_t> lines(n + store_after.size() * static_cast<std::size_t>(parts()) + 2);
    std::iota(lines.begin(), lines.end(), 0);
    std::shuffle(lines.begin(), lines.end(), std::mt19937_64(seed));
    auto const middle = lines.begin() + static_cast<std::ptrdiff_t>(n);
    source.assign(lines.begin(), middle);
    stores.assign(middle, lines.end() - 2);
    pool.resize(lines.size() * static_cast<std::size_t>(stride()) / 16);
    for (Vector16& v : pool) {
      float values[8];
      for (float& f : values) f = static_cast<float>(bits.normal());
      v = bf16 ? packed<Bf16>(values) : packed<float>(values);
    }
  }
  void forget(std::vector<std::int32_t>& table, std::int64_t row) const {
    std::fill_n(table.begin() + row * parts(), parts(), -1);
  }
  void copy_row(const std::vector<std::int32_t>& from, std::int64_t i,
                std::vector<std::int32_t>& to, std::int64_t k) const {
    std::copy_n(from.begin() + i * parts(), parts(), to.begin() + k * parts());
  }

  ConvLines view(const std::vector<std::int32_t>& table) {
    return {bytes(), table.data(), parts(), stride(), part_bytes};
  }
  void fill_inputs(ConvolutionInputs& in) {
    in.weights = weights.data();
    in.bias = bias ? bias_values.data() : nullptr;
    in.x = x.data();
    in.x_stride = x_stride();
    in.y = y.data();
    in.y_stride = channels;
    in.channels = channels;
    in.width = width;
  }
  ConvolutionRunsJob runs_job() {
    ConvolutionRunsJob j;
    fill_inputs(j);
    j.type = type();
    j.token_begin = token_begin.data();
    j.source = view(source);
    j.store_begin = store_begin.data();
    j.store_after = store_after.data();
    j.stores = view(stores);
    j.sequences = sequences();
    for (std::size_t s = 0; s < sequences(); ++s)
      j.most_tokens =
          std::max(j.most_tokens, static_cast<std::uint32_t>(token_begin[s + 1] - token_begin[s]));
    return j;
  }
  /// One token a sequence: the store of sequence s is its destination.
  ConvolutionStepJob step_job() {
    ConvolutionStepJob j;
    fill_inputs(j);
    j.type = type();
    j.source = view(source);
    j.destination = view(stores);
    if (!checkpoint.empty()) j.checkpoint = view(checkpoint);
    j.sequences = sequences();
    return j;
  }
  template <class Target, class Job>
  void run(Target& target, const Job& job) {
    run_on(target, job, weights, bias_values, x, y, pool, token_begin, store_begin, store_after,
           source, stores, checkpoint);
  }

  /// Every state is read before any is written.
  void run_on_cpu() {
    cpu::Kernels const& kernels = cpu::kernels(cpu::Isa::scalar);
    auto const dtype = bf16 ? runtime::Dtype::bf16 : runtime::Dtype::f32;
    std::uint32_t const kept = width - 1;
    std::vector<float> inputs = x;
    kernels.round(inputs.data(), dtype, inputs.size());
    auto const element_at = [&](const std::vector<std::int32_t>& table, std::int64_t row,
                                std::int64_t i) {
      return view(table).addr_row(static_cast<std::int32_t>(row), i * element());
    };
    std::vector<std::vector<float>> histories;
    for (std::uint32_t s = 0; s < sequences(); ++s) {
      std::vector<float>& history = histories.emplace_back(std::size_t{kept} * channels, 0.0F);
      for (std::size_t i = 0; i < history.size() && source[std::size_t(s * parts())] >= 0; ++i)
        kernels.load(element_at(source, s, static_cast<std::int64_t>(i)), dtype, 1, &history[i]);
    }
    for (std::uint32_t s = 0; s < sequences(); ++s) {
      const float* const rows = inputs.data() + token_begin[s] * x_stride();
      cpu::Convolution j;
      j.tokens = static_cast<std::uint32_t>(token_begin[s + 1] - token_begin[s]);
      j.channels = channels;
      j.width = width;
      j.weights = weights.data();
      j.bias = bias ? bias_values.data() : nullptr;
      j.history = histories[s].data();
      j.x = rows;
      j.x_stride = static_cast<std::size_t>(x_stride());
      j.y = y.data() + std::size_t(token_begin[s]) * channels;
      j.y_stride = channels;
      kernels.convolve(j, 0, channels);
      for (std::int32_t k = store_begin[s]; k < store_begin[s + 1]; ++k)
        for (std::uint32_t i = 0; i < kept * channels && stores[std::size_t(k * parts())] >= 0;
             ++i) {
          std::uint32_t const at =
              static_cast<std::uint32_t>(store_after[std::size_t(k)]) + i / channels;
          kernels.store(at < kept ? &histories[s][at * channels + i % channels]
                                  : rows + (at - kept) * x_stride() + i % channels,
                        dtype, 1, element_at(stores, k, i));
        }
    }
  }
};

inline bool same(const ConvCase& a, const ConvCase& b) {
  return same_bits(a.pool, b.pool) && same_bits(a.y, b.y);
}

/// Channels and parts in whole groups of V.
inline ConvCase shape(std::mt19937_64& random, bool bf16, unsigned v) {
  ConvCase c;
  c.bf16 = bf16;
  c.width = 2 + static_cast<std::uint32_t>(random() % 3);
  c.channels = v * (1 + static_cast<std::uint32_t>(random() % 150));
  c.bias = random() % 4 != 0;
  if (random() % 2 == 0)
    c.part_bytes = c.element() * static_cast<std::int64_t>(v * (1 + random() % c.channels));
  return c;
}

/// A decode step of four sequences, one of which begins, two with checkpoints.
template <class Targets>
void check_decode(Targets& targets, bool bf16, unsigned v, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ConvCase c = shape(random, bf16, v);
  for (int s = 0; s < 4; ++s) c.add(1, {1});
  for (int s = 0; s < 2; ++s) c.add(0, {});  // lines for two checkpoints
  c.draw(seed);
  auto const parts = static_cast<std::ptrdiff_t>(c.parts());
  c.checkpoint.assign(c.source.end() - 2 * parts, c.source.end());
  c.checkpoint.resize(static_cast<std::size_t>(4 * parts), -1);
  c.token_begin.resize(5);
  c.store_begin.resize(5);
  c.forget(c.source, 1);                                                // begins
  if (seed % 2 == 0) c.copy_row(c.source, 0, c.stores, 0);              // in place
  if (seed % 3 == 0) c.forget(c.stores, 3), c.forget(c.checkpoint, 3);  // padding

  ConvCase want = c;
  want.run_on_cpu();
  if (seed % 3 == 0) std::fill_n(want.y.end() - c.channels, c.channels, 0.0F);
  for (int s = 0; s < 2; ++s)
    for (std::int64_t o = 0; o < c.state_bytes(); o += c.element())
      std::memcpy(want.view(want.checkpoint).addr_row(s, o), want.view(want.stores).addr_row(s, o),
                  static_cast<std::size_t>(c.element()));
  for (auto& target : targets) {
    ConvCase got = c;
    got.run(target, got.step_job());
    CHECK(same(got, want));
  }
}

/// Runs of several lengths that leave states at boundaries.
template <class Targets>
void check_runs(Targets& targets, bool bf16, unsigned v, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ConvCase c = shape(random, bf16, v);
  c.channels = (c.channels + 3) / 4 / v * v + v;
  c.add(150, {1, 64, 149, 150});
  c.add(0, {});
  c.add(1, {1});
  c.add(65, {2, 3, 65});
  c.draw(seed);
  c.forget(c.source, static_cast<std::int64_t>(random() % 4));
  c.forget(c.stores, 2);
  if (random() % 2 == 0) c.copy_row(c.source, 0, c.stores, 3);  // the last state in place
  if (c.source[0] < 0) c.forget(c.stores, 3);
  ConvCase want = c;
  want.run_on_cpu();
  for (auto& target : targets) {
    ConvCase got = c;
    got.run(target, got.runs_job());
    CHECK(same(got, want));
  }
}

}  // namespace convolution_test
