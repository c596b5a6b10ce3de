// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "executor/cpu/kernels.hpp"
#include "kernels/state_case.hpp"
#include "kernels/target.hpp"
#include "math/deterministic.hpp"

namespace attention_test {

using namespace hybridstate;
using namespace hybridstate::kernels;

/// Keys and values of a batch in units of a pool, NaNs wherever nobody may look, its queries, and
/// what the CPU executor makes of them.
struct AttentionCase {
  std::uint32_t kv_heads = 2, group = 6, dim = 128, block_tokens = 16;
  bool bf16 = true;
  struct Sequence {
    std::int32_t position = 0;
    std::uint32_t queries = 1;
    bool padding = false;
  };
  std::vector<Sequence> sequences;
  std::int32_t first_unit = 0;  ///< the lowest unit's number
  float query_scale = 1, value_scale = 1;

  std::vector<Line> pool;
  std::vector<std::int32_t> units, row, position, first{0};
  std::vector<float> q, out;
  std::vector<Line> results;  ///< of pieces
  std::int64_t row_stride = 0;

  std::uint32_t heads() const { return kv_heads * group; }
  std::uint32_t batch() const { return static_cast<std::uint32_t>(sequences.size()); }
  std::uint32_t most_tokens() const {
    std::uint32_t most = 0;
    for (Sequence const& s : sequences)
      most = std::max(most, static_cast<std::uint32_t>(s.position) + s.queries);
    return most;
  }
  std::int64_t token_bytes() const { return std::int64_t{dim} * (bf16 ? 2 : 4); }
  std::int64_t unit_stride() const { return token_bytes() * block_tokens * kv_heads * 2 + 128; }

  /// Draws everything; entries of the tables in a random order, rows of the tables too.
  void draw(std::uint64_t seed) {
    runtime::BitGenerator bits(seed);
    std::mt19937_64 random(seed);
    row_stride = (most_tokens() + block_tokens - 1) / block_tokens + 1;
    units.assign(static_cast<std::size_t>(row_stride) * batch(), -1);
    row.resize(batch());
    std::iota(row.begin(), row.end(), 0);
    std::shuffle(row.begin(), row.end(), random);
    std::vector<std::int32_t> numbers(units.size());
    std::iota(numbers.begin(), numbers.end(), first_unit);
    std::shuffle(numbers.begin(), numbers.end(), random);
    pool.resize(numbers.size() * static_cast<std::size_t>(unit_stride()) / sizeof(Line) + 1);
    std::memset(pool.data(), 0xff, pool_bytes());  // NaNs
    for (std::uint32_t s = 0; s < batch(); ++s) {
      Sequence const& a = sequences[s];
      position.push_back(a.position);
      first.push_back(first.back() + static_cast<std::int32_t>(a.queries));
      if (a.padding) continue;
      std::uint32_t const tokens = static_cast<std::uint32_t>(a.position) + a.queries;
      for (std::uint32_t t = 0; t < tokens; ++t) {
        std::int32_t& unit =
            units[static_cast<std::size_t>(row[s] * row_stride + t / block_tokens)];
        if (t % block_tokens == 0) unit = numbers.back(), numbers.pop_back();
        for (std::uint32_t h = 0; h < kv_heads; ++h)
          for (std::uint32_t i = 0; i < dim; ++i) {
            auto const head = static_cast<std::int32_t>(h), token = static_cast<std::int32_t>(t);
            set(blocks().addr_key(row[s], head, token), i, static_cast<float>(bits.normal()));
            set(blocks().addr_value(row[s], head, token), i,
                value_scale * static_cast<float>(bits.normal()));
          }
      }
    }
    q.resize(static_cast<std::size_t>(first.back()) * q_stride());
    for (float& f : q) f = query_scale * static_cast<float>(bits.normal());
    out.assign(static_cast<std::size_t>(first.back()) * out_stride(), -7.0F);
  }
  /// One of the ways to say that a sequence is padding.
  void pad(std::uint32_t s, std::uint64_t way) {
    sequences[s].padding = true;
    if (way % 3 == 0) row[s] = -1;
    if (way % 3 == 1) position[s] = -1;
    if (way % 3 == 2) units[static_cast<std::size_t>(row[s] * row_stride)] = -1;
  }

  std::size_t q_stride() const { return std::size_t{heads()} * dim + 8; }
  std::size_t out_stride() const { return std::size_t{heads()} * dim + 4; }
  /// Unit 0 of a pool whose lowest unit is first_unit.
  std::byte* base() {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(first_byte()) -
                                        static_cast<std::uintptr_t>(first_unit * unit_stride()));
  }
  std::byte* first_byte() { return reinterpret_cast<std::byte*>(pool.data()); }
  std::uint64_t pool_bytes() const { return pool.size() * sizeof(Line); }
  void set(std::byte* at, std::size_t i, float value) const {
    std::uint16_t const half = numeric::to_bf16(value);
    if (bf16)
      std::memcpy(at + 2 * i, &half, 2);
    else
      std::memcpy(at + 4 * i, &value, 4);
  }

