// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <hybridstate/batch/tables.hpp>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor/batch_rows.hpp"
#include "executor/device_error.hpp"
#include "executor/forward_pass.hpp"
#include "executor/sampling.hpp"
#include "executor/step_plan.hpp"
#include "executor/unit_memory.hpp"
#include "scheduler/content.hpp"

namespace hybridstate::runtime {

/// Sees what a step is about to compute, and its logits before tokens are sampled. The default sees
/// nothing. (Tests change a chunk here, to show that the change is noticed.)
struct NullWitness {
  void chunk(const Chunk&, ForwardChunk&) noexcept {}
  void logits(std::uint32_t, Tokens, std::span<const float>) noexcept {}
};

/// How long steps last on the scheduler's clock.
enum class StepTime : std::uint8_t {
  measured,  ///< wall time, for a real clock
  unit,      ///< one millisecond each, so that schedules do not depend on the machine
};

/// Executes steps with a model, on the CPU or a device (ForwardOptions::compute), in the
/// organization's units: attention through block tables, the
/// recurrent step from source to destination member pages, the convolution through line ids.
/// Nothing is gathered into a contiguous state; a resume copies nothing.
///
/// With Carry::bf16_at_grid, the SSM states that sequences write between kept boundaries live in an
/// FP32 arena of their own (one state a sequence); at a kept boundary, where the state was just
/// rounded, it is stored in the organization's unit and read back from there. Checkpoints must then
/// lie at multiples of grid_tokens; DeviceError otherwise.
template <joint_cache Cache, class Witness = NullWitness>
class ModelExecutor {
 public:
  using Organization = typename Cache::OrganizationType;

  ModelExecutor(const Cache& cache, ModelTensors model, const ForwardOptions& options,
                TokenContent& content, const SamplingOptions& sampling, StepTime time,
                Witness& witness)
      : ModelExecutor(cache, make_forward_pass(std::move(model), options, needs(cache, options)),
                      options, content, sampling, time, witness) {}
  /// With a forward pass of the caller's, made for needs() and the same options.
  ModelExecutor(const Cache& cache, std::unique_ptr<ForwardPass> forward,
                const ForwardOptions& options, TokenContent& content,
                const SamplingOptions& sampling, StepTime time, Witness& witness)
      : cache_(cache),
        forward_(std::move(forward)),
        memory_(cache.organization(), options.carry == Carry::fp32, *forward_),
        content_(content),
        sampling_(sampling),
        time_(time),
        witness_(witness),
        entries_(static_cast<std::size_t>(
            batch_shape(cache.organization(), limits(cache, options)).entries())),
        tables_(cache.organization(), limits(cache, options), entries_),
        rows_(cache.options().max_sequences) {
    keeps_working_ = keeps_working(options);
    Tokens const grid = cache.checkpoint_tokens();
    if (options.carry == Carry::bf16_at_grid && grid % grid_tokens != 0)
      throw DeviceError("carry bf16-at-grid rounds states at multiples of " +
                        std::to_string(grid_tokens) + " tokens, but checkpoints lie every " +
                        std::to_string(grid) + "; choose a multiple");
    if (has_arena(options)) build_arena();
  }

  static ForwardLimits needs(const Cache& cache, const ForwardOptions& options) {
    return {cache.options().max_sequences,
            batch_shape(cache.organization(), limits(cache, options)).blocks * cache.block_tokens(),
            UnitMemory<Organization>::needed_bytes(cache.organization()) +
                (has_arena(options) ? arena_bytes(cache) : 0)};
  }

  const UnitMemory<Organization>& memory() const noexcept { return memory_; }
  const ForwardPass& forward() const noexcept { return *forward_; }
  /// Bytes of the FP32 working states outside the pools; 0 unless Carry::bf16_at_grid (or C2
  /// broken).
  std::size_t arena_bytes() const noexcept { return uses_arena() ? arena_bytes(cache_) : 0; }

  std::int64_t run(const StepPlan& plan) {
    auto const start = std::chrono::steady_clock::now();
    for (BlockCopy const& copy : cache_.copies())
      memory_.copy_tokens(cache_.place(copy.from), cache_.place(copy.to), copy.tokens);
    build(plan);
    if constexpr (std::is_same_v<Witness, NullWitness>)
      choose(plan);
    else
      sample(plan);
    if (time_ == StepTime::unit) return 1'000'000;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start)
        .count();
  }

 private:
  static BatchLimits limits(const Cache& cache, const ForwardOptions& options) {
    return {cache.options().max_sequences, cache.options().max_sequence_tokens,
            options.max_tokens / cache.checkpoint_tokens() + 1};
  }
  static bool keeps_working(const ForwardOptions& options) noexcept {
    return options.broken == Condition::lossless_checkpoint && options.carry != Carry::fp32;
  }
  static bool has_arena(const ForwardOptions& options) noexcept {
    return options.carry == Carry::bf16_at_grid || keeps_working(options);
  }
  static std::size_t arena_bytes(const Cache& cache) noexcept {
    auto const& layout = cache.organization().layout();
    return static_cast<std::size_t>(working_state_bytes(layout.model()) *
                                    cache.options().max_sequences * layout.group_layers());
  }

