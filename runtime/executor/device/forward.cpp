// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/device/forward.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "executor/device_error.hpp"
#include "executor/rotation.hpp"

namespace hybridstate::runtime::device {
namespace {

using kernels::ElementType;

ElementType element_type(Dtype dtype) {
  return dtype == Dtype::bf16 ? ElementType::bf16 : ElementType::f32;
}

std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> out(tensor ? static_cast<std::size_t>(tensor.elements()) : 0);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tensor.at(i);
  return out;
}

/// [channels][width] to [width][channels].
std::vector<float> tap_major(const TensorView& conv, std::size_t channels, std::size_t width) {
  std::vector<float> out(channels * width);
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t tap = 0; tap < width; ++tap)
      out[tap * channels + c] = conv.at(c * width + tap);
  return out;
}

}  // namespace

DeviceForward::DeviceForward(ModelTensors model, const ForwardOptions& options,
                             std::unique_ptr<Device> device, std::uint32_t max_sequences,
                             Tokens max_position)
    : model_(std::move(model)),
      options_(options),
      device_(std::move(device)),
      max_sequences_(max_sequences),
      max_position_(max_position) {
  FalconH1Config const& c = model_.config;
  if (options.carry == Carry::bf16_at_grid)
    throw DeviceError("carry bf16-at-grid runs on the CPU alone; use fp32 or bf16-per-token");
  if (options.broken != Condition::none)
    throw DeviceError("conditions are broken on the CPU alone");
  if (options.max_tokens == 0 || max_sequences == 0 || max_position == 0)
    throw DeviceError("the device executor needs room for at least one token of one sequence");

  Rotation const rotation(c.rope_theta, c.head_dim);
  std::vector<float> cosines(std::size_t{max_position} * rotation.half());
  std::vector<float> sines(cosines.size());
  for (Tokens p = 0; p < max_position; ++p)
    rotation.fill(p, &cosines[p * rotation.half()], &sines[p * rotation.half()]);
  cosines_ = floats(cosines);
  sines_ = floats(sines);

  std::vector<float> factors;
  std::size_t const widths[] = {c.ssm_width(), c.ssm_width(), c.group_width(), c.group_width(),
                                c.ssm_heads};
  for (std::size_t i = 0; i < 5; ++i)
    factors.insert(factors.end(), widths[i], static_cast<float>(c.ssm_multipliers[i]));
  factors_ = floats(factors);

  embed_ = weights(model_.embed, {});
  lm_head_ = weights(model_.lm_head, {});
  final_norm_ = floats(values_of(model_.final_norm));
  for (const LayerWeights& from : model_.layers) {
    std::vector<float> a = values_of(from.a_log);
    for (float& v : a) v = -numeric::exp(v);
    Layer to{};
    to.input_norm = floats(values_of(from.input_norm));
    to.ff_norm = floats(values_of(from.ff_norm));
    to.ssm_norm = c.gated_norm ? floats(values_of(from.ssm_norm)) : nullptr;
    to.conv_weights = floats(tap_major(from.conv, c.conv_channels(), c.conv_width));
    to.conv_bias = floats(values_of(from.conv_bias));
    to.a = floats(a);
    to.d = floats(values_of(from.d));
    to.dt_bias = floats(values_of(from.dt_bias));
    to.q = weights(from.q, from.q_bias);
    to.k = weights(from.k, from.k_bias);
    to.v = weights(from.v, from.v_bias);
    to.o = weights(from.o, from.o_bias);
    to.in_proj = weights(from.in_proj, from.in_proj_bias);
    to.out_proj = weights(from.out_proj, from.out_proj_bias);
    to.gate = weights(from.gate, from.gate_bias);
    to.up = weights(from.up, from.up_bias);
    to.down = weights(from.down, from.down_bias);
    layers_.push_back(to);
  }

  auto const rows = [&](std::size_t count, std::size_t width) {
    return reinterpret_cast<float*>(device_->allocate(count * width * sizeof(float)));
  };
  std::size_t const m = options.max_tokens;
  h_ = rows(m, c.hidden);
  u_ = rows(m, std::max({c.hidden, c.ssm_width(), c.intermediate}));
  q_ = rows(m, c.query_width());
  kv_ = rows(m, 2 * std::size_t{c.kv_width()});
  p_ = rows(m, c.in_proj_rows());
  c_ = rows(m, c.conv_channels());
  y_ = rows(m, c.ssm_width());
  o_ = rows(m, c.query_width());
  att_ = rows(m, c.hidden);
  ssm_ = rows(m, c.hidden);
  gate_ = rows(m, c.intermediate);
  up_ = rows(m, c.intermediate);
  logits_ = rows(std::min<std::size_t>(m, max_sequences), c.vocabulary);
}

