// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <hybridstate/kernels/convolution.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "kernels/recording.hpp"
#include "math/deterministic.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

namespace {

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

  std::vector<float> weights, bias_values, x, y;
  std::vector<Vector16> pool;

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
  template <class E, unsigned V>
  ConvolutionPrefill<E, V> prefill() {
    ConvolutionPrefill<E, V> k;
    fill_inputs(k);
    k.token_begin = token_begin.data();
    k.source = view(source);
    k.store_begin = store_begin.data();
    k.store_after = store_after.data();
    k.stores = view(stores);
    k.sequences = sequences();
    for (std::size_t s = 0; s < sequences(); ++s)
      k.most_tokens =
          std::max(k.most_tokens, static_cast<std::uint32_t>(token_begin[s + 1] - token_begin[s]));
    return k;
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

bool same(const ConvCase& a, const ConvCase& b) {
  return std::memcmp(a.pool.data(), b.pool.data(), a.pool.size() * sizeof(Vector16)) == 0 &&
         std::memcmp(a.y.data(), b.y.data(), a.y.size() * sizeof(float)) == 0;
}

template <class MakeKernel>
void check_in_every_order(const ConvCase& c, const ConvCase& want, MakeKernel make) {
  for (ThreadOrder const order :
       {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    ConvCase got = c;
    Interpreter(order).run(make(got));
    CHECK(same(got, want));
  }
}

/// A batch of one token a sequence as the decode kernel takes it: the store of sequence s is its
/// destination.
template <class E, unsigned V>
ConvolutionUpdate<E, V> decode_of(ConvCase& c, const std::vector<std::int32_t>& checkpoint) {
  ConvolutionUpdate<E, V> k;
  c.fill_inputs(k);
  k.source = c.view(c.source);
  k.destination = c.view(c.stores);
  if (!checkpoint.empty()) k.checkpoint = c.view(checkpoint);
  k.sequences = c.sequences();
  return k;
}

template <class E, unsigned V>
ConvCase shape(std::mt19937_64& random) {
  ConvCase c;
  c.bf16 = sizeof(E) == 2;
  c.width = 2 + static_cast<std::uint32_t>(random() % 3);
  c.channels = V * (1 + static_cast<std::uint32_t>(random() % 150));
  c.bias = random() % 4 != 0;
  if (random() % 2 == 0)
    c.part_bytes = static_cast<std::int64_t>(sizeof(E) * V * (1 + random() % c.channels));
  return c;
}

template <class E, unsigned V>
void check_decode(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ConvCase c = shape<E, V>(random);
  for (int s = 0; s < 4; ++s) c.add(1, {1});
  for (int s = 0; s < 2; ++s) c.add(0, {});  // lines for two checkpoints
  c.draw(seed);
  auto const parts = static_cast<std::ptrdiff_t>(c.parts());
  std::vector<std::int32_t> checkpoint(c.source.end() - 2 * parts, c.source.end());
  checkpoint.resize(static_cast<std::size_t>(4 * parts), -1);
  c.token_begin.resize(5);
  c.store_begin.resize(5);
  c.forget(c.source, 1);                                              // begins
  if (seed % 2 == 0) c.copy_row(c.source, 0, c.stores, 0);            // in place
  if (seed % 3 == 0) c.forget(c.stores, 3), c.forget(checkpoint, 3);  // padding

  ConvCase want = c;
  want.run_on_cpu();
  if (seed % 3 == 0) std::fill_n(want.y.end() - c.channels, c.channels, 0.0F);
  for (int s = 0; s < 2; ++s)
    for (std::int64_t o = 0; o < c.state_bytes(); o += c.element())
      std::memcpy(want.view(checkpoint).addr_row(s, o), want.view(want.stores).addr_row(s, o),
                  static_cast<std::size_t>(c.element()));
  check_in_every_order(c, want, [&](ConvCase& got) { return decode_of<E, V>(got, checkpoint); });
}

template <class E, unsigned V>
void check_prefill(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ConvCase c = shape<E, V>(random);
  c.channels = (c.channels + 3) / 4 / V * V + V;
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
  check_in_every_order(c, want, [](ConvCase& got) { return got.prefill<E, V>(); });
}

}  // namespace

TEST_CASE("the convolution's decode step computes the CPU executor's bits") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    check_decode<Bf16, 8>(seed);
    check_decode<Bf16, 1>(seed);
    check_decode<float, 4>(seed);
    check_decode<float, 1>(seed);
  }
}

TEST_CASE("the convolution of runs of tokens leaves the CPU executor's states at boundaries") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    check_prefill<Bf16, 8>(seed);
    check_prefill<Bf16, 1>(seed);
    check_prefill<float, 4>(seed);
    check_prefill<float, 1>(seed);
  }
}

TEST_CASE("the convolution of Falcon-H1-7B moves little more than it must") {
  ConvCase c;
  c.channels = 3584;
  c.gap = 32768 - c.state_bytes();  // lines of the slab
  for (int s = 0; s < 4; ++s) c.add(1, {1});
  c.draw(1);
  auto const regions = [&](ConvCase& of, std::int64_t read, std::int64_t written) {
    auto const size = [](const auto& v) { return v.size() * sizeof(v[0]); };
    return std::vector<Region>{
        {"states", of.pool.data(), size(of.pool), read, written},
        {"weights", of.weights.data(), size(of.weights), -1, 0},
        {"bias", of.bias_values.data(), size(of.bias_values), -1, 0},
        {"inputs", of.x.data(), size(of.x), -1, 0},
        {"outputs", of.y.data(), size(of.y), 0, static_cast<std::int64_t>(size(of.y))},
        {"tokens", of.token_begin.data(), size(of.token_begin), -1, 0},
        {"stores", of.store_begin.data(), size(of.store_begin), -1, 0},
        {"boundaries", of.store_after.data(), size(of.store_after), -1, 0}};
  };
  std::uint64_t const shared = std::uint64_t{5} * c.channels * 4;
  std::int64_t const states = 4 * c.state_bytes();
  check_traffic("convolution, decode",
                record(decode_of<Bf16, 8>(c, {}), regions(c, states, states)),
                shared + 2 * static_cast<std::uint64_t>(states) + 4 * 2 * 4 * c.channels);

  ConvCase run;
  run.channels = c.channels;
  run.add(200, {64, 200});
  run.draw(2);
  std::int64_t const state = run.state_bytes();
  check_traffic(
      "convolution, 200 tokens", record(run.prefill<Bf16, 8>(), regions(run, state, 2 * state)),
      shared + 3 * static_cast<std::uint64_t>(state) + std::uint64_t{200} * 2 * 4 * c.channels);
}
