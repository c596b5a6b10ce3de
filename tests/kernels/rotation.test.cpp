// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <hybridstate/kernels/rotation.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "executor/rotation.hpp"
#include "kernels/recording.hpp"
#include "math/deterministic.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

namespace {

/// Tokens of two sequences with blocks of their own, and what the CPU executor makes of them.
struct RotationCase {
  bool bf16 = true;
  std::uint32_t heads = 6, kv_heads = 2, head_dim = 16;
  std::int32_t block_tokens = 5;
  std::vector<std::int32_t> positions, table_rows;
  std::vector<std::int32_t> units, valid_until{0, 0};
  std::vector<float> q, kv, cosines, sines;
  std::vector<Vector16> pool;

  std::int64_t unit_bytes() const { return blocks(nullptr).unit_stride; }
  std::size_t tokens() const { return positions.size(); }
  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(pool.data()); }

  AttentionBlocks blocks(std::byte* base) const {
    AttentionBlocks b;
    b.base = base;
    b.units = units.data();
    b.row_stride = static_cast<std::int64_t>(units.size() / 2);
    b.strides.token = std::int64_t{head_dim} * (bf16 ? 2 : 4);
    b.strides.head = b.strides.token * block_tokens;
    b.strides.value = b.strides.head * kv_heads;
    b.strides.block_tokens = block_tokens;
    b.unit_stride = (2 * b.strides.value + 15) / 16 * 16;
    return b;
  }
  void draw(std::uint64_t seed) {
    runtime::BitGenerator bits(seed);
    auto const fill = [&](std::vector<float>& v, std::size_t n) {
      v.resize(n);
      for (float& f : v) f = static_cast<float>(bits.normal());
    };
    fill(q, tokens() * q_width());
    fill(kv, tokens() * 2 * kv_width());
    std::int32_t const last = *std::max_element(positions.begin(), positions.end());
    runtime::Rotation const rotation(1e4, head_dim);
    auto const angles = static_cast<std::size_t>(last + 1) * rotation.half();
    cosines.resize(angles);
    sines.resize(angles);
    for (std::uint32_t p = 0; p <= static_cast<std::uint32_t>(last); ++p)
      rotation.fill(p, &cosines[p * rotation.half()], &sines[p * rotation.half()]);
    units.resize(2 * static_cast<std::size_t>(last / block_tokens + 1));
    std::iota(units.begin(), units.end(), 0);
    std::shuffle(units.begin(), units.end(), std::mt19937_64(seed));
    pool.assign(units.size() * static_cast<std::size_t>(unit_bytes()) / 16, Vector16{{1, 2, 3, 4}});
  }

  template <class E, unsigned V>
  RotateAndStore<E, V> kernel() {
    RotateAndStore<E, V> k;
    k.q = {q.data(), q_width()};
    k.q_out = {q.data(), q_width()};
    k.k = {kv.data(), 2 * kv_width()};
    k.v = {kv.data() + kv_width(), 2 * kv_width()};
    k.cosines = cosines.data();
    k.sines = sines.data();
    k.positions = positions.data();
    k.table_rows = table_rows.empty() ? nullptr : table_rows.data();
    k.to = {blocks(bytes()), valid_until.data()};
    k.tokens = static_cast<std::uint32_t>(tokens());
    k.heads = heads;
    k.kv_heads = kv_heads;
    k.head_dim = head_dim;
    return k;
  }