const float* DeviceForward::floats(const std::vector<float>& values) {
  if (values.empty()) return nullptr;
  std::byte* const to = device_->allocate(values.size() * sizeof(float));
  device_->upload(to, values.data(), values.size() * sizeof(float));
  return reinterpret_cast<const float*>(to);
}

DeviceForward::Weights DeviceForward::weights(const TensorView& tensor, const TensorView& bias) {
  Weights w;
  w.bias = floats(values_of(bias));
  if (tensor.dtype == Dtype::f16) {  // exact in FP32; the kernels have no FP16
    w.data = floats(values_of(tensor));
    w.type = ElementType::f32;
    return w;
  }
  w.type = element_type(tensor.dtype);
  w.data = device_->resident(
      tensor.data, static_cast<std::size_t>(tensor.elements()) * dtype_bytes(tensor.dtype));
  return w;
}

void DeviceForward::build(std::span<const ForwardChunk> chunks) {
  if (chunks.size() > max_sequences_)
    throw DeviceError("a batch of " + std::to_string(chunks.size()) +
                      " sequences; the device has " + std::to_string(max_sequences_) + " rows");
  std::size_t tokens = 0;
  std::size_t columns = 0;
  std::size_t kept = 0;
  states_ = nullptr;
  longest_ = samples_ = 0;
  auto const use = [&](const StateRow& row) {
    if (states_ != nullptr && states_ != row.arena)
      throw DeviceError("the states of a batch lie in two arenas; the device takes one");
    states_ = row.arena;
  };
  for (const ForwardChunk& chunk : chunks) {
    if (chunk.begin + chunk.tokens.size() > max_position_)
      throw DeviceError("a sequence of " + std::to_string(chunk.begin + chunk.tokens.size()) +
                        " tokens; the device has angles for " + std::to_string(max_position_));
    if (chunk.targets.empty())
      throw DeviceError("a sequence of the batch keeps no state; the device needs a place for it");
    tokens += chunk.tokens.size();
    columns = std::max(columns, chunk.blocks.size());
    kept += chunk.targets.size();
    samples_ += chunk.logits ? 1 : 0;
    longest_ = std::max(longest_, static_cast<std::uint32_t>(chunk.tokens.size()));
    if (chunk.begin > 0) use(chunk.source);
    for (const StateTarget& target : chunk.targets) use(target.row);
  }
  chunks_ = static_cast<std::uint32_t>(chunks.size());
  columns_ = static_cast<std::uint32_t>(columns);
  kept_ = static_cast<std::uint32_t>(kept);
  members_ = states_ == nullptr ? 1 : states_->ssm.map.members();
  lines_ = 1;
  if (states_ != nullptr && states_->conv.part_bytes > 0)
    for (const ForwardChunk& chunk : chunks)
      for (const StateTarget& target : chunk.targets)
        lines_ = std::max(lines_, static_cast<std::uint32_t>(target.row.lines.size()));

  // One array, uploaded at once; places first, then content.
  std::vector<std::pair<std::int32_t**, std::size_t>> const parts = {
      {&at_.ids, tokens},
      {&at_.positions, tokens},
      {&at_.token_rows, tokens},
      {&at_.first, std::size_t{chunks_} + 1},
      {&at_.begin, chunks_},
      {&at_.blocks, std::size_t{chunks_} * columns_},
      {&at_.valid_until, chunks_},
      {&at_.tails, std::size_t{chunks_} * 2},
      {&at_.source_pages, std::size_t{chunks_} * members_},
      {&at_.source_lines, std::size_t{chunks_} * lines_},
      {&at_.kept_first, std::size_t{chunks_} + 1},
      {&at_.kept_after, kept_},
      {&at_.kept_pages, std::size_t{kept_} * members_},
      {&at_.kept_lines, std::size_t{kept_} * lines_},
      {&at_.sampled, samples_},
  };
  std::size_t count = 0;
  for (auto const& [place, size] : parts) count += size;
  if (count > device_integer_count_) {
    device_integer_count_ = 2 * count;
    device_integers_ = reinterpret_cast<std::int32_t*>(
        device_->allocate(device_integer_count_ * sizeof(std::int32_t)));
  }
  integers_.assign(count, -1);
  std::int32_t* next = integers_.data();
  for (auto const& [place, size] : parts) {
    *place = next;
    next += size;
  }
  auto const copy = [](std::span<const std::int32_t> from, std::int32_t* to) {
    std::copy(from.begin(), from.end(), to);
  };
  std::int32_t token = 0;
  std::int32_t target = 0;
  std::size_t sample = 0;
  for (std::uint32_t r = 0; r < chunks_; ++r) {
    const ForwardChunk& chunk = chunks[r];
    auto const row = static_cast<std::int32_t>(r);
    at_.first[r] = token;
    at_.begin[r] = static_cast<std::int32_t>(chunk.begin);
    at_.valid_until[r] = static_cast<std::int32_t>(chunk.kv_valid_until);
    at_.tails[std::size_t{r} * 2] = chunk.tail.from;
    at_.tails[std::size_t{r} * 2 + 1] = chunk.tail.shift;
    for (std::size_t t = 0; t < chunk.tokens.size(); ++t, ++token) {
      at_.ids[token] = static_cast<std::int32_t>(chunk.tokens[t]);
      at_.positions[token] = static_cast<std::int32_t>(chunk.begin + t);
      at_.token_rows[token] = row;
    }
    copy(chunk.blocks, at_.blocks + std::size_t{r} * columns_);
    if (chunk.begin > 0) {
      copy(chunk.source.pages.first(members_), at_.source_pages + std::size_t{r} * members_);
      copy(chunk.source.lines.first(lines_), at_.source_lines + std::size_t{r} * lines_);
    }
    at_.kept_first[r] = target;
    for (const StateTarget& t : chunk.targets) {
      auto const i = static_cast<std::size_t>(target++);
      at_.kept_after[i] = static_cast<std::int32_t>(t.boundary - chunk.begin);
      copy(t.row.pages.first(members_), at_.kept_pages + i * members_);
      copy(t.row.lines.first(lines_), at_.kept_lines + i * lines_);
    }
    if (chunk.logits) at_.sampled[sample++] = token - 1;
  }
  at_.first[chunks_] = token;
  at_.kept_first[chunks_] = target;
  device_->upload(device_integers_, integers_.data(), count * sizeof(std::int32_t));
  for (auto const& [place, size] : parts) *place = device_integers_ + (*place - integers_.data());
}