  /// Nobody wants to see logits: they stay where they are.
  void choose(const StepPlan& plan) {
    choices_.resize(samples_);
    forward_->choose(chunks_, memory_.kv(), sampling_, choices_);
    std::size_t next = 0;
    for (Chunk const& c : plan.chunks)
      if (c.samples) content_.append(c.request, choices_[next++]);
  }
  void sample(const StepPlan& plan) {
    std::size_t const width = forward_->config().vocabulary;
    logits_.resize(samples_ * width);
    forward_->run(chunks_, memory_.kv(), logits_);
    std::size_t row = 0;
    for (Chunk const& c : plan.chunks) {
      if (!c.samples) continue;
      std::span<const float> const logits = std::span(logits_).subspan(width * row++, width);
      Tokens const position = c.begin + c.count;
      witness_.logits(c.request, position, logits);
      content_.append(c.request, sampler_.sample(logits, sampling_, position));
    }
  }

  void build(const StepPlan& plan) {
    scheduled_.clear();
    targets_.clear();
    chunks_.clear();
    for (Chunk const& c : plan.chunks) scheduled_.push_back({c.sequence});
    rows_.assign(scheduled_);
    if (BatchResult const built = tables_.build(cache_, scheduled_); !built)
      throw DeviceError("chunk " + std::to_string(built.item) +
                        " of the step: " + sentence(built.refusal));
    forward_->update_tables({tables_.shape(), tables_.entries(), tables_.changed()});
    // A chunk keeps a span of these: they must not move.
    std::size_t most = 0;
    for (Chunk const& c : plan.chunks) most += cache_.states(c.sequence).size() + 1;
    targets_.reserve(most);
    samples_ = 0;
    for (Chunk const& c : plan.chunks) {
      ForwardChunk f;
      f.row = scheduled_[chunks_.size()].row;
      BatchRow const row = tables_.row(f.row);
      f.tokens = content_.tokens(c.request).subspan(c.begin, c.count);
      f.begin = c.begin;
      f.kv_valid_until = cache_.kv_valid_until(c.sequence);
      f.blocks = row.blocks().first(cache_.blocks(c.sequence).size());
      f.tail = row.tail();
      if (cache_.source(c.sequence))
        f.source = in_arena(c) ? arena_row(c.sequence, row.source()) : memory_.row(row.source());
      std::size_t const first = targets_.size();
      auto const held = cache_.states(c.sequence).subspan(cache_.first_target(c.sequence));
      for (std::uint32_t k = 0; k + 1 < held.size(); ++k)
        targets_.push_back({held[k].boundary, memory_.row(row.checkpoint(k))});
      add_destination(c, held.back(), row.destination());
      f.targets = std::span(targets_).subspan(first);
      f.logits = c.samples;
      f.decode = c.decode;
      samples_ += c.samples ? 1 : 0;
      witness_.chunk(c, f);
      chunks_.push_back(f);
    }
  }

  /// In the unit, in the arena, or in both: kept boundaries are in the unit; only a state between
  /// them needs FP32.
  void add_destination(const Chunk& c, const HeldState& held, const BatchRow::State& unit) {
    bool const kept = !uses_arena() || cache_.published(held.state);
    bool const in_arena = uses_arena() && (!kept || keeps_working_);
    if (kept) targets_.push_back({held.boundary, memory_.row(unit)});
    if (in_arena) targets_.push_back({held.boundary, arena_row(c.sequence, unit)});
    if (uses_arena())
      arena_owner_[c.sequence.at()] = in_arena ? Owner{c.request, c.begin + c.count} : Owner{};
  }

  // --- FP32 working states -----------------------------------------------------------------------

  struct Owner {
    std::uint32_t request = 0xffffffffU;
    Tokens position = 0;
  };

  bool uses_arena() const noexcept { return !arena_owner_.empty(); }
  bool in_arena(const Chunk& c) const noexcept {
    if (!uses_arena()) return false;
    Owner const& owner = arena_owner_[c.sequence.at()];
    return owner.request == c.request && owner.position == c.begin;
  }
  void build_arena() {
    auto const& layout = cache_.organization().layout();
    auto const sequences = cache_.options().max_sequences;
    Bytes const state = working_state_bytes(layout.model());
    auto const stride = static_cast<std::int64_t>(state);
    arena_owner_.resize(sequences);
    arena_ = memory_.states();
    arena_.units = &memory_.states();
    MemberMap one = composite_members(layout);
    one.head_bytes = one.split_bytes = state / layout.ssm_heads();
    arena_.ssm = {forward_->allocate(arena_bytes(cache_)), nullptr, 0, stride, one};
    arena_.ssm_layer_stride = stride * sequences;
    arena_.ssm_dtype = Dtype::f32;
    for (std::uint32_t i = 0; i < sequences; ++i)
      arena_ids_.push_back(static_cast<std::int32_t>(i));
  }
  StateRow arena_row(SequenceHandle s, const BatchRow::State& unit) const noexcept {
    return {&arena_, {&arena_ids_[s.at()], 1}, unit.lines};
  }

  const Cache& cache_;
  std::unique_ptr<ForwardPass> forward_;
  UnitMemory<Organization> memory_;
  TokenContent& content_;
  SamplingOptions sampling_;
  Sampler sampler_;
  StepTime time_;
  Witness& witness_;
  bool keeps_working_ = false;  ///< FP32 beside a stored checkpoint: a broken condition C2
  std::vector<std::int32_t> entries_;
  BatchTables<Organization> tables_;
  BatchRows rows_;
  std::vector<ScheduledSequence> scheduled_;
  std::vector<ForwardChunk> chunks_;
  std::vector<StateTarget> targets_;
  std::size_t samples_ = 0;  ///< of the step
  std::vector<float> logits_;
  std::vector<TokenId> choices_;
  StateArena arena_;
  std::vector<Owner> arena_owner_;
  std::vector<std::int32_t> arena_ids_;
};

}  // namespace hybridstate::runtime
