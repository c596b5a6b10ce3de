// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "executor/cpu/forward.hpp"
#include "math/deterministic.hpp"

namespace harness {

using namespace hybridstate;
using namespace hybridstate::runtime;
using namespace hybridstate::runtime::cpu;

/// Weights in memory, drawn or computed, with the views that the executor reads.
class OwnModel {
 public:
  explicit OwnModel(FalconH1Config config) { tensors_.config = std::move(config); }

  /// `value(t, i)` for tensor number t in the order of the reference's closed-form fixture.
  template <class Draw>
  void fill(Draw&& value, Dtype dtype = Dtype::f32) {
    const FalconH1Config c = tensors_.config;
    std::size_t t = 0;
    auto const add = [&](TensorView& slot, TensorShape shape, int kind) {
      auto const n = static_cast<std::size_t>(shape.elements());
      bool const whole = kind != 0 || dtype == Dtype::f32;  // vectors of a BF16 model stay exact
      data_.emplace_back(n * (whole ? 4 : 2));
      for (std::size_t i = 0; i < n; ++i) {
        auto const v = static_cast<float>(value(t, i, kind));
        if (whole) {
          std::memcpy(data_.back().data() + i * 4, &v, 4);
        } else {
          std::uint16_t const h = dtype == Dtype::bf16 ? float_to_bf16(v) : float_to_f16(v);
          std::memcpy(data_.back().data() + i * 2, &h, 2);
        }
      }
      slot.data = data_.back().data();
      slot.dtype = whole ? Dtype::f32 : dtype;
      slot.shape = shape;
      ++t;
    };
    add(tensors_.embed, {c.vocabulary, c.hidden}, 0);
    tensors_.layers.resize(c.layers);
    for (LayerWeights& l : tensors_.layers) {
      add(l.input_norm, {c.hidden}, 1);
      add(l.a_log, {c.ssm_heads}, 2);
      add(l.d, {c.ssm_heads}, 1);
      add(l.dt_bias, {c.ssm_heads}, 3);
      add(l.conv, {c.conv_channels(), 1, c.conv_width}, 0);
      add(l.conv_bias, {c.conv_channels()}, 0);
      add(l.in_proj, {c.in_proj_rows(), c.hidden}, 0);
      if (c.gated_norm) add(l.ssm_norm, {c.ssm_width()}, 1);
      add(l.out_proj, {c.hidden, c.ssm_width()}, 0);
      add(l.q, {c.query_width(), c.hidden}, 0);
      add(l.k, {c.kv_width(), c.hidden}, 0);
      add(l.v, {c.kv_width(), c.hidden}, 0);
      add(l.o, {c.hidden, c.query_width()}, 0);
      add(l.ff_norm, {c.hidden}, 1);
      add(l.gate, {c.intermediate, c.hidden}, 0);
      add(l.up, {c.intermediate, c.hidden}, 0);
      add(l.down, {c.hidden, c.intermediate}, 0);
    }
    add(tensors_.final_norm, {c.hidden}, 1);
    if (c.tied)
      tensors_.lm_head = tensors_.embed;
    else
      add(tensors_.lm_head, {c.vocabulary, c.hidden}, 0);
  }

  const ModelTensors& tensors() const { return tensors_; }