void DeviceForward::linear(const Weights& w, std::uint32_t rows, std::uint32_t columns,
                           const float* x, float* y, std::int64_t y_stride, std::uint32_t tokens,
                           double scale, double post) {
  kernels::LinearJob job;
  job.weights = w.data;
  job.type = w.type;
  if (options_.linear_input == LinearInput::bf16) job.input = w.type;
  job.rows = rows;
  job.columns = columns;
  job.x = {x, columns};
  job.y = {y, y_stride};
  job.tokens = tokens;
  job.scale = static_cast<float>(scale);
  job.bias = w.bias;
  job.post = static_cast<float>(post);
  device_->run(job);
}

void DeviceForward::run(std::span<const ForwardChunk> chunks, const KvArena& kv,
                        std::span<float> logits) {
  check_batch(chunks, kv, model_.config, options_.max_tokens, logits);
  if (chunks.empty()) return;
  build(chunks);
  FalconH1Config const& c = model_.config;
  auto const tokens = static_cast<std::uint32_t>(
      integers_[static_cast<std::size_t>(at_.first + chunks_ - device_integers_)]);

  kernels::EmbeddingJob embed;
  embed.table = embed_.data;
  embed.type = embed_.type;
  embed.ids = at_.ids;
  embed.multiplier = static_cast<float>(c.embedding_multiplier);
  embed.out = {h_, c.hidden};
  embed.rows = tokens;
  embed.n = c.hidden;
  device_->run(embed);
  for (std::size_t l = 0; l < layers_.size(); ++l) run_layer(l, kv, tokens);
  if (samples_ == 0) return device_->wait();

  kernels::RmsNormJob norm;
  norm.h = {h_, c.hidden};
  if (!layers_.empty()) norm.a = {att_, c.hidden};
  norm.weight = final_norm_;
  norm.epsilon = static_cast<float>(c.norm_epsilon);
  norm.out = u_;
  norm.out_stride = c.hidden;
  norm.rows_of = at_.sampled;
  norm.rows = samples_;
  norm.n = c.hidden;
  device_->run(norm);
  linear(lm_head_, c.vocabulary, c.hidden, u_, logits_, c.vocabulary, samples_,
         c.lm_head_multiplier, 1);
  device_->download(logits.data(), logits_, std::size_t{samples_} * c.vocabulary * sizeof(float));
}

