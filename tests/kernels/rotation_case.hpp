// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "executor/rotation.hpp"
#include "kernels/target.hpp"
#include "math/deterministic.hpp"

namespace rotation_test {

using namespace hybridstate;
using namespace hybridstate::kernels;
namespace cpu = hybridstate::runtime::cpu;

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

  RotationJob job() {
    RotationJob k;
    k.type = bf16 ? ElementType::bf16 : ElementType::f32;
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

  template <class Target>
  void run(Target& target) {
    run_on(target, job(), positions, table_rows, units, valid_until, q, kv, cosines, sines, pool);
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

/// Halves of heads in whole groups of V.
template <class Targets>
void check_rotation(Targets& targets, bool bf16, unsigned v, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  RotationCase c;
  c.bf16 = bf16;
  c.heads = 1 + static_cast<std::uint32_t>(random() % 6);
  c.kv_heads = 1 + static_cast<std::uint32_t>(random() % 3);
  c.head_dim = 2 * v * (1 + static_cast<std::uint32_t>(random() % 40));
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
  for (auto& target : targets) {
    RotationCase got = c;
    got.run(target);
    CHECK(same_bits(got.q, want.q));
    CHECK(same_bits(got.pool, want.pool));
    CHECK(same_bits(got.kv, want.kv));
  }
}

}  // namespace rotation_test