 private:
  ModelTensors tensors_;
  std::vector<std::vector<unsigned char>> data_;
};

/// A small model with every part, drawn at random.
inline FalconH1Config small_config() {
  FalconH1Config c;
  c.layers = 2;
  c.hidden = 48;
  c.intermediate = 72;
  c.vocabulary = 61;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 24;
  c.rope_theta = 1e11;
  c.ssm_heads = 6;
  c.ssm_head_dim = 8;
  c.ssm_state = 32;
  c.ssm_groups = 2;
  c.conv_width = 4;
  c.norm_epsilon = 1e-5;
  c.gated_norm = true;
  c.embedding_multiplier = 2;
  c.lm_head_multiplier = 0.5;
  c.attention_in_multiplier = 1.25;
  c.attention_out_multiplier = 0.6;
  c.key_multiplier = 0.75;
  c.ssm_in_multiplier = 0.8;
  c.ssm_out_multiplier = 1.5;
  c.ssm_multipliers = {0.7, 0.9, 1.2, 1.4, 0.5};
  c.gate_multiplier = 0.9;
  c.down_multiplier = 1.1;
  return c;
}

inline OwnModel random_model(const FalconH1Config& config, std::uint64_t seed, Dtype dtype) {
  OwnModel model(config);
  BitGenerator bits(seed);
  model.fill(
      [&](std::size_t, std::size_t i, int kind) {
        double const r = 0.2 * bits.normal();
        if (kind == 1) return 1 + r;
        if (kind == 2) return std::log(1.0 + static_cast<double>(i)) + r;
        if (kind == 3) return -4 * bits.uniform();
        return r;
      },
      dtype);
  return model;
}

/// How the memory of one test is laid out; no choice may change a result.
struct MemoryOptions {
  Dtype kv = Dtype::f32;
  Dtype ssm = Dtype::f32;
  Dtype conv = Dtype::f32;
  std::uint32_t block_tokens = 512;
  std::uint32_t heads_per_page = 0;  ///< of SSM members; 0: composites
  std::uint32_t split_rows = 0;      ///< instead: rows of a head per page
  std::int64_t conv_part_bytes = 0;  ///< 0: one line
  std::uint32_t max_tokens = 1100;   ///< per sequence
  std::uint32_t sequences = 1;
  std::uint32_t states = 4;  ///< per sequence
};

/// Plain memory with unit tables whose entries are scattered.
class Memory {
 public:
  Memory(const FalconH1Config& c, const MemoryOptions& o) : config_(c), options_(o) {
    // Attention.
    blocks_per_sequence_ = (o.max_tokens + o.block_tokens - 1) / o.block_tokens;
    std::uint32_t const units = blocks_per_sequence_ * o.sequences;
    KvStrides& s = kv_.blocks.strides;
    s.token = std::int64_t{c.head_dim} * static_cast<std::int64_t>(dtype_bytes(o.kv));
    s.head = s.token * o.block_tokens;
    s.value = s.head * c.kv_heads;
    s.block_tokens = static_cast<std::int32_t>(o.block_tokens);
    kv_.blocks.unit_stride = 2 * s.value;
    kv_.layer_stride = kv_.blocks.unit_stride * units;
    kv_.dtype = o.kv;
    kv_bytes_.assign(static_cast<std::size_t>(kv_.layer_stride) * c.layers, std::byte{0xff});
    kv_.blocks.base = kv_bytes_.data();
    blocks_ = scattered(units);

    // States.
    MemberMap& m = arena_.ssm.map;
    m.head_bytes = std::uint64_t{c.ssm_head_dim} * c.ssm_state * dtype_bytes(o.ssm);
    m.split_bytes = m.head_bytes;
    if (o.split_rows > 0) {
      m.split_bytes = std::uint64_t{o.split_rows} * c.ssm_state * dtype_bytes(o.ssm);
      m.heads_per_page = 0;
      m.pages_per_head = static_cast<Units>(ceil_div(m.head_bytes, m.split_bytes));
      m.member_count = m.pages_per_head * c.ssm_heads;
      arena_.ssm.page_stride = static_cast<std::int64_t>(m.split_bytes);
    } else {
      m.heads_per_page = o.heads_per_page > 0 ? o.heads_per_page : c.ssm_heads;
      m.member_count = ceil_div(c.ssm_heads, m.heads_per_page);
      arena_.ssm.page_stride = static_cast<std::int64_t>(m.head_bytes * m.heads_per_page);
    }
    std::uint32_t const states = o.sequences * o.states;
    arena_.ssm_layer_stride = arena_.ssm.page_stride * m.member_count * states;
    arena_.ssm_dtype = o.ssm;
    ssm_bytes_.assign(static_cast<std::size_t>(arena_.ssm_layer_stride) * c.layers,
                      std::byte{0xff});
    arena_.ssm.base = ssm_bytes_.data();
    pages_ = scattered(states * m.member_count);

    std::int64_t const conv = std::int64_t{c.conv_width - 1} * c.conv_channels() *
                              static_cast<std::int64_t>(dtype_bytes(o.conv));
    arena_.conv.part_bytes = o.conv_part_bytes;
    parts_ =
        o.conv_part_bytes == 0 ? 1U : static_cast<std::uint32_t>(ceil_div(conv, o.conv_part_bytes));
    arena_.conv.line_stride = o.conv_part_bytes == 0 ? conv + 32 : o.conv_part_bytes;
    arena_.conv_layer_stride = arena_.conv.line_stride * parts_ * states;
    arena_.conv_dtype = o.conv;
    conv_bytes_.assign(static_cast<std::size_t>(arena_.conv_layer_stride) * c.layers,
                       std::byte{0xff});
    arena_.conv.base = conv_bytes_.data();
    lines_ = scattered(states * parts_);
  }

  const KvArena& kv() const { return kv_; }
  std::span<const std::int32_t> blocks(std::uint32_t sequence) const {
    return {blocks_.data() + std::size_t{sequence} * blocks_per_sequence_, blocks_per_sequence_};
  }
  StateRow state(std::uint32_t sequence, std::uint32_t i) const {
    std::size_t const row = std::size_t{sequence} * options_.states + i;
    std::size_t const members = arena_.ssm.map.member_count;
    return {
        &arena_, {pages_.data() + row * members, members}, {lines_.data() + row * parts_, parts_}};
  }