void DeviceForward::run_layer(std::size_t l, const KvArena& kv, std::uint32_t tokens) {
  FalconH1Config const& c = model_.config;
  Layer const& w = layers_[l];
  auto const epsilon = static_cast<float>(c.norm_epsilon);
  bool const decode = longest_ == 1;
  std::int64_t const offset = static_cast<std::int64_t>(l);

  // The layer before left its second half to be added.
  kernels::RmsNormJob norm;
  norm.h = {h_, c.hidden};
  if (l > 0) {
    norm.a = {att_, c.hidden};
    norm.sum = {h_, c.hidden};
  }
  norm.weight = w.input_norm;
  norm.epsilon = epsilon;
  norm.out = u_;
  norm.out_stride = c.hidden;
  norm.rows = tokens;
  norm.n = c.hidden;
  device_->run(norm);

  std::int64_t const both = 2 * std::int64_t{c.kv_width()};
  linear(w.in_proj, c.in_proj_rows(), c.hidden, u_, p_, c.in_proj_rows(), tokens,
         c.ssm_in_multiplier, 1);
  linear(w.q, c.query_width(), c.hidden, u_, q_, c.query_width(), tokens, c.attention_in_multiplier,
         1);
  linear(w.k, c.kv_width(), c.hidden, u_, kv_, both, tokens, c.attention_in_multiplier,
         c.key_multiplier);
  linear(w.v, c.kv_width(), c.hidden, u_, kv_ + c.kv_width(), both, tokens,
         c.attention_in_multiplier, 1);
  kernels::ScaleRows multipliers;
  multipliers.x = {p_, c.in_proj_rows()};
  multipliers.factors = factors_;
  multipliers.rows = tokens;
  multipliers.n = c.in_proj_rows();
  device_->run(multipliers);

  AttentionBlocks blocks = kv.blocks;
  blocks.base += offset * kv.layer_stride;
  blocks.units = at_.blocks;
  blocks.row_stride = columns_;
  blocks.tails = at_.tails;
  blocks.tail_stride = 2;
  kernels::RotationJob rotation;
  rotation.q = {q_, c.query_width()};
  rotation.q_out = {q_, c.query_width()};
  rotation.k = {kv_, both};
  rotation.v = {kv_ + c.kv_width(), both};
  rotation.cosines = cosines_;
  rotation.sines = sines_;
  rotation.positions = at_.positions;
  rotation.table_rows = at_.token_rows;
  rotation.to = {blocks, at_.valid_until};
  rotation.type = element_type(kv.dtype);
  rotation.tokens = tokens;
  rotation.heads = c.heads;
  rotation.kv_heads = c.kv_heads;
  rotation.head_dim = c.head_dim;
  device_->run(rotation);

  kernels::ConvolutionInputs conv;
  conv.weights = w.conv_weights;
  conv.bias = w.conv_bias;
  conv.x = p_ + c.ssm_width();
  conv.x_stride = c.in_proj_rows();
  conv.y = c_;
  conv.y_stride = c.conv_channels();
  conv.channels = c.conv_channels();
  conv.width = c.conv_width;
  kernels::RecurrenceInputs in;
  in.x = c_;
  in.b = c_ + c.ssm_width();
  in.c = in.b + c.group_width();
  in.stride = c.conv_channels();
  in.dt = p_ + c.ssm_width() + c.conv_channels();
  in.dt_stride = c.in_proj_rows();
  in.dt_bias = w.dt_bias;
  in.a = w.a;
  in.d = w.d;
  in.dt_low = static_cast<float>(c.time_step_low);
  in.dt_high = static_cast<float>(c.time_step_high);
  in.y = y_;
  in.y_stride = c.ssm_width();
  in.heads = c.ssm_heads;
  in.groups = c.ssm_groups;
  in.rows = c.ssm_head_dim;
  SsmPages<> pages = states_->ssm;
  pages.base += offset * states_->ssm_layer_stride;
  pages.row_stride = members_;
  ConvLines lines = states_->conv;
  lines.base += offset * states_->conv_layer_stride;
  lines.row_stride = lines_;
  auto const of_rows = [](auto view, const std::int32_t* table) {
    if constexpr (std::is_same_v<decltype(view), ConvLines>)
      view.lines = table;
    else
      view.pages = table;
    return view;
  };
  // A decode step keeps one state a sequence, unless it crosses a boundary.
  bool const is_step = decode && kept_ == chunks_;
  if (is_step) {
    kernels::ConvolutionStepJob step;
    static_cast<kernels::ConvolutionInputs&>(step) = conv;
    step.source = of_rows(lines, at_.source_lines);
    step.destination = of_rows(lines, at_.kept_lines);
    step.sequences = chunks_;
    step.type = element_type(states_->conv_dtype);
    device_->run(step);
  } else {
    kernels::ConvolutionRunsJob runs;
    static_cast<kernels::ConvolutionInputs&>(runs) = conv;
    runs.token_begin = at_.first;
    runs.source = of_rows(lines, at_.source_lines);
    runs.store_begin = at_.kept_first;
    runs.store_after = at_.kept_after;
    runs.stores = of_rows(lines, at_.kept_lines);
    runs.sequences = chunks_;
    runs.most_tokens = longest_;
    runs.type = element_type(states_->conv_dtype);
    device_->run(runs);
  }
  kernels::StateUpdateJob update;
  update.in = in;
  update.source = of_rows(pages, at_.source_pages);
  update.destination = of_rows(pages, at_.kept_pages);
  update.sequences = chunks_;
  update.state = c.ssm_state;
  update.type = element_type(states_->ssm_dtype);
  if (is_step && kernels::with_kernel(update, [](const auto&) {})) {
    device_->run(update);
  } else {
    kernels::StateScanJob scan;
    scan.in = in;
    scan.runs = {at_.first, chunks_};
    scan.source = update.source;
    scan.kept = {update.destination, at_.kept_first, at_.kept_after};
    scan.state = c.ssm_state;
    scan.type = update.type;
    device_->run(scan);
  }

  kernels::AttentionJob attention;
  attention.batch.blocks = blocks;
  attention.batch.position = at_.begin;
  attention.batch.first = decode ? nullptr : at_.first;
  attention.batch.q = q_;
  attention.batch.q_stride = c.query_width();
  attention.batch.out = o_;
  attention.batch.out_stride = c.query_width();
  attention.batch.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  attention.batch.sequences = chunks_;
  attention.batch.kv_heads = c.kv_heads;
  attention.batch.group = c.heads / c.kv_heads;
  attention.type = element_type(kv.dtype);
  attention.head_dim = c.head_dim;
  attention.most_queries = longest_;
  device_->run(attention);

  kernels::GatedNormJob gated;
  gated.y = {y_, c.ssm_width()};
  gated.z = {p_, c.in_proj_rows()};
  gated.weight = w.ssm_norm;
  gated.norm_before_gate = c.norm_before_gate;
  gated.epsilon = epsilon;
  gated.out = u_;
  gated.out_stride = c.ssm_width();
  gated.rows = tokens;
  gated.width = c.ssm_width();
  gated.groups = c.ssm_groups;
  device_->run(gated);
  linear(w.o, c.hidden, c.query_width(), o_, att_, c.hidden, tokens, 1, c.attention_out_multiplier);
  linear(w.out_proj, c.hidden, c.ssm_width(), u_, ssm_, c.hidden, tokens, 1, c.ssm_out_multiplier);

  norm.a = {ssm_, c.hidden};
  norm.b = {att_, c.hidden};
  norm.sum = {h_, c.hidden};
  norm.weight = w.ff_norm;
  device_->run(norm);
  linear(w.gate, c.intermediate, c.hidden, u_, gate_, c.intermediate, tokens, 1, c.gate_multiplier);
  linear(w.up, c.intermediate, c.hidden, u_, up_, c.intermediate, tokens, 1, 1);
  kernels::SiluProductJob product;
  product.gate = {gate_, c.intermediate};
  product.up = {up_, c.intermediate};
  product.out = gate_;
  product.out_stride = c.intermediate;
  product.rows = tokens;
  product.n = c.intermediate;
  device_->run(product);
  linear(w.down, c.hidden, c.intermediate, gate_, att_, c.hidden, tokens, 1, c.down_multiplier);
}

}  // namespace hybridstate::runtime::device
