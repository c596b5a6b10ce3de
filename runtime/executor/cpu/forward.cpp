// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu/forward.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "executor/cpu/chunk_form.hpp"
#include "executor/device_error.hpp"
#include "executor/small_tensors.hpp"

namespace hybridstate::runtime::cpu {
namespace {

constexpr std::size_t token_block = 8;      // tokens of one item of an elementwise loop
constexpr std::size_t query_block = 8;      // query tokens of one attention item
constexpr std::size_t most_jobs = 4;        // linears that share one loop
constexpr std::size_t row_step = 48;        // output rows of one item of a linear: a multiple,
constexpr std::size_t row_most = 240;       // about this many at most
constexpr std::size_t channel_block = 256;  // channels of one item of the convolution
constexpr std::size_t line_floats = 16;     // floats of a cache line

constexpr std::size_t bytes_of(LinearInput input) { return input == LinearInput::bf16 ? 2 : 4; }

const float* or_null(const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); }

/// The views of one state in layer l: a batch of one row.
SsmPages<> ssm_view(const StateRow& row, std::size_t l) {
  SsmPages<> view = row.arena->ssm;
  view.base += static_cast<std::int64_t>(l) * row.arena->ssm_layer_stride;
  view.pages = row.pages.data();
  view.row_stride = static_cast<std::int64_t>(row.pages.size());
  return view;
}
ConvLines conv_view(const StateRow& row, std::size_t l) {
  ConvLines view = row.arena->conv;
  view.base += static_cast<std::int64_t>(l) * row.arena->conv_layer_stride;
  view.lines = row.lines.data();
  view.row_stride = static_cast<std::int64_t>(row.lines.size());
  return view;
}

}  // namespace

CpuForward::CpuForward(ModelTensors model, const ForwardOptions& options)
    : model_(std::move(model)),
      options_(options),
      k_(options.kernels != nullptr ? options.kernels : &best_kernels()),
      workers_(options.threads) {
  const FalconH1Config& c = model_.config;
  if (c.head_dim > max_head_dim || c.head_dim % 2 != 0)
    throw ModelError("\"head_dim\" is " + std::to_string(c.head_dim) +
                     ", but the CPU executor takes even widths up to " +
                     std::to_string(max_head_dim));
  if (c.ssm_state > max_state)
    throw ModelError("\"mamba_d_state\" is " + std::to_string(c.ssm_state) +
                     ", but the CPU executor takes at most " + std::to_string(max_state));
  if (options.max_tokens == 0) throw DeviceError("max_tokens is 0; give at least 1");
  if (options.conv_dtype == Dtype::f16)
    throw DeviceError("the convolution state cannot be F16; BF16 and F32 are supported");

  rotation_ = Rotation(c.rope_theta, c.head_dim);
  final_norm_ = values_of(model_.final_norm);
  layers_.resize(model_.layers.size());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerWeights& from = model_.layers[l];
    Layer& to = layers_[l];
    to.input_norm = values_of(from.input_norm);
    to.ff_norm = values_of(from.ff_norm);
    to.ssm_norm = values_of(from.ssm_norm);
    to.conv_bias = values_of(from.conv_bias);
    to.d = values_of(from.d);
    to.dt_bias = values_of(from.dt_bias);
    to.decay = decay_rates(from.a_log);
    to.conv_weights = tap_major(from.conv, c.conv_channels(), c.conv_width);
    to.q_bias = values_of(from.q_bias);
    to.k_bias = values_of(from.k_bias);
    to.v_bias = values_of(from.v_bias);
    to.o_bias = values_of(from.o_bias);
    to.in_bias = values_of(from.in_proj_bias);
    to.out_bias = values_of(from.out_proj_bias);
    to.gate_bias = values_of(from.gate_bias);
    to.up_bias = values_of(from.up_bias);
    to.down_bias = values_of(from.down_bias);
  }

  std::size_t const m = options.max_tokens;
  h_.resize(m * c.hidden);
  u_.resize(m * c.hidden);
  q_.resize(m * c.query_width());
  kv_.resize(m * 2 * c.kv_width());
  p_.resize(m * c.in_proj_rows());
  c_.resize(m * c.conv_channels());
  y_.resize(m * c.ssm_width());
  o_.resize(m * c.query_width());
  att_.resize(m * c.hidden);
  ssm_.resize(m * c.hidden);
  gate_.resize(m * c.intermediate);
  up_.resize(m * c.intermediate);
  dt_.resize(m * c.ssm_heads);
  decay_.resize(m * c.ssm_heads);
  // Both kinds of rows for each of the types that a linear of this model takes.
  auto const row_floats = [&](std::size_t i, LinearInput input) {
    std::size_t stride = packed_stride(c.query_width(), input);
    if (i == 0)
      stride = std::max({packed_stride(c.hidden, input), packed_stride(c.intermediate, input),
                         packed_stride(c.ssm_width(), input)});
    return takes(input) ? m * stride * bytes_of(input) / sizeof(float) : 0;
  };
  std::size_t needed = line_floats;
  for (std::size_t i = 0; i < 2; ++i)
    for (LinearInput const input : {LinearInput::fp32, LinearInput::bf16})
      needed += row_floats(i, input);
  packed_.resize(needed);
  auto const address = reinterpret_cast<std::uintptr_t>(packed_.data()) / sizeof(float);
  float* next = packed_.data() + (line_floats - address % line_floats) % line_floats;
  for (std::size_t i = 0; i < 2; ++i)
    for (LinearInput const input : {LinearInput::fp32, LinearInput::bf16}) {
      if (takes(input)) inputs_[i].of(input) = next;
      next += row_floats(i, input);
    }
  cosines_.resize(m * rotation_.half());
  sines_.resize(m * rotation_.half());
}