  AttentionBlocks blocks() {
    AttentionBlocks b;
    b.base = base();
    b.units = units.data();
    b.row_stride = row_stride;
    b.unit_stride = unit_stride();
    b.strides = {token_bytes(), token_bytes() * block_tokens,
                 token_bytes() * block_tokens * kv_heads, static_cast<std::int32_t>(block_tokens)};
    return b;
  }
  AttentionBatch inputs() {
    AttentionBatch in;
    in.blocks = blocks();
    in.row = row.data();
    in.position = position.data();
    if (first.back() != static_cast<std::int32_t>(batch())) in.first = first.data();
    in.q = q.data();
    in.q_stride = static_cast<std::int64_t>(q_stride());
    in.out = out.data();
    in.out_stride = static_cast<std::int64_t>(out_stride());
    in.scale = 1 / std::sqrt(static_cast<float>(dim));
    in.sequences = batch();
    in.kv_heads = kv_heads;
    in.group = group;
    return in;
  }
  /// All tokens in turn; or side by side pieces of some.
  AttentionJob job(std::uint32_t piece_tokens = 0) {
    AttentionJob j;
    j.batch = inputs();
    j.type = bf16 ? ElementType::bf16 : ElementType::f32;
    j.head_dim = dim;
    for (Sequence const& s : sequences) j.most_queries = std::max(j.most_queries, s.queries);
    if (piece_tokens == 0) return j;
    std::size_t const bytes =
        piece_results_bytes(batch(), heads(), dim, most_tokens(), piece_tokens);
    results.resize(bytes / sizeof(Line) + 1);
    std::memset(results.data(), 0xff, results.size() * sizeof(Line));
    j.results = piece_results(results.data(), batch(), heads(), dim, most_tokens(), piece_tokens);
    return j;
  }
  template <class Target>
  void run(Target& target, std::uint32_t piece_tokens) {
    run_on(target, job(piece_tokens), pool, units, row, position, first, q, out, results);
  }

  void run_on_cpu() {
    for (std::uint32_t s = 0; s < batch(); ++s)
      for (std::uint32_t i = 0; i < sequences[s].queries; ++i) {
        auto const token = static_cast<std::size_t>(first[s]) + i;
        float* const to = out.data() + token * out_stride();
        if (sequences[s].padding) {
          std::fill_n(to, heads() * dim, 0.0F);
          continue;
        }
        for (std::uint32_t h = 0; h < kv_heads; ++h) {
          runtime::cpu::Attention j;
          j.blocks = blocks();
          j.blocks.units += row[s] * row_stride;
          j.kv_dtype = bf16 ? runtime::Dtype::bf16 : runtime::Dtype::f32;
          j.kv_head = h;
          j.head_dim = dim;
          j.heads = group;
          j.position = static_cast<std::uint32_t>(position[s]) + i;
          j.scale = inputs().scale;
          j.q = q.data() + token * q_stride() + std::size_t{h} * group * dim;
          j.out = to + std::size_t{h} * group * dim;
          runtime::cpu::kernels(runtime::cpu::Isa::scalar).attend(j);
        }
      }
  }
};

/// Random sequences and groups of at most `most_group` heads; `queries`: the longest run.
inline AttentionCase random_case(std::uint64_t seed, bool bf16, std::uint32_t dim,
                                 std::uint32_t most_group, std::uint32_t queries) {
  std::mt19937_64 random(seed);
  auto const up_to = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  constexpr std::int32_t ends[] = {1, 2, 3, 63, 64, 65, 255, 256, 257, 511, 512, 513, 700, 1000};
  AttentionCase c;
  c.bf16 = bf16;
  c.dim = dim;
  c.group = 1 + up_to(most_group);
  c.kv_heads = 1 + up_to(2);
  constexpr std::uint32_t blocks[] = {16, 512, 24, 1};
  c.block_tokens = blocks[up_to(4)];
  for (std::uint32_t s = 0, n = 1 + up_to(3); s < n; ++s) {
    std::uint32_t const run = queries == 1 ? 1 : 1 + up_to(queries);
    std::int32_t const end = ends[up_to(std::size(ends))];
    c.sequences.push_back({std::max(0, end - static_cast<std::int32_t>(run)), run});
  }
  if (up_to(3) == 0) c.query_scale = 30;      // exponentials of 0
  if (up_to(3) == 0) c.value_scale = 1e-38F;  // products of subnormal size: -0 is not +0
  c.draw(seed);
  if (up_to(2) == 0) c.pad(up_to(c.batch()), up_to(3));
  return c;
}

/// The CPU executor's bits on each target.
template <class Targets>
void check_attention(Targets& targets, const AttentionCase& c, std::uint32_t piece_tokens) {
  AttentionCase want = c;
  want.run_on_cpu();
  for (auto& target : targets) {
    AttentionCase got = c;
    got.run(target, piece_tokens);
    CHECK(same_bits(got.out, want.out));
  }
}

}  // namespace attention_test