  void run_on_cpu() {
    cpu::Kernels const& kernels = cpu::kernels(cpu::Isa::scalar);
    auto const dtype = bf16 ? runtime::Dtype::bf16 : runtime::Dtype::f32;
    std::size_t const half = head_dim / 2;
    AttentionBlocks const to = blocks(bytes());
    std::vector<float> rotated = kv;
    for (std::size_t t = 0; t < tokens(); ++t) {
      float* const of = q.data() + t * q_width();
      std::int32_t const position = positions[t];
      if (position < 0) {
        std::fill_n(of, q_width(), 0.0F);
        continue;
      }
      const float* const c = &cosines[static_cast<std::size_t>(position) * half];
      const float* const s = &sines[static_cast<std::size_t>(position) * half];
      for (std::size_t h = 0; h < heads; ++h) kernels.rotate(of + h * head_dim, c, s, half);
      auto const row = table_rows.empty() ? static_cast<std::int32_t>(t) : table_rows[t];
      if (row < 0 || position < valid_until[static_cast<std::size_t>(row)]) continue;
      for (std::uint32_t h = 0; h < kv_heads; ++h) {
        auto const head = static_cast<std::int32_t>(h);
        std::byte* const key = to.addr_key(row, head, position);
        if (key == nullptr) continue;
        float* const k = rotated.data() + t * 2 * kv_width() + h * head_dim;
        kernels.rotate(k, c, s, half);
        kernels.store(k, dtype, head_dim, key);
        kernels.store(k + kv_width(), dtype, head_dim, to.addr_value(row, head, position));
      }
    }
  }
};

template <class E, unsigned V>
void check(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  RotationCase c;
  c.bf16 = sizeof(E) == 2;
  c.heads = 1 + static_cast<std::uint32_t>(random() % 6);
  c.kv_heads = 1 + static_cast<std::uint32_t>(random() % 3);
  c.head_dim = 2 * V * (1 + static_cast<std::uint32_t>(random() % 40));
  if (seed % 2 == 0) {  // prefill from positions 3 and 0, the first blocks of one already there
    for (std::int32_t p = 3; p < 20; ++p) c.positions.push_back(p), c.table_rows.push_back(1);
    for (std::int32_t p = 0; p < 7; ++p) c.positions.push_back(p), c.table_rows.push_back(0);
    c.positions.push_back(2), c.table_rows.push_back(-1);
    c.valid_until = {0, 6};
  } else {
    c.positions = {13, 0};
  }
  c.positions.push_back(-1);
  if (!c.table_rows.empty()) c.table_rows.push_back(0);
  c.draw(seed);
  if (seed % 3 == 0) c.units[0] = -1;
  RotationCase want = c;
  want.run_on_cpu();
  for (ThreadOrder const order :
       {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    RotationCase got = c;
    Interpreter(order).run(got.kernel<E, V>());
    CHECK(std::memcmp(got.q.data(), want.q.data(), want.q.size() * sizeof(float)) == 0);
    CHECK(std::memcmp(got.pool.data(), want.pool.data(), want.pool.size() * sizeof(Vector16)) == 0);
    CHECK(got.kv == want.kv);
  }
}

}  // namespace

TEST_CASE("queries, keys and values arrive with the CPU executor's bits") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    check<Bf16, 4>(seed);
    check<Bf16, 1>(seed);
    check<float, 4>(seed);
    check<float, 1>(seed);
  }
}

TEST_CASE(
    "keys and values of Falcon-H1-7B are written once, in little more than the least traffic") {
  RotationCase c;
  c.heads = 12;
  c.head_dim = 128;
  c.block_tokens = 512;
  for (std::int32_t p = 500; p < 524; ++p) c.positions.push_back(p), c.table_rows.push_back(1);
  c.draw(1);
  auto const region = [](const char* name, const auto& v, std::int64_t written) {
    return Region{name, v.data(), v.size() * sizeof(v[0]), -1, written};
  };
  auto const tokens = static_cast<std::int64_t>(c.tokens());
  std::int64_t const stored = tokens * 2 * c.kv_width() * 2;
  std::int64_t const queries = tokens * c.q_width() * 4;
  std::int64_t const angles = tokens * c.head_dim * 4;
  check_traffic("rotation",
                record(c.kernel<Bf16, 4>(),
                       {region("queries", c.q, queries), region("keys and values", c.kv, 0),
                        region("cosines", c.cosines, 0), region("sines", c.sines, 0),
                        region("positions", c.positions, 0), region("rows", c.table_rows, 0),
                        region("units", c.pool, stored)}),
                static_cast<std::uint64_t>(2 * queries + 2 * stored + stored + angles));
}