std::size_t CpuForward::workspace_bytes() const noexcept {
  std::size_t n = 0;
  for (const auto* v : {&h_, &u_, &q_, &kv_, &p_, &c_, &y_, &o_, &att_, &ssm_, &gate_, &up_, &dt_,
                        &decay_, &packed_, &cosines_, &sines_, &history_})
    n += v->capacity();
  return n * sizeof(float);
}

bool CpuForward::takes(LinearInput input) const {
  auto const has = [&](const TensorView& w) {
    return w && input_of(w.dtype, options_.linear_input) == input;
  };
  return has(model_.lm_head) ||
         std::any_of(model_.layers.begin(), model_.layers.end(), [&](const LayerWeights& l) {
           return has(l.in_proj) || has(l.q) || has(l.k) || has(l.v) || has(l.o) ||
                  has(l.out_proj) || has(l.gate) || has(l.up) || has(l.down);
         });
}

void CpuForward::pack(const float* x, std::size_t n, std::size_t row, Inputs& to,
                      std::initializer_list<const TensorView*> weights) const {
  for (LinearInput const input : {LinearInput::fp32, LinearInput::bf16})
    if (std::any_of(weights.begin(), weights.end(), [&](const TensorView* w) {
          return input_of(w->dtype, options_.linear_input) == input;
        }))
      k_->pack(
          x, n, input,
          static_cast<std::byte*>(to.of(input)) + row * packed_stride(n, input) * bytes_of(input));
}

Linear CpuForward::product(const TensorView& weights, std::uint32_t rows, std::uint32_t columns,
                           Inputs& x, float* y, std::size_t y_stride) const {
  Linear j;
  j.weights = weights.data;
  j.dtype = weights.dtype;
  j.rows = rows;
  j.columns = columns;
  j.input = input_of(weights.dtype, options_.linear_input);
  j.x = x.of(j.input);
  j.x_stride = packed_stride(columns, j.input);
  j.y = y;
  j.y_stride = y_stride;
  return j;
}