  float ssm(const StateRow& row, std::uint32_t layer, std::uint32_t head, std::uint32_t p,
            std::uint32_t n) const {
    SsmPages<> view = arena_.ssm;
    view.base += std::int64_t{layer} * arena_.ssm_layer_stride;
    view.pages = row.pages.data();
    auto const byte = static_cast<std::int64_t>((std::size_t{p} * config_.ssm_state + n) *
                                                dtype_bytes(options_.ssm));
    return element_as_float(view.addr_ssm(0, static_cast<std::int32_t>(head), byte), options_.ssm,
                            0);
  }
  /// Column `tap` (oldest 0) of a channel.
  float conv(const StateRow& row, std::uint32_t layer, std::uint32_t channel,
             std::uint32_t tap) const {
    ConvLines view = arena_.conv;
    view.base += std::int64_t{layer} * arena_.conv_layer_stride;
    view.lines = row.lines.data();
    auto const o = static_cast<std::int64_t>(
        (std::size_t{tap} * config_.conv_channels() + channel) * dtype_bytes(options_.conv));
    return element_as_float(view.addr_row(0, o), options_.conv, 0);
  }
  float key(std::uint32_t sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t token,
            std::uint32_t d, bool value = false) const {
    AttentionBlocks view = kv_.blocks;
    view.base += std::int64_t{layer} * kv_.layer_stride;
    view.units = blocks(sequence).data();
    auto const h = static_cast<std::int32_t>(head);
    auto const t = static_cast<std::int32_t>(token);
    return element_as_float(value ? view.addr_value(0, h, t) : view.addr_key(0, h, t), options_.kv,
                            d);
  }
  /// Every value of one state, for comparisons to the bit.
  std::vector<float> all(const StateRow& row) const {
    std::vector<float> out;
    for (std::uint32_t l = 0; l < config_.layers; ++l) {
      for (std::uint32_t h = 0; h < config_.ssm_heads; ++h)
        for (std::uint32_t p = 0; p < config_.ssm_head_dim; ++p)
          for (std::uint32_t n = 0; n < config_.ssm_state; ++n) out.push_back(ssm(row, l, h, p, n));
      for (std::uint32_t i = 0; i < config_.conv_channels(); ++i)
        for (std::uint32_t tap = 0; tap + 1 < config_.conv_width; ++tap)
          out.push_back(conv(row, l, i, tap));
    }
    return out;
  }

 private:
  static std::vector<std::int32_t> scattered(std::uint32_t n) {
    std::vector<std::int32_t> v(n);
    for (std::uint32_t i = 0; i < n; ++i) v[i] = static_cast<std::int32_t>(n - 1 - i);
    for (std::uint32_t i = 0; i + 2 < n; i += 3) std::swap(v[i], v[i + 2]);
    return v;
  }

  FalconH1Config config_;
  MemoryOptions options_;
  KvArena kv_;
  StateArena arena_;
  std::uint32_t blocks_per_sequence_ = 0;
  std::uint32_t parts_ = 1;
  std::vector<std::byte> kv_bytes_, ssm_bytes_, conv_bytes_;
  std::vector<std::int32_t> blocks_, pages_, lines_;
};

/// Feeds one sequence through in the given cuts (the last one repeats) and returns the logits of
/// each chunk's last token; the state stays in row 0, in place.
inline std::vector<std::vector<float>> feed(ForwardPass& forward, Memory& memory,
                                            std::span<const TokenId> tokens,
                                            std::vector<std::uint32_t> cuts) {
  std::vector<std::vector<float>> out;
  std::uint32_t at = 0;
  for (std::size_t i = 0; at < tokens.size(); ++i) {
    std::uint32_t const count = std::min(cuts[std::min(i, cuts.size() - 1)],
                                         static_cast<std::uint32_t>(tokens.size()) - at);
    ForwardChunk chunk;
    chunk.tokens = tokens.subspan(at, count);
    chunk.begin = at;
    chunk.blocks = memory.blocks(0);
    chunk.source = memory.state(0, 0);
    StateTarget const target{at + count, memory.state(0, 0)};
    chunk.targets = {&target, 1};
    chunk.logits = true;
    out.emplace_back(forward.config().vocabulary);
    forward.run({&chunk, 1}, memory.kv(), out.back());
    at += count;
  }
  return out;
}

inline std::vector<TokenId> random_tokens(std::size_t n, std::uint32_t vocabulary,
                                          std::uint64_t seed) {
  BitGenerator bits(seed, 7);
  std::vector<TokenId> v(n);
  for (TokenId& t : v) t = static_cast<TokenId>(bits.below(vocabulary));
  return v;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace harness
