// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/device/forward.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "executor/device_error.hpp"
#include "executor/rotation.hpp"
#include "executor/small_tensors.hpp"

namespace hybridstate::runtime::device {
namespace {

using kernels::ElementType;

ElementType element_type(Dtype dtype) {
  return dtype == Dtype::bf16 ? ElementType::bf16 : ElementType::f32;
}

/// CTAs of attention below which a GPU is not busy: about one a multiprocessor.
constexpr std::uint32_t few_ctas = 128;

/// -1: the state is in a unit.
std::int32_t working_page(const StateRow& row) {
  return row.arena->units != nullptr ? row.pages.front() : -1;
}

/// At least as many tokens, whole splits, so that few numbers serve all lengths.
std::uint32_t rounded_tokens(Tokens tokens) {
  return std::bit_ceil(kernels::quotient_up(tokens, kernels::split_tokens)) * kernels::split_tokens;
}

}  // namespace

template <class T>
const T* DeviceForward::constants(const std::vector<T>& values) {
  if (values.empty()) return nullptr;
  std::byte* const to = device_->allocate(values.size() * sizeof(T));
  device_->write(to, values.data(), values.size() * sizeof(T));
  return reinterpret_cast<const T*>(to);
}

template <class Use>
void DeviceForward::for_each_matrix(Use&& use) const {
  use(model_.embed);
  if (!tied()) use(model_.lm_head);
  for (const LayerWeights& w : model_.layers)
    for (const TensorView* t :
         {&w.q, &w.k, &w.v, &w.o, &w.in_proj, &w.out_proj, &w.gate, &w.up, &w.down})
      use(*t);
}
template <class Use>
void DeviceForward::for_each_activation(Use&& use) {
  FalconH1Config const& c = model_.config;
  // A decode step may have more rows than tokens.
  std::size_t const m = std::max(options_.max_tokens, limits_.max_sequences);
  use(h_, m * c.hidden);
  use(u_, m * std::max({c.hidden, c.ssm_width(), c.query_width(), c.intermediate}));
  use(q_, m * c.query_width());
  use(kv_, m * 2 * c.kv_width());
  use(p_, m * c.in_proj_rows());
  use(c_, m * c.conv_channels());
  use(y_, m * c.ssm_width());
  use(o_, m * c.query_width());
  use(att_, m * c.hidden);
  use(ssm_, m * c.hidden);
  use(gate_, m * c.intermediate);
  use(up_, m * c.intermediate);
  use(logits_, std::size_t{limits_.max_sequences} * c.vocabulary);
}

DeviceForward::DeviceForward(ModelTensors model, const ForwardOptions& options,
                             std::unique_ptr<Device> device, const ForwardLimits& limits)
    : model_(std::move(model)), options_(options), device_(std::move(device)), limits_(limits) {
  FalconH1Config const& c = model_.config;
  if (options.broken != Condition::none)
    throw DeviceError("conditions are broken on the CPU alone");
  if (options.max_tokens == 0 || limits.max_sequences == 0 || limits.max_position == 0)
    throw DeviceError("the device executor needs room for at least one token of one sequence");
  if (options.linear == LinearForm::cublaslt) {
    device_->prepare_gemm();
    for_each_matrix([](const TensorView& t) {
      if (t.dtype != Dtype::bf16)
        throw DeviceError(
            "cuBLASLt multiplies BF16 weights here, and this model has others; use "
            "--linear exact");
    });
  }
  device_->require(needed_bytes());

  Rotation const rotation(c.rope_theta, c.head_dim);
  std::vector<float> cosines(std::size_t{limits.max_position} * rotation.half());
  std::vector<float> sines(cosines.size());
  for (Tokens p = 0; p < limits.max_position; ++p)
    rotation.fill(p, &cosines[p * rotation.half()], &sines[p * rotation.half()]);
  cosines_ = constants(cosines);
  sines_ = constants(sines);

  std::vector<float> factors;
  std::size_t const widths[] = {c.ssm_width(), c.ssm_width(), c.group_width(), c.group_width(),
                                c.ssm_heads};
  for (std::size_t i = 0; i < 5; ++i)
    factors.insert(factors.end(), widths[i], static_cast<float>(c.ssm_multipliers[i]));
  factors_ = constants(factors);

  embed_ = weights(model_.embed, {});
  lm_head_ = tied() ? embed_ : weights(model_.lm_head, {});
  final_norm_ = constants(values_of(model_.final_norm));
  for (const LayerWeights& from : model_.layers) {
    Layer to{};
    to.input_norm = constants(values_of(from.input_norm));
    to.ff_norm = constants(values_of(from.ff_norm));
    to.ssm_norm = c.gated_norm ? constants(values_of(from.ssm_norm)) : nullptr;
    to.conv_weights = constants(tap_major(from.conv, c.conv_channels(), c.conv_width));
    to.conv_bias = constants(values_of(from.conv_bias));
    to.a = constants(decay_rates(from.a_log));
    to.d = constants(values_of(from.d));
    to.dt_bias = constants(values_of(from.dt_bias));
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

  for_each_activation([&](float*& rows, std::size_t floats) {
    rows = reinterpret_cast<float*>(device_->allocate(floats * sizeof(float)));
  });
  pieces_ = device_->allocate(piece_bytes());
  candidates_ = reinterpret_cast<kernels::Candidate*>(
      device_->allocate(std::size_t{limits.max_sequences} *
                        kernels::greedy_candidates(c.vocabulary) * sizeof(kernels::Candidate)));
  choices_ = reinterpret_cast<std::int32_t*>(
      device_->allocate(limits.max_sequences * sizeof(std::int32_t)));
  std::vector<std::int32_t> counted(std::size_t{limits.max_sequences} + 1);
  std::iota(counted.begin(), counted.end(), 0);
  counted_ = constants(counted);
  ones_ = constants(std::vector<std::int32_t>(limits.max_sequences, 1));
  of_row_.resize(limits.max_sequences);
}

DeviceForward::Weights DeviceForward::weights(const TensorView& tensor, const TensorView& bias) {
  Weights w;
  w.bias = constants(values_of(bias));
  if (tensor.dtype == Dtype::f16) {  // exact in FP32; the kernels have no FP16
    w.data = constants(values_of(tensor));
    w.type = ElementType::f32;
    return w;
  }
  w.type = element_type(tensor.dtype);
  w.data = device_->resident(
      tensor.data, static_cast<std::size_t>(tensor.elements()) * dtype_bytes(tensor.dtype));
  return w;
}

std::uint32_t DeviceForward::side_by_side_rows() const noexcept {
  return std::min(limits_.max_sequences, few_ctas / model_.config.kv_heads);
}
std::size_t DeviceForward::piece_bytes() const noexcept {
  FalconH1Config const& c = model_.config;
  return kernels::piece_results_bytes(side_by_side_rows(), c.heads, c.head_dim,
                                      rounded_tokens(limits_.max_position), kernels::split_tokens);
}

std::size_t DeviceForward::needed_bytes() {
  FalconH1Config const& c = model_.config;
  std::size_t bytes = limits_.unit_bytes + piece_bytes() +
                      std::size_t{limits_.max_position} * c.head_dim * sizeof(float);
  for_each_activation([&](float*&, std::size_t floats) { bytes += floats * sizeof(float); });
  for_each_matrix([&](const TensorView& t) {
    bytes += static_cast<std::size_t>(t.elements()) * (t.dtype == Dtype::bf16 ? 2 : 4);
  });
  return bytes;
}

DeviceForward::Staged DeviceForward::staged(std::size_t bytes) {
  return {device_->staging(bytes), device_->allocate(bytes), bytes, false};
}

std::byte* DeviceForward::writable(Staged& memory) {
  if (memory.busy) device_->wait();  // a step did not reach its end
  memory.busy = false;
  return memory.host;
}

void DeviceForward::send(Staged& memory, std::size_t bytes) {
  memory.busy = true;
  uploads_.bytes += bytes;
  device_->upload(memory.device, memory.host, bytes);
}

void DeviceForward::update_tables(const StepTables& tables) {
  if (tables_ == nullptr) {
    if (tables.shape.rows != limits_.max_sequences)
      throw DeviceError("tables of " + std::to_string(tables.shape.rows) + " rows for " +
                        std::to_string(limits_.max_sequences) + " sequences");
    shape_ = tables.shape;
    std::vector<std::int32_t> const absent(static_cast<std::size_t>(shape_.entries()), -1);
    std::size_t const bytes = absent.size() * sizeof(std::int32_t);
    tables_ = reinterpret_cast<std::int32_t*>(device_->allocate(bytes));
    device_->write(tables_, absent.data(), bytes);
    changes_ = staged(bytes + shape_.rows * sizeof(kernels::CopyItem));
    std::size_t const kept = std::size_t{shape_.rows} * (shape_.checkpoints + 1);
    arrays_ = staged((3 * std::size_t{options_.max_tokens} + 5 * (shape_.rows + std::size_t{1}) +
                      kept * static_cast<std::size_t>(shape_.group_entries() + 2)) *
                     sizeof(std::int32_t));
  }
  if (tables.shape != shape_) throw DeviceError("the tables of a forward pass keep their shape");
  if (tables.changed.empty()) return;
  // The runs behind the list of them: one copy and one kernel, however many rows changed.
  auto* const items = reinterpret_cast<kernels::CopyItem*>(writable(changes_));
  std::size_t at = tables.changed.size() * sizeof(kernels::CopyItem);
  kernels::CopyList list;
  for (const ChangedRow& row : tables.changed) {
    std::int64_t const entry = row.row * shape_.row_entries() + row.first;
    std::size_t const bytes = static_cast<std::size_t>(row.count) * sizeof(std::int32_t);
    std::memcpy(changes_.host + at, tables.entries.data() + entry, bytes);
    items[list.count++] = {changes_.device + at, reinterpret_cast<std::byte*>(tables_ + entry),
                           static_cast<std::int64_t>(bytes)};
    list.most_bytes = std::max(list.most_bytes, static_cast<std::int64_t>(bytes));
    at += bytes;
  }
  send(changes_, at);
  list.items = reinterpret_cast<const kernels::CopyItem*>(changes_.device);
  device_->run(list);
  uploads_.table_rows += list.count;
}

void DeviceForward::plan(std::span<const ForwardChunk> chunks) {
  if (chunks.size() > limits_.max_sequences)
    throw DeviceError("a batch of " + std::to_string(chunks.size()) +
                      " sequences; the device has " + std::to_string(limits_.max_sequences) +
                      " rows");
  states_ = working_ = nullptr;
  tokens_ = kept_ = samples_ = longest_ = 0;
  std::size_t end = 0;        // of the longest sequence
  std::uint32_t highest = 0;  // row
  decode_ = true;
  std::fill(of_row_.begin(), of_row_.end(), nullptr);
  auto const use = [&](const StateRow& row) {
    bool const in_unit = row.arena->units == nullptr;
    const StateArena* const units = in_unit ? row.arena : row.arena->units;
    if ((states_ != nullptr && states_ != units) ||
        (!in_unit && (!at_grid() || (working_ != nullptr && working_ != row.arena))))
      throw DeviceError("the states of a batch lie in two arenas; the device takes one");
    if ((units->ssm_dtype == Dtype::f32) != (options_.carry == Carry::fp32))
      throw DeviceError(std::string("the units' states are not of the type that carry ") +
                        carry_name(options_.carry) + " stores");
    states_ = units;
    if (!in_unit) working_ = row.arena;
  };
  for (const ForwardChunk& chunk : chunks) {
    if (chunk.row < 0 || static_cast<std::size_t>(chunk.row) >= of_row_.size() ||
        of_row_[static_cast<std::size_t>(chunk.row)] != nullptr)
      throw DeviceError("a sequence of the batch has no row of the tables to itself");
    of_row_[static_cast<std::size_t>(chunk.row)] = &chunk;
    highest = std::max(highest, static_cast<std::uint32_t>(chunk.row));
    end = std::max(end, chunk.begin + chunk.tokens.size());
    if (chunk.targets.empty())
      throw DeviceError("a sequence of the batch keeps no state; the device needs a place for it");
    auto const count = static_cast<std::uint32_t>(chunk.tokens.size());
    tokens_ += count;
    kept_ += static_cast<std::uint32_t>(chunk.targets.size());
    samples_ += chunk.logits ? 1 : 0;
    longest_ = std::max(longest_, count);
    decode_ = decode_ && count == 1 && chunk.targets.size() == 1;
    if (chunk.begin > 0) use(chunk.source);
    for (const StateTarget& target : chunk.targets) use(target.row);
  }
  if (end > limits_.max_position)
    throw DeviceError("a sequence of " + std::to_string(end) +
                      " tokens; the device has angles for " + std::to_string(limits_.max_position));
  rows_ = decode_ ? padded_rows(highest + 1, limits_.max_sequences) : highest + 1;
  // Few sequences keep a GPU busy only with their spans, or even splits, side by side.
  std::uint32_t const longest = rounded_tokens(static_cast<Tokens>(end));
  bool const few = decode_ && rows_ <= side_by_side_rows() && longest > kernels::split_tokens;
  attention_tokens_ = few ? longest : 0;
  piece_tokens_ =
      rows_ * model_.config.kv_heads * kernels::quotient_up(longest, kernels::span_tokens) <
              few_ctas
          ? kernels::split_tokens
          : kernels::span_tokens;
}

std::int32_t* DeviceForward::part(std::size_t count, const std::int32_t** on_device) {
  std::size_t const at = used_;
  used_ += count;
  if (used_ * sizeof(std::int32_t) > arrays_.bytes)
    throw DeviceError("a step leaves more states than the tables have checkpoints");
  *on_device = reinterpret_cast<const std::int32_t*>(arrays_.device) + at;
  return reinterpret_cast<std::int32_t*>(arrays_.host) + at;
}

void DeviceForward::write_decode(std::span<const ForwardChunk> chunks) {
  std::int32_t* const ids = part(rows_, &at_.ids);
  std::int32_t* const positions = part(rows_, &at_.positions);
  std::int32_t* sampled = part(rows_, &at_.sampled);
  std::int32_t* const source = at_grid() ? part(rows_, &at_.working_source) : nullptr;
  std::int32_t* const destination = at_grid() ? part(rows_, &at_.working_destination) : nullptr;
  std::fill(ids, ids + used_, -1);
  for (const ForwardChunk& chunk : chunks) {
    if (at_grid()) {
      if (chunk.begin > 0) source[chunk.row] = working_page(chunk.source);
      destination[chunk.row] = working_page(chunk.targets.front().row);
    }
    ids[chunk.row] = static_cast<std::int32_t>(chunk.tokens.front());
    positions[chunk.row] = static_cast<std::int32_t>(chunk.begin);
    if (chunk.logits) *sampled++ = chunk.row;
  }
  tokens_ = samples_ = rows_;
}

void DeviceForward::write_runs(std::span<const ForwardChunk> chunks) {
  std::size_t const members = shape_.members;
  std::size_t const lines = shape_.lines;
  std::int32_t* const ids = part(tokens_, &at_.ids);
  std::int32_t* const positions = part(tokens_, &at_.positions);
  std::int32_t* const token_rows = part(tokens_, &at_.token_rows);
  std::int32_t* const first = part(rows_ + std::size_t{1}, &at_.first);
  std::int32_t* const begin = part(rows_, &at_.begin);
  std::int32_t* const kept_first = part(rows_ + std::size_t{1}, &at_.kept_first);
  std::int32_t* const kept_after = part(kept_, &at_.kept_after);
  std::int32_t* pages = part(kept_ * members, &at_.kept_pages);
  std::int32_t* line = part(kept_ * lines, &at_.kept_lines);
  std::int32_t* sampled = part(samples_, &at_.sampled);
  std::int32_t* const source = at_grid() ? part(rows_, &at_.working_source) : nullptr;
  std::int32_t* const destination = at_grid() ? part(kept_, &at_.working_destination) : nullptr;
  std::int32_t token = 0;
  std::int32_t kept = 0;
  for (std::uint32_t r = 0; r < rows_; ++r) {
    first[r] = token;
    kept_first[r] = kept;
    begin[r] = -1;
    if (at_grid()) source[r] = -1;
    const ForwardChunk* const chunk = of_row_[r];
    if (chunk == nullptr) continue;
    begin[r] = static_cast<std::int32_t>(chunk->begin);
    if (at_grid() && chunk->begin > 0) source[r] = working_page(chunk->source);
    for (std::size_t t = 0; t < chunk->tokens.size(); ++t, ++token) {
      ids[token] = static_cast<std::int32_t>(chunk->tokens[t]);
      positions[token] = static_cast<std::int32_t>(chunk->begin + t);
      token_rows[token] = chunk->row;
    }
    for (const StateTarget& target : chunk->targets) {
      std::int32_t const working = working_page(target.row);
      if (at_grid()) destination[kept] = working;
      kept_after[kept++] = static_cast<std::int32_t>(target.boundary - chunk->begin);
      pages = working >= 0 ? std::fill_n(pages, members, -1)
                           : std::copy_n(target.row.pages.begin(), members, pages);
      line = std::copy_n(target.row.lines.begin(), lines, line);
    }
  }
  first[rows_] = token;
  kept_first[rows_] = kept;
  for (const ForwardChunk& chunk : chunks)
    if (chunk.logits) *sampled++ = first[chunk.row + 1] - 1;
}

void DeviceForward::linear(const Weights& w, std::uint32_t rows, std::uint32_t columns,
                           const float* x, float* y, std::int64_t y_stride, std::uint32_t tokens,
                           double scale, double post) {
  if (options_.linear == LinearForm::exact) {
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
    return device_->run(job);
  }
  GemmJob job;
  job.weights = w.data;
  job.x = x;
  job.y = y;
  job.y_stride = y_stride;
  job.scale = static_cast<float>(w.bias == nullptr ? scale * post : scale);
  job.tokens = tokens;
  job.rows = rows;
  job.columns = columns;
  device_->run(job);
  if (w.bias == nullptr) return;
  kernels::ScaleRows rest;
  rest.x = {y, y_stride};
  rest.bias = w.bias;
  rest.post = static_cast<float>(post);
  rest.rows = tokens;
  rest.n = rows;
  device_->run(rest);
}

void DeviceForward::run(std::span<const ForwardChunk> chunks, const KvArena& kv,
                        std::span<float> logits) {
  check_batch(chunks, kv, model_.config, options_.max_tokens, logits.size());
  std::uint32_t const rows = compute(chunks, kv, nullptr);
  finish(logits.data(), logits_, std::size_t{rows} * model_.config.vocabulary * sizeof(float));
}

void DeviceForward::choose(std::span<const ForwardChunk> chunks, const KvArena& kv,
                           const SamplingOptions& sampling, std::span<TokenId> choices) {
  check_batch(chunks, kv, model_.config, options_.max_tokens,
              choices.size() * model_.config.vocabulary);
  std::uint32_t const rows = compute(chunks, kv, &sampling);
  finish(choices.data(), choices_, rows * sizeof(TokenId));
}

void DeviceForward::finish(void* to, const void* from, std::size_t bytes) {
  auto const start = std::chrono::steady_clock::now();
  if (bytes > 0)
    device_->download(to, from, bytes);
  else
    device_->wait();
  waited_ += std::chrono::steady_clock::now() - start;
  changes_.busy = arrays_.busy = draws_.busy = false;
}

void DeviceForward::write_draws(std::span<const ForwardChunk> chunks,
                                const SamplingOptions& sampling) {
  std::size_t const bytes = limits_.max_sequences * sizeof(kernels::SamplingRow);
  if (draws_.bytes == 0) draws_ = staged(bytes);
  auto* row = reinterpret_cast<kernels::SamplingRow*>(writable(draws_));
  std::fill_n(row, limits_.max_sequences, kernels::SamplingRow{});
  for (const ForwardChunk& chunk : chunks)
    if (chunk.logits)
      *row++ = {static_cast<float>(sampling.temperature), sampling.top_k, sampling.top_p,
                sampling_random(sampling.seed, chunk.end())};
  send(draws_, bytes);
}

std::uint32_t DeviceForward::compute(std::span<const ForwardChunk> chunks, const KvArena& kv,
                                     const SamplingOptions* sampling) {
  if (chunks.empty()) return 0;
  if (tables_ == nullptr) throw DeviceError("a device computes with tables; it got none");
  plan(chunks);
  std::uint32_t const rows = samples_;
  wanted_ = sampling == nullptr            ? Wanted::logits
            : !(sampling->temperature > 0) ? Wanted::greedy
                                           : Wanted::drawn;
  if (wanted_ == Wanted::drawn) write_draws(chunks, *sampling);
  used_ = 0;
  writable(arrays_);
  if (decode_)
    write_decode(chunks);
  else
    write_runs(chunks);
  send(arrays_, used_ * sizeof(std::int32_t));
  if (!decode_) {
    queue(kv);
    return rows;
  }
  RecordingKey const key = {
      std::uint64_t{rows_} << 32 | attention_tokens_ << 2 | static_cast<unsigned>(wanted_),
      reinterpret_cast<std::uintptr_t>(kv.blocks.base),
      reinterpret_cast<std::uintptr_t>(working_ != nullptr ? working_ : states_)};
  device_->run_recorded(key, [this, &kv] { queue(kv); });
  return rows;
}

void DeviceForward::queue(const KvArena& kv) {
  FalconH1Config const& c = model_.config;
  kernels::EmbeddingJob embed;
  embed.table = embed_.data;
  embed.type = embed_.type;
  embed.ids = at_.ids;
  embed.multiplier = static_cast<float>(c.embedding_multiplier);
  embed.out = {h_, c.hidden};
  embed.rows = tokens_;
  embed.n = c.hidden;
  device_->run(embed);
  for (std::size_t l = 0; l < layers_.size(); ++l) queue_layer(l, kv);
  if (samples_ == 0) return;

  kernels::RmsNormJob norm;
  norm.h = {h_, c.hidden};
  if (!layers_.empty()) norm.a = {att_, c.hidden};
  norm.weight = final_norm_;
  norm.epsilon = static_cast<float>(c.norm_epsilon);
  norm.out = u_;
  norm.type = input_type();
  norm.out_stride = c.hidden;
  norm.rows_of = at_.sampled;
  norm.rows = samples_;
  norm.n = c.hidden;
  device_->run(norm);
  linear(lm_head_, c.vocabulary, c.hidden, u_, logits_, c.vocabulary, samples_,
         c.lm_head_multiplier, 1);
  queue_choices();
}

void DeviceForward::queue_choices() {
  FalconH1Config const& c = model_.config;
  if (wanted_ == Wanted::logits) return;
  if (wanted_ == Wanted::drawn) {
    kernels::SampleRows draw;
    draw.logits = {logits_, c.vocabulary};
    draw.options = reinterpret_cast<const kernels::SamplingRow*>(draws_.device);
    draw.ids = choices_;
    draw.scratch = {logits_, c.vocabulary};
    draw.rows = samples_;
    draw.n = c.vocabulary;
    return device_->run(draw);
  }
  kernels::GreedyRows greedy;
  greedy.logits = {logits_, c.vocabulary};
  greedy.ids = choices_;
  greedy.candidates = candidates_;
  greedy.rows = samples_;
  greedy.n = c.vocabulary;
  device_->run(greedy);
}

kernels::WorkingStates<> DeviceForward::working_states(std::size_t l,
                                                       const SsmPages<>& unit) const {
  if (!at_grid()) return {};
  kernels::WorkingStates<> working;
  // One page a state, also where a batch has no working state and with it no address but the
  // unit's.
  Bytes const head_bytes = 2 * unit.map.head_bytes;
  working.source = {
      unit.base, nullptr, 1, 0, {head_bytes, head_bytes, model_.config.ssm_heads, 1, 1}};
  if (working_ != nullptr) {
    working.source = working_->ssm;
    working.source.base += static_cast<std::int64_t>(l) * working_->ssm_layer_stride;
  }
  working.source.row_stride = 1;
  working.destination = working.source;
  working.source.pages = at_.working_source;
  working.destination.pages = at_.working_destination;
  working.position = decode_ ? at_.positions : at_.begin;
  working.every = grid_tokens;
  return working;
}

void DeviceForward::queue_layer(std::size_t l, const KvArena& kv) {
  FalconH1Config const& c = model_.config;
  Layer const& w = layers_[l];
  auto const epsilon = static_cast<float>(c.norm_epsilon);
  std::uint32_t const tokens = tokens_;
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
  norm.type = input_type();
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
  blocks.units = tables_ + shape_.attention();
  blocks.row_stride = blocks.tail_stride = shape_.row_entries();
  blocks.tails = tables_ + BatchShape::tail();
  kernels::RotationJob rotation;
  rotation.q = {q_, c.query_width()};
  rotation.q_out = {q_, c.query_width()};
  rotation.k = {kv_, both};
  rotation.v = {kv_ + c.kv_width(), both};
  rotation.cosines = cosines_;
  rotation.sines = sines_;
  rotation.positions = at_.positions;
  rotation.table_rows = decode_ ? nullptr : at_.token_rows;
  rotation.to = {blocks, tables_ + BatchShape::valid_until(), shape_.row_entries()};
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
  // States in rows of a table: `entries` from one row to the next.
  auto const pages = [&](const std::int32_t* table, std::int64_t entries) {
    SsmPages<> view = states_->ssm;
    view.base += offset * states_->ssm_layer_stride;
    view.pages = table;
    view.row_stride = entries;
    return view;
  };
  auto const lines = [&](const std::int32_t* table, std::int64_t entries) {
    ConvLines view = states_->conv;
    view.base += offset * states_->conv_layer_stride;
    view.lines = table;
    view.row_stride = entries;
    return view;
  };
  std::int64_t const row = shape_.row_entries();
  auto const source = tables_ + shape_.source();
  auto const destination = tables_ + shape_.destination();
  kernels::StateUpdateJob update;
  update.in = in;
  update.source = pages(source, row);
  update.destination = pages(destination, row);
  update.sequences = rows_;
  update.state = c.ssm_state;
  update.type = element_type(states_->ssm_dtype);
  update.working = working_states(l, update.source);
  if (decode_) {
    kernels::ConvolutionStepJob step;
    static_cast<kernels::ConvolutionInputs&>(step) = conv;
    step.source = lines(source + shape_.members, row);
    step.destination = lines(destination + shape_.members, row);
    step.sequences = rows_;
    step.type = element_type(states_->conv_dtype);
    device_->run(step);
  } else {
    kernels::ConvolutionRunsJob runs;
    static_cast<kernels::ConvolutionInputs&>(runs) = conv;
    runs.token_begin = at_.first;
    runs.source = lines(source + shape_.members, row);
    runs.store_begin = at_.kept_first;
    runs.store_after = at_.kept_after;
    runs.stores = lines(at_.kept_lines, shape_.lines);
    runs.sequences = rows_;
    runs.most_tokens = longest_;
    runs.type = element_type(states_->conv_dtype);
    device_->run(runs);
  }
  if (decode_ && kernels::with_kernel(update, [](const auto&) {})) {
    device_->run(update);
  } else {
    // A shape that the decode kernel does not take is a run of one token a row.
    kernels::StateScanJob scan;
    scan.in = in;
    scan.runs = {decode_ ? counted_ : at_.first, rows_};
    scan.source = update.source;
    scan.kept = decode_ ? kernels::KeptStates<>{update.destination, counted_, ones_}
                        : kernels::KeptStates<>{pages(at_.kept_pages, shape_.members),
                                                at_.kept_first, at_.kept_after};
    scan.state = c.ssm_state;
    scan.type = update.type;
    scan.working = update.working;
    device_->run(scan);
  }

  kernels::AttentionJob attention;
  attention.batch.blocks = blocks;
  attention.batch.position = decode_ ? at_.positions : at_.begin;
  attention.batch.first = decode_ ? nullptr : at_.first;
  attention.batch.q = q_;
  attention.batch.q_stride = c.query_width();
  attention.batch.out = o_;
  attention.batch.out_stride = c.query_width();
  attention.batch.scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  attention.batch.sequences = rows_;
  attention.batch.kv_heads = c.kv_heads;
  attention.batch.group = c.heads / c.kv_heads;
  attention.type = element_type(kv.dtype);
  attention.head_dim = c.head_dim;
  attention.most_queries = longest_;
  if (attention_tokens_ != 0) {
    attention.results = kernels::piece_results(pieces_, rows_, c.heads, c.head_dim,
                                               attention_tokens_, piece_tokens_);
    if (!kernels::with_kernel(attention, [](const auto&) {})) attention.results = {};
  }
  device_->run(attention);

  const float* attended = o_;
  if (options_.linear == LinearForm::cublaslt) {
    kernels::RoundRows round;
    round.x = {o_, c.query_width()};
    round.out = reinterpret_cast<kernels::Bf16*>(u_);
    round.out_stride = c.query_width();
    round.rows = tokens;
    round.n = c.query_width();
    device_->run(round);
    attended = u_;
  }
  linear(w.o, c.hidden, c.query_width(), attended, att_, c.hidden, tokens, 1,
         c.attention_out_multiplier);

  kernels::GatedNormJob gated;
  gated.y = {y_, c.ssm_width()};
  gated.z = {p_, c.in_proj_rows()};
  gated.weight = w.ssm_norm;
  gated.norm_before_gate = c.norm_before_gate;
  gated.epsilon = epsilon;
  gated.out = u_;
  gated.type = input_type();
  gated.out_stride = c.ssm_width();
  gated.rows = tokens;
  gated.width = c.ssm_width();
  gated.groups = c.ssm_groups;
  device_->run(gated);
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
  product.out = u_;
  product.type = input_type();
  product.out_stride = c.intermediate;
  product.rows = tokens;
  product.n = c.intermediate;
  device_->run(product);
  linear(w.down, c.hidden, c.intermediate, u_, att_, c.hidden, tokens, 1, c.down_multiplier);
}

}  // namespace hybridstate::runtime::device