void CpuForward::linear_in_pieces(const Linear& job, std::size_t tokens, std::size_t pieces) {
  // Zeros elsewhere make the product of one piece exact: 0 * w adds nothing to a chain.
  std::size_t const steps = packed_size(job.columns) / 32;
  std::size_t const element = bytes_of(job.input);
  const auto* const all = static_cast<const std::byte*>(job.x);
  std::vector<std::byte> x(tokens * job.x_stride * element);
  std::vector<float> y(tokens * job.rows);
  for (std::size_t p = 0; p < pieces; ++p) {
    std::size_t const first = p * steps / pieces * 32;
    std::size_t const end = (p + 1) * steps / pieces * 32;
    std::fill(x.begin(), x.end(), std::byte{0});
    for (std::size_t t = 0; t < tokens; ++t)
      std::copy(all + (t * job.x_stride + first) * element,
                all + (t * job.x_stride + end) * element,
                x.data() + (t * job.x_stride + first) * element);
    Linear piece = job;
    piece.x = x.data();
    if (p > 0) {
      piece.bias = nullptr;
      piece.y = y.data();
      piece.y_stride = job.rows;
    }
    k_->linear(piece, static_cast<std::uint32_t>(tokens), 0, job.rows);
    for (std::size_t t = 0; p > 0 && t < tokens; ++t)
      k_->add(job.y + t * job.y_stride, y.data() + t * job.rows, nullptr, job.rows);
  }
}

void CpuForward::linear(std::span<const Linear> jobs, std::size_t tokens) {
  if (options_.broken == Condition::batch_invariance && sum_pieces(tokens) > 1) {
    for (const Linear& job : jobs) linear_in_pieces(job, tokens, sum_pieces(tokens));
    return;
  }
  // Long items, so that a core reads ahead; several for each thread, so that all end together; and
  // of every job the same share for each thread, in one piece.
  struct Share {
    std::size_t items, rows;  // of a thread, of an item
  };
  std::array<Share, most_jobs> shares;
  std::size_t const threads = workers_.threads();
  std::size_t rows = 0;
  for (const Linear& job : jobs) rows += job.rows;
  std::size_t const wanted = std::clamp(rows / (threads * 6), row_step, row_most);
  std::size_t items = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    shares[i].items = std::max<std::size_t>(1, jobs[i].rows / threads / wanted);
    shares[i].rows =
        ceil_div(ceil_div<std::size_t>(jobs[i].rows, threads * shares[i].items), row_step) *
        row_step;
    items += shares[i].items;
  }
  workers_.run(threads * items, [&](std::size_t item) {
    std::size_t const thread = item / items;
    item %= items;
    std::size_t i = 0;
    for (; item >= shares[i].items; ++i) item -= shares[i].items;
    const Linear& job = jobs[i];
    std::size_t const first = (thread * shares[i].items + item) * shares[i].rows;
    std::size_t const end = std::min<std::size_t>(job.rows, first + shares[i].rows);
    if (first < end)
      k_->linear(job, static_cast<std::uint32_t>(tokens), static_cast<std::uint32_t>(first),
                 static_cast<std::uint32_t>(end));
  });
}

void CpuForward::run(std::span<const ForwardChunk> chunks, const KvArena& kv,
                     std::span<float> logits) {
  check_batch(chunks, kv, model_.config, options_.max_tokens, logits.size());
  const FalconH1Config& c = model_.config;
  runs_.clear();
  queries_.clear();
  states_.clear();
  run_of_.clear();
  tokens_ = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    runs_.push_back({&chunks[i], tokens_});
    auto const r = static_cast<std::uint32_t>(i);
    auto const count = static_cast<std::uint32_t>(chunks[i].tokens.size());
    tokens_ += count;
    run_of_.resize(tokens_, r);
    for (std::uint32_t t = 0; t < count; t += query_block)
      for (std::uint32_t head = 0; head < c.kv_heads; ++head)
        queries_.push_back(
            {r, head, t, std::min(count, t + static_cast<std::uint32_t>(query_block))});
    for (std::uint32_t head = 0; head < c.ssm_heads; ++head) states_.push_back({r, head});
  }
  if (tokens_ == 0) return;
  std::size_t const conv_elements = std::size_t{c.conv_channels()} * (c.conv_width - 1);
  if (history_.size() < runs_.size() * conv_elements) history_.resize(runs_.size() * conv_elements);
  if (stores_.size() < runs_.size()) stores_.resize(runs_.size());
  sources_.resize(runs_.size());

  auto const factor = static_cast<float>(c.embedding_multiplier);
  for (const Run& run : runs_)
    for (std::size_t t = 0; t < run.chunk->tokens.size(); ++t) {
      std::size_t const id = run.chunk->tokens[t];
      float* const h = h_.data() + (run.row + t) * c.hidden;
      const auto* const table = static_cast<const unsigned char*>(model_.embed.data);
      k_->load(table + id * c.hidden * dtype_bytes(model_.embed.dtype), model_.embed.dtype,
               c.hidden, h);
      k_->multiply(h, factor, c.hidden);
      rotation_.fill(run.chunk->begin + static_cast<std::uint32_t>(t),
                     cosines_.data() + (run.row + t) * rotation_.half(),
                     sines_.data() + (run.row + t) * rotation_.half());
    }

  for (std::size_t l = 0; l < layers_.size(); ++l) run_layer(l, kv);

  std::size_t rows = 0;
  for (const Run& run : runs_) rows += run.chunk->logits ? 1 : 0;
  if (rows == 0) return;
  rows = 0;
  for (const Run& run : runs_)
    if (run.chunk->logits) {
      float* const f = u_.data() + rows * c.hidden;
      k_->rms_norm(h_.data() + (run.row + run.chunk->tokens.size() - 1) * c.hidden,
                   final_norm_.data(), static_cast<float>(c.norm_epsilon), c.hidden, f);
      pack(f, c.hidden, rows++, inputs_[0], {&model_.lm_head});
    }
  Linear job =
      product(model_.lm_head, c.vocabulary, c.hidden, inputs_[0], logits.data(), c.vocabulary);
  job.scale = static_cast<float>(c.lm_head_multiplier);
  linear({&job, 1}, rows);
}

