// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <hybridstate/kernels/state_update.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "executor/cpu/kernels.hpp"
#include "math/deterministic.hpp"

/// Pools begin where a line of a GPU's memory does.
struct alignas(128) Line {
  std::byte bytes[128];
};

/// A batch of SSM states in pages of a pool, its inputs, and what the CPU executor makes of it.
struct StateCase {
  std::uint32_t sequences = 3, heads = 4, groups = 1, rows = 16, state = 64;
  std::uint32_t tokens = 1;  ///< of each sequence
  bool bf16 = true;
  hybridstate::MemberMap map{};
  std::uint32_t spare_pages = 3;
  std::uint64_t page_gap = 64;  ///< bytes between pages

  std::vector<float> inputs, dt, dt_bias, a, d, y;
  std::vector<Line> pool;
  std::vector<std::int32_t> source, destination, checkpoint;
  /// With draw_working(): FP32 states beside the pool's, a page each; entries of -1: in the pool.
  std::vector<Line> working;
  std::vector<std::int32_t> working_source, working_destination, position;

  std::size_t element() const { return bf16 ? 2 : 4; }
  std::uint64_t head_bytes() const { return std::uint64_t{rows} * state * element(); }
  std::uint64_t page_bytes() const {
    return map.heads_per_page != 0 ? map.heads_per_page * head_bytes() : map.split_bytes;
  }
  std::uint64_t stride() const { return (page_bytes() + page_gap + 15) / 16 * 16; }
  std::uint32_t channels() const { return heads * rows + 2 * groups * state; }
  std::uint64_t working_bytes() const { return 2 * heads * head_bytes(); }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(pool.data()); }
  std::uint64_t pool_bytes() const { return pool.size() * sizeof(pool[0]); }

  /// Heads of `per_page` in a page.
  void whole_heads(std::uint32_t per_page) {
    map = {head_bytes(), 0, per_page, 1, (heads + per_page - 1) / per_page};
  }
  /// Each head over `pages` pages, cut between rows' elements.
  void split_heads(std::uint32_t pages) {
    std::uint64_t const elements = std::uint64_t{rows} * state;
    map = {head_bytes(), (elements + pages - 1) / pages * element(), 0, pages, heads * pages};
  }

  /// Draws everything. The pool has pages for three states of each sequence, in a random order.
  void draw(std::uint64_t seed) {
    hybridstate::runtime::BitGenerator bits(seed);
    auto const fill = [&](std::vector<float>& v, std::size_t n, double scale) {
      v.resize(n);
      for (float& f : v) f = static_cast<float>(scale * bits.normal());
    };
    std::size_t const rows_of_tokens = std::size_t{sequences} * tokens;
    fill(inputs, rows_of_tokens * channels(), 1);
    fill(dt, rows_of_tokens * heads, 1);
    fill(dt_bias, heads, 1);
    fill(a, heads, 1);
    for (float& f : a) f = -std::abs(f);
    fill(d, heads, 1);
    y.assign(rows_of_tokens * heads * rows, -7.0F);

    std::uint32_t const members = map.member_count;
    std::vector<std::int32_t> pages(std::size_t{3} * sequences * members + spare_pages);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed));
    std::size_t const n = std::size_t{sequences} * members;
    source.assign(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(n));
    destination.assign(pages.begin() + static_cast<std::ptrdiff_t>(n),
                       pages.begin() + static_cast<std::ptrdiff_t>(2 * n));
    checkpoint.assign(pages.begin() + static_cast<std::ptrdiff_t>(2 * n),
                      pages.begin() + static_cast<std::ptrdiff_t>(3 * n));
    pool.resize((pages.size() * stride() + sizeof(Line) - 1) / sizeof(Line));
    std::vector<float> values(pool_bytes() / element());
    for (float& f : values) f = static_cast<float>(bits.normal());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t const half = hybridstate::numeric::to_bf16(values[i]);
      std::memcpy(bytes() + i * element(), bf16 ? static_cast<const void*>(&half) : &values[i],
                  element());
    }
  }

  /// Of two sequences one begins in its working state, of three two leave one; each place in each
  /// combination. They pass a multiple of the grid, or end there.
  void draw_working(std::uint64_t seed) {
    hybridstate::runtime::BitGenerator bits(seed, 5);
    working.resize((2 * sequences * working_bytes() + sizeof(Line) - 1) / sizeof(Line));
    for (std::size_t i = 0; i < working.size() * sizeof(Line) / sizeof(float); ++i) {
      auto const value = static_cast<float>(bits.normal());
      std::memcpy(reinterpret_cast<std::byte*>(working.data()) + i * sizeof(float), &value,
                  sizeof(float));
    }
    for (std::uint32_t s = 0; s < sequences; ++s) {
      auto const page = static_cast<std::int32_t>(2 * s);
      bool const padding = destination[std::size_t{s} * map.member_count] < 0;
      working_source.push_back(s % 2 == 0 && !padding ? page : -1);
      working_destination.push_back(
          s % 3 != 0 && !padding ? page + static_cast<std::int32_t>(s % 4 / 3) : -1);
      position.push_back(padding ? -1 : static_cast<std::int32_t>(256 * (s + 1) - 1 - s % 2 * 2));
    }
  }
  hybridstate::SsmPages<> working_view(const std::vector<std::int32_t>& table) {
    hybridstate::MemberMap const one = {2 * head_bytes(), 0, heads, 1, 1};
    return {reinterpret_cast<std::byte*>(working.data()), table.data(), 1,
            static_cast<std::int64_t>(working_bytes()), one};
  }
  hybridstate::kernels::WorkingStates<> working_states(
      const std::vector<std::int32_t>& destinations) {
    return {working_view(working_source), working_view(destinations), position.data(), 256};
  }

  hybridstate::SsmPages<> view(const std::vector<std::int32_t>& table) {
    return {bytes(), table.data(), map.member_count, static_cast<std::int64_t>(stride()), map};
  }
  hybridstate::kernels::RecurrenceInputs recurrence() {
    hybridstate::kernels::RecurrenceInputs in;
    in.x = inputs.data();
    in.b = in.x + heads * rows;
    in.c = in.b + groups * state;
    in.stride = channels();
    in.dt = dt.data();
    in.dt_stride = heads;
    in.dt_bias = dt_bias.data();
    in.a = a.data();
    in.d = d.data();
    in.y = y.data();
    in.y_stride = heads * rows;
    in.heads = heads;
    in.groups = groups;
    in.rows = rows;
    return in;
  }

  /// What the executor's kernels do with the same batch, in place in this case's pool and y. A
  /// sequence keeps its state after `after[i]` tokens in row i of stores[i].
  struct Kept {
    std::uint32_t after;
    const std::vector<std::int32_t>* table;
  };
  void run_on_cpu(const std::vector<Kept>& kept, hybridstate::runtime::Carry carry) {
    using namespace hybridstate;
    namespace cpu = runtime::cpu;
    auto const dtype = bf16 ? runtime::Dtype::bf16 : runtime::Dtype::f32;
    auto const row_of = [&](const std::vector<std::int32_t>& table, std::uint32_t s) {
      SsmPages<> v = view(table);
      v.pages += std::size_t{s} * map.member_count;
      return v;
    };
    for (std::uint32_t s = 0; s < sequences; ++s)
      for (std::uint32_t h = 0; h < heads; ++h) {
        std::size_t const first = std::size_t{s} * tokens;
        float* const out = y.data() + first * heads * rows + std::size_t{h} * rows;
        auto const absent = [&](const std::vector<std::int32_t>& table) {
          return table[std::size_t{s} * map.member_count] < 0;
        };
        if (absent(*kept.back().table)) {
          for (std::size_t t = 0; t < tokens; ++t) std::fill_n(out + t * heads * rows, rows, 0.0F);
          continue;
        }
        std::vector<float> steps(tokens), decay(tokens);
        for (std::size_t t = 0; t < tokens; ++t) {
          steps[t] = numeric::softplus(dt[(first + t) * heads + h] + dt_bias[h]);
          decay[t] = numeric::exp(steps[t] * a[h]);
        }
        std::vector<cpu::StateStore> stores;
        for (Kept const& k : kept)
          if (!absent(*k.table)) stores.push_back({k.after, row_of(*k.table, s), dtype});
        SsmPages<> from = row_of(source, s);
        bool const works = !working.empty();
        bool const from_working = works && working_source[s] >= 0;
        if (from_working) from = working_view(working_source), from.pages += s;
        if (works && working_destination[s] >= 0) {
          stores.back() = {tokens, working_view(working_destination), runtime::Dtype::f32};
          stores.back().pages.pages += s;
        }
        const float* const x = inputs.data() + first * channels();
        cpu::StateUpdate j;
        j.tokens = tokens;
        j.begin = works ? static_cast<std::uint32_t>(position[s]) : 0;
        j.head = h;
        j.rows = rows;
        j.state = state;
        j.carry = carry;
        j.dt = steps.data();
        j.decay = decay.data();
        j.dt_stride = 1;
        j.x = x + std::size_t{h} * rows;
        j.b = x + heads * rows + std::size_t{h / (heads / groups)} * state;
        j.c = j.b + groups * state;
        j.stride = channels();
        j.d = d[h];
        j.y = out;
        j.y_stride = heads * rows;
        j.source = absent(source) && !from_working ? nullptr : &from;
        j.source_dtype = from_working ? runtime::Dtype::f32 : dtype;
        j.stores = stores.data();
        j.store_count = stores.size();
        cpu::kernels(cpu::Isa::scalar).update_state(j, 0, rows);
      }
  }
};
