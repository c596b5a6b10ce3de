// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <hybridstate/cache/types.hpp>
#include <hybridstate/policy/admission.hpp>
#include <span>

HYBRIDSTATE_NAMESPACE_BEGIN

/// What a scheduler needs of a joint cache, in groups so that a failed constraint names the part
/// that is missing. Schedulers, executors and conformance tests are written against these, so that
/// an engine can put its own manager in the place of JointCache.
template <class C>
concept joint_cache_steps = requires(C& c, const C& seen, Step step) {
  { c.begin_step() } noexcept -> std::same_as<Step>;
  { c.complete(step) } noexcept;
  { c.invalidate_since(step) } noexcept;
  { seen.version() } noexcept -> std::convertible_to<std::uint64_t>;
};

template <class C>
concept joint_cache_requests =
    requires(C& c, const C& seen, const Prompt& prompt, const AdmitRequest& request,
             const FixedHeadroom& gate, const Match* match, SequenceHandle seq) {
      { c.enter(prompt, std::uint64_t{}, std::int64_t{}) } noexcept -> std::same_as<Entry>;
      { seen.lookup(prompt) } noexcept -> std::same_as<Match>;
      { seen.fits_alone(Tokens{}) } noexcept -> std::same_as<Shortage>;
      { c.admit(prompt, request, gate, match) } noexcept -> std::same_as<Admission>;
      { c.resume(seq, prompt, request, gate, match) } noexcept -> std::same_as<Admission>;
      { c.preempt(seq) } noexcept;
      { c.release(seq) } noexcept;
      { c.fork(seq, std::uint64_t{}) } noexcept -> std::same_as<Admission>;
    };

template <class C>
concept joint_cache_writes =
    requires(C& c, const C& seen, SequenceHandle seq, Tokens tokens, const Committed& done) {
      { c.reserve(seq, tokens) } noexcept -> std::same_as<Shortage>;
      { c.commit(seq, done, std::int64_t{}) } noexcept;
      { c.abort(seq) } noexcept;
      { c.retire(seq) } noexcept;
      { seen.copies() } noexcept -> std::same_as<std::span<const BlockCopy>>;
    };

template <class C>
concept joint_cache_facts = requires(C& c, const C& seen, SequenceHandle seq, const Prompt& prompt,
                                     AttentionHandle a, StateHandle s) {
  { seen.block_tokens() } noexcept -> std::same_as<Tokens>;
  { seen.checkpoint_tokens() } noexcept -> std::same_as<Tokens>;
  { seen.running() } noexcept -> std::same_as<std::uint32_t>;
  { seen.position(seq) } noexcept -> std::same_as<Tokens>;
  { seen.kv_valid_until(seq) } noexcept -> std::same_as<Tokens>;
  { seen.blocks(seq) } noexcept -> std::same_as<std::span<const AttentionHandle>>;
  { seen.place(a) } noexcept -> std::same_as<AttentionPlace>;
  { seen.states(seq) } noexcept -> std::same_as<std::span<const HeldState>>;
  { seen.source(seq) } noexcept -> std::same_as<StateHandle>;
  { seen.first_target(seq) } noexcept -> std::same_as<std::uint32_t>;
  { seen.references(a) } noexcept -> std::same_as<std::uint32_t>;
  { seen.references(s) } noexcept -> std::same_as<std::uint32_t>;
  { seen.published_step(s) } noexcept -> std::same_as<Step>;
  { seen.usage() } noexcept -> std::same_as<Usage>;
  { seen.available() } noexcept -> std::same_as<PoolUnits>;
  { seen.counters() } noexcept -> std::convertible_to<const CacheCounters&>;
  { c.invalidate(prompt, Tokens{}) } noexcept;
  { c.clear() } noexcept;
};

template <class C>
concept joint_cache = joint_cache_steps<C> && joint_cache_requests<C> && joint_cache_writes<C> &&
                      joint_cache_facts<C>;

HYBRIDSTATE_NAMESPACE_END