void CpuForward::run_layer(std::size_t l, const KvArena& kv) {
  const FalconH1Config& c = model_.config;
  const LayerWeights& w = model_.layers[l];
  const Layer& layer = layers_[l];
  auto const epsilon = static_cast<float>(c.norm_epsilon);
  // Few tokens: an item for each thread at least.
  std::size_t const block = std::clamp<std::size_t>(tokens_ / workers_.threads(), 1, token_block);
  auto const each_token = [&](auto&& f) {
    workers_.run((tokens_ + block - 1) / block, [&](std::size_t item) {
      std::size_t const end = std::min(tokens_, (item + 1) * block);
      for (std::size_t t = item * block; t < end; ++t) f(t);
    });
  };
  auto const job = [&](const TensorView& weights, std::uint32_t rows, std::uint32_t columns,
                       Inputs& x, float* y, std::size_t y_stride, double scale,
                       const std::vector<float>& bias, double post) {
    Linear j = product(weights, rows, columns, x, y, y_stride);
    j.scale = static_cast<float>(scale);
    j.bias = or_null(bias);
    j.post = static_cast<float>(post);
    return j;
  };

  each_token([&](std::size_t t) {
    float* const u = u_.data() + t * c.hidden;
    k_->rms_norm(h_.data() + t * c.hidden, layer.input_norm.data(), epsilon, c.hidden, u);
    pack(u, c.hidden, t, inputs_[0], {&w.in_proj, &w.q, &w.k, &w.v});
  });
  {
    double const in = c.attention_in_multiplier;
    std::size_t const both = std::size_t{2} * c.kv_width();
    Linear const jobs[] = {
        job(w.in_proj, c.in_proj_rows(), c.hidden, inputs_[0], p_.data(), c.in_proj_rows(),
            c.ssm_in_multiplier, layer.in_bias, 1),
        job(w.q, c.query_width(), c.hidden, inputs_[0], q_.data(), c.query_width(), in,
            layer.q_bias, 1),
        job(w.k, c.kv_width(), c.hidden, inputs_[0], kv_.data(), both, in, layer.k_bias,
            c.key_multiplier),
        job(w.v, c.kv_width(), c.hidden, inputs_[0], kv_.data() + c.kv_width(), both, in,
            layer.v_bias, 1),
    };
    linear(jobs, tokens_);
  }
  each_token([&](std::size_t row) {
    const Run& run = runs_[run_of_[row]];
    finish_projections(l, kv, run, row - run.row);
  });

  // All sources are read before any target is written.
  workers_.run(runs_.size(),
               [&](std::size_t r) { read_history(l, static_cast<std::uint32_t>(r)); });
  std::size_t const parts = (c.conv_channels() + channel_block - 1) / channel_block;
  workers_.run(runs_.size() * parts, [&](std::size_t item) {
    std::size_t const r = item / parts;
    const Run& run = runs_[r];
    Convolution conv;
    conv.tokens = static_cast<std::uint32_t>(run.chunk->tokens.size());
    conv.channels = c.conv_channels();
    conv.width = c.conv_width;
    conv.weights = layer.conv_weights.data();
    conv.bias = or_null(layer.conv_bias);
    conv.history = history_.data() + r * std::size_t{c.conv_channels()} * (c.conv_width - 1);
    conv.x = p_.data() + run.row * c.in_proj_rows() + c.ssm_width();
    conv.x_stride = c.in_proj_rows();
    conv.y = c_.data() + run.row * c.conv_channels();
    conv.y_stride = c.conv_channels();
    auto const first = static_cast<std::uint32_t>(item % parts * channel_block);
    k_->convolve(conv, first,
                 std::min(conv.channels, first + static_cast<std::uint32_t>(channel_block)));
  });
  workers_.run(runs_.size(),
               [&](std::size_t r) { write_history(l, static_cast<std::uint32_t>(r)); });
  for (std::uint32_t r = 0; r < runs_.size(); ++r) {
    const Run& run = runs_[r];
    auto& stores = stores_[r];
    stores.clear();
    for (const StateTarget& target : run.chunk->targets)
      stores.push_back({target.boundary - run.chunk->begin, ssm_view(target.row, l),
                        target.row.arena->ssm_dtype});
    if (run.chunk->begin > 0) sources_[r] = ssm_view(run.chunk->source, l);
  }

  AttentionBlocks blocks = kv.blocks;
  blocks.base += static_cast<std::int64_t>(l) * kv.layer_stride;
  float const score_scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  std::uint32_t const group = c.heads / c.kv_heads;
  workers_.run(states_.size() + queries_.size(), [&](std::size_t item) {
    if (item < states_.size()) {
      StateItem const s = states_[item];
      const Run& run = runs_[s.run];
      std::size_t const channels = c.conv_channels();
      const float* const conv = c_.data() + run.row * channels;
      std::size_t const g = s.head / (c.ssm_heads / c.ssm_groups);
      StateUpdate j;
      j.tokens = static_cast<std::uint32_t>(run.chunk->tokens.size());
      j.begin = run.chunk->begin;
      j.head = s.head;
      j.rows = c.ssm_head_dim;
      j.state = c.ssm_state;
      bool const rounds = options_.broken != Condition::lossless_checkpoint;
      j.carry = rounds ? options_.carry : Carry::fp32;
      j.dt = dt_.data() + run.row * c.ssm_heads + s.head;
      j.decay = decay_.data() + run.row * c.ssm_heads + s.head;
      j.dt_stride = c.ssm_heads;
      j.x = conv + std::size_t{s.head} * c.ssm_head_dim;
      j.b = conv + c.ssm_width() + g * c.ssm_state;
      j.c = conv + c.ssm_width() + c.group_width() + g * c.ssm_state;
      j.stride = channels;
      j.d = layer.d[s.head];
      j.y = y_.data() + run.row * c.ssm_width() + std::size_t{s.head} * c.ssm_head_dim;
      j.y_stride = c.ssm_width();
      if (run.chunk->begin > 0) {
        j.source = &sources_[s.run];
        j.source_dtype = run.chunk->source.arena->ssm_dtype;
      }
      j.stores = stores_[s.run].data();
      j.store_count = stores_[s.run].size();
      std::uint32_t const length = run.chunk->decode ? 0 : chunk_length(options_.broken);
      if (length > 0)
        update_state_in_chunks(j, layer.decay[s.head], length, *k_);
      else
        k_->update_state(j, 0, c.ssm_head_dim);
      return;
    }
    QueryItem const query = queries_[item - states_.size()];
    const Run& run = runs_[query.run];
    Attention j;
    j.blocks = blocks;
    j.blocks.units = run.chunk->blocks.data();
    j.blocks.tails = &run.chunk->tail.from;
    j.kv_dtype = kv.dtype;
    j.kv_head = query.kv_head;
    j.head_dim = c.head_dim;
    j.heads = group;
    j.scale = score_scale;
    for (std::uint32_t t = query.first; t < query.end; ++t) {
      std::size_t const at =
          (run.row + t) * c.query_width() + std::size_t{query.kv_head} * group * c.head_dim;
      j.position = run.chunk->begin + t;
      j.q = q_.data() + at;
      j.out = o_.data() + at;
      k_->attend(j);
    }
  });

  GatedNorm norm;
  norm.width = c.ssm_width();
  norm.groups = c.ssm_groups;
  norm.weight = c.gated_norm ? layer.ssm_norm.data() : nullptr;
  norm.norm_before_gate = c.norm_before_gate;
  norm.epsilon = epsilon;
  each_token([&](std::size_t t) {
    float* const y = y_.data() + t * c.ssm_width();
    k_->gated_norm(norm, y, p_.data() + t * c.in_proj_rows());
    pack(y, c.ssm_width(), t, inputs_[0], {&w.out_proj});
    pack(o_.data() + t * c.query_width(), c.query_width(), t, inputs_[1], {&w.o});
  });
  {
    Linear const jobs[] = {
        job(w.o, c.hidden, c.query_width(), inputs_[1], att_.data(), c.hidden, 1, layer.o_bias,
            c.attention_out_multiplier),
        job(w.out_proj, c.hidden, c.ssm_width(), inputs_[0], ssm_.data(), c.hidden, 1,
            layer.out_bias, c.ssm_out_multiplier),
    };
    linear(jobs, tokens_);
  }
  each_token([&](std::size_t t) {
    float* const h = h_.data() + t * c.hidden;
    k_->add(h, ssm_.data() + t * c.hidden, att_.data() + t * c.hidden, c.hidden);
    float* const u = u_.data() + t * c.hidden;
    k_->rms_norm(h, layer.ff_norm.data(), epsilon, c.hidden, u);
    pack(u, c.hidden, t, inputs_[0], {&w.gate, &w.up});
  });
  {
    Linear const jobs[] = {
        job(w.gate, c.intermediate, c.hidden, inputs_[0], gate_.data(), c.intermediate, 1,
            layer.gate_bias, c.gate_multiplier),
        job(w.up, c.intermediate, c.hidden, inputs_[0], up_.data(), c.intermediate, 1,
            layer.up_bias, 1),
    };
    linear(jobs, tokens_);
  }
  each_token([&](std::size_t t) {
    float* const g = gate_.data() + t * c.intermediate;
    k_->silu_product(g, up_.data() + t * c.intermediate, c.intermediate, g);
    pack(g, c.intermediate, t, inputs_[0], {&w.down});
  });
  Linear const down = job(w.down, c.hidden, c.intermediate, inputs_[0], att_.data(), c.hidden, 1,
                          layer.down_bias, c.down_multiplier);
  linear({&down, 1}, tokens_);
  each_token([&](std::size_t t) {
    k_->add(h_.data() + t * c.hidden, att_.data() + t * c.hidden, nullptr, c.hidden);
  });
}

void CpuForward::finish_projections(std::size_t l, const KvArena& kv, const Run& run,
                                    std::size_t t) {
  const FalconH1Config& c = model_.config;
  const Layer& layer = layers_[l];
  std::size_t const row = run.row + t;
  const float* const cosines = cosines_.data() + row * rotation_.half();
  const float* const sines = sines_.data() + row * rotation_.half();
  float* const q = q_.data() + row * c.query_width();
  for (std::uint32_t head = 0; head < c.heads; ++head)
    k_->rotate(q + std::size_t{head} * c.head_dim, cosines, sines, rotation_.half());

  auto const position = static_cast<std::int32_t>(run.chunk->begin + t);
  auto const valid_until = static_cast<std::int32_t>(run.chunk->kv_valid_until);
  AttentionWrites to{kv.blocks, &valid_until};
  to.blocks.base += static_cast<std::int64_t>(l) * kv.layer_stride;
  to.blocks.units = run.chunk->blocks.data();
  to.blocks.tails = &run.chunk->tail.from;
  float* const k = kv_.data() + row * 2 * c.kv_width();
  const float* const v = k + c.kv_width();
  for (std::uint32_t head = 0; head < c.kv_heads; ++head) {
    std::byte* const key = to.addr_key(0, static_cast<std::int32_t>(head), position);
    if (key == nullptr) break;
    std::byte* const value = to.addr_value(0, static_cast<std::int32_t>(head), position);
    k_->rotate(k + std::size_t{head} * c.head_dim, cosines, sines, rotation_.half());
    k_->store(k + std::size_t{head} * c.head_dim, kv.dtype, c.head_dim, key);
    k_->store(v + std::size_t{head} * c.head_dim, kv.dtype, c.head_dim, value);
  }

  float* p = p_.data() + row * c.in_proj_rows();
  std::size_t const widths[] = {c.ssm_width(), c.ssm_width(), c.group_width(), c.group_width(),
                                c.ssm_heads};
  for (std::size_t i = 0; i < 5; ++i) {
    k_->multiply(p, static_cast<float>(c.ssm_multipliers[i]), widths[i]);
    p += widths[i];
  }
  p = p_.data() + row * c.in_proj_rows() + c.ssm_width();
  k_->round(p, options_.conv_dtype, c.conv_channels());
  p += c.conv_channels();
  auto const low = static_cast<float>(c.time_step_low);
  auto const high = static_cast<float>(c.time_step_high);
  for (std::size_t head = 0; head < c.ssm_heads; ++head) {
    float dt = numeric::softplus(p[head] + layer.dt_bias[head]);
    dt = dt < low ? low : dt;
    dt = dt > high ? high : dt;
    dt_[row * c.ssm_heads + head] = dt;
    decay_[row * c.ssm_heads + head] = numeric::exp(dt * layer.decay[head]);
  }
}

std::byte* CpuForward::allocate(std::size_t bytes) {
  memory_.emplace_back(bytes);
  return memory_.back().data();
}

void CpuForward::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CpuForward::read_history(std::size_t l, std::uint32_t r) {
  const FalconH1Config& c = model_.config;
  std::size_t const n = std::size_t{c.conv_channels()} * (c.conv_width - 1);
  float* const history = history_.data() + r * n;
  const ForwardChunk& chunk = *runs_[r].chunk;
  if (chunk.begin == 0) {
    std::fill(history, history + n, 0.0F);
    return;
  }
  ConvLines const from = conv_view(chunk.source, l);
  Dtype const dtype = chunk.source.arena->conv_dtype;
  auto const size = static_cast<std::int64_t>(dtype_bytes(dtype));
  auto const bytes = static_cast<std::int64_t>(n) * size;
  for (std::int64_t at = 0; at < bytes;) {
    std::int64_t const run = from.run(at, bytes);
    k_->load(from.addr_row(0, at), dtype, static_cast<std::size_t>(run / size),
             history + at / size);
    at += run;
  }
}

void CpuForward::write_history(std::size_t l, std::uint32_t r) const {
  const FalconH1Config& c = model_.config;
  std::size_t const channels = c.conv_channels();
  std::size_t const kept = c.conv_width - 1;
  const ForwardChunk& chunk = *runs_[r].chunk;
  for (const StateTarget& target : chunk.targets) {
    ConvLines const to = conv_view(target.row, l);
    Dtype const dtype = target.row.arena->conv_dtype;
    auto const size = static_cast<std::int64_t>(dtype_bytes(dtype));
    auto const bytes = static_cast<std::int64_t>(kept * channels) * size;
    for (std::size_t tap = 0; tap < kept; ++tap) {
      std::size_t const at = target.boundary - chunk.begin + tap;  // from the oldest kept column
      const float* const row =
          at < kept ? history_.data() + r * kept * channels + at * channels
                    : p_.data() + (runs_[r].row + at - kept) * c.in_proj_rows() + c.ssm_width();
      auto const start = static_cast<std::int64_t>(tap * channels) * size;
      for (std::int64_t done = 0, all = static_cast<std::int64_t>(channels) * size; done < all;) {
        std::int64_t const run = std::min(all - done, to.run(start + done, bytes));
        k_->store(row + done / size, dtype, static_cast<std::size_t>(run / size),
                  to.addr_row(0, start + done));
        done += run;
      }
    }
  }
}

}  // namespace hybridstate::runtime::cpu
