// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <hybridstate/cache/concept.hpp>
#include <hybridstate/cache/metrics.hpp>
#include <hybridstate/cache/types.hpp>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/list.hpp>
#include <hybridstate/core/observer.hpp>
#include <hybridstate/index/prefix_index.hpp>
#include <hybridstate/organization/concept.hpp>
#include <hybridstate/policy/admission.hpp>
#include <hybridstate/policy/placement.hpp>
#include <hybridstate/policy/reclaim_order.hpp>
#include <hybridstate/pool/tail_slabs.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

HYBRIDSTATE_NAMESPACE_BEGIN

/// Joint checkpoints over one organization: discovery, references, invalidation, in one place for
/// every layout of the bytes.
///
/// A sequence goes admit -> (reserve -> commit)* -> release, with preempt/resume in between. One
/// thread writes; snapshot() may be read from others. Nothing allocates or throws after
/// construction, and a call that fails leaves everything as it was.
template <memory_organization Organization, reclaim_order_base ReclaimOrder = PaperOrder,
          cache_observer Observer = NullObserver>
class JointCache {
 public:
  using OrganizationType = Organization;
  using OrderType = ReclaimOrder;
  static constexpr int pools = Organization::pools;

  JointCache(Organization organization, CacheOptions options = {}, ReclaimOrder order = {},
             Observer observer = {})
      : options_(options),
        organization_(std::move(organization)),
        order_(std::move(order)),
        observer_(std::move(observer)) {
    if (auto sentence = problem(organization_, options); !sentence.empty())
      fail_configuration(sentence);
    build();
  }

  static Result<JointCache> create(Organization organization, CacheOptions options = {},
                                   ReclaimOrder order = {}, Observer observer = {}) {
    if (auto sentence = problem(organization, options); !sentence.empty())
      return Failure{std::move(sentence)};
    return JointCache(std::move(organization), options, std::move(order), std::move(observer));
  }

  /// One sentence when the options cannot work, else empty.
  static std::string problem(const Organization& o, const CacheOptions& options) {
    if (options.max_sequences == 0 || options.max_sequences > 0x7fffffffU)
      return "JointCache: max_sequences is " + std::to_string(options.max_sequences) +
             "; it must be between 1 and 2147483647";
    if (options.placement.kind == PlacementKind::every_kth && options.placement.every == 0)
      return "JointCache: placement keeps every 0th boundary; k must be at least 1";
    std::uint32_t const most_distinct = max_counted_requesters + 1;
    if (options.retention.distinct == 0 || options.retention.distinct > most_distinct)
      return "JointCache: retention.distinct is " + std::to_string(options.retention.distinct) +
             "; requesters are told apart from 1 to " + std::to_string(most_distinct);
    if (options.pinning.distinct > most_distinct)
      return "JointCache: pinning.distinct is " + std::to_string(options.pinning.distinct) +
             "; it must be 0 (off) or a count from 1 to " + std::to_string(most_distinct);
    if (!(options.pinning.protection_budget >= 0 && options.pinning.protection_budget <= 1))
      return "JointCache: pinning.protection_budget must be a fraction of each pool, 0 to 1";
    if (node_capacity(o, options) > 0x3fffffffULL)
      return "JointCache: " + std::to_string(node_capacity(o, options)) +
             " prefix nodes would be needed; at most 1073741823 are possible, so lower "
             "bare_nodes_per_unit or the number of units";
    return tail_problem(o, options.tail_tokens);
  }

  // --- steps -------------------------------------------------------------------------------------

  /// Opens the next step; what the previous one published is no longer pending.
  Step begin_step() noexcept {
    ++step_;
    ++version_;
    copies_ = 0;
    metrics_.store(step_, counters_);
    return step_;
  }
  Step current_step() const noexcept { return step_; }

  /// The device has finished step n: what was given back up to then may be taken again.
  void complete(Step n) noexcept {
    while (fence_list_.head != IndexLinks::end) {
      std::int32_t const i = fence_list_.head;
      if (fenced_at_[static_cast<std::size_t>(i)] > n) break;
      fence_links_.unlink(fence_list_, i);
      ++version_;
      ++freed_;
      if (i < blocks_capacity_)
        settle(AttentionHandle{i});
      else
        settle(StateHandle{i - blocks_capacity_});
    }
  }

  // --- requests ----------------------------------------------------------------------------------

  /// Once per request, when it first becomes head of the line: inserts nodes for its full prompt
  /// blocks and counts its demand on them. `now` is only stored.
  Entry enter(const Prompt& prompt, std::uint64_t requester, std::int64_t now = 0) noexcept {
    Entry entry;
    event({.kind = EventKind::enter,
           .request = requester,
           .salt = prompt.salt,
           .tokens = prompt.length});
    NodeIndex at = index_.root(prompt.salt, prompt.extra, now);
    if (!at) return entry;
    ++stamp_;
    Units const blocks = prompt.length / block_tokens();
    ++index_[at].holds;  // the walk must not lose its own path while it makes room
    bool known = true;
    for (Units i = 0; i < blocks; ++i) {
      BlockView const block = block_of(prompt, i);
      NodeIndex next = index_.find_child(at, block);
      if (!next) {
        if (known) exit_at(at, entry, now);
        known = false;
        next = index_.add_child(at, block, now);
        if (!next) break;
      } else if (known) {
        entry.known = (i + 1) * block_tokens();
      }
      ++index_[next].holds;
      let_go(at);
      at = next;
      if (index_.count_requester(at, requester) &&
          index_[at].distinct == options_.retention.distinct &&
          index_[at].depth * block_tokens() % checkpoint_tokens() == 0)
        ++counters_.eligible_boundaries;
    }
    if (known && entry.known > 0) {
      exit_at(at, entry, now);
      entry.split = false;  // the path ends here and leaves nothing
    }
    if constexpr (ReclaimOrder::counts_requests) {
      View view{*this};
      order_.entered(view, at);
    }
    let_go(at);
    // Deepest first, so that a parent is never less recent than its child.
    for (NodeIndex n = at; n; n = {index_[n].parent}) index_.touch(n, stamp_);
    return entry;
  }

  /// The deepest boundary at which the prompt can continue, and why not deeper. Changes nothing.
  Match lookup(const Prompt& prompt) const noexcept {
    Match m;
    m.version = version_;
    if (prompt.extra.size() > options_.key_bytes) {
      m.reason = MissReason::key_bytes;
      return m;
    }
    NodeIndex const at = index_.find_root(prompt.salt, prompt.extra);
    if (!at || prompt.length == 0) return m;
    Tokens const last = prompt.length - 1;  // the last token is always computed
    Tokens const block = block_tokens();
    Tokens const grid = checkpoint_tokens();
    Units const blocks = prompt.length / block;
    TokenId const* const tokens =
        index_.identity() == BlockIdentity::tokens ? prompt.tokens.data() : nullptr;
    BlockKey const* const keys = prompt.keys.empty() ? nullptr : prompt.keys.data();
    Step const now = step_;
    m.lookup = ++last_lookup_;
    // Nobody can be admitted with more blocks than a row has: then the first place is overwritten.
    AttentionHandle* passed = path_blocks_.data();
    std::ptrdiff_t const next_place = blocks <= row_blocks_ ? 1 : 0;
    Units idle = 0;
    bool contiguous = true;
    bool settled = true;
    auto const settle_above = [&](const PrefixNode& node) {
      m.settled = (node.depth - 1) * block;
      m.settled_idle = idle;
      if (node.depth > 1) m.raw_node = {node.parent};
      settled = false;
    };
    NodeIndex const deepest =
        index_.descend(at, blocks, keys, tokens, [&](NodeIndex n) HYBRIDSTATE_INLINE_LAMBDA {
          PrefixNode const& node = index_[n];
          if (node.oldest_unit >= 0 && contiguous) [[likely]] {
            Object const& o = blocks_[node.oldest_unit];
            if (o.published == now && settled) [[unlikely]]
              settle_above(node);
            idle += o.idle() ? 1U : 0U;
            *passed = {node.oldest_unit};
            passed += next_place;
          } else if (contiguous) {
            if (settled) settle_above(node);
            m.raw = (node.depth - 1) * block;
            contiguous = false;
          }
          if (node.oldest_state >= 0) [[unlikely]] {
            Tokens const end = node.depth * block;
            if (end > last) return;
            m.recurrent = end;
            if (!contiguous) return;
            m.joint = end;
            m.joint_idle = idle;
            m.joint_node = n;
            m.pending = !settled || pending(states_[node.oldest_state].published);
          }
        });
    if (contiguous) m.raw = index_[deepest].depth * block;
    if (settled) {
      m.settled = m.raw;
      m.settled_idle = idle;
      if (m.raw > 0) m.raw_node = deepest;
    }
    m.attention = std::min(m.raw, last) / grid * grid;
    if (m.recurrent > m.joint)
      m.reason = MissReason::attention;
    else if (m.attention > m.joint || (m.joint == 0 && m.raw > 0))
      m.reason = MissReason::checkpoint;
    else if (m.joint > 0)
      m.reason = MissReason::none;
    return m;
  }

  /// Whether a sequence of this many tokens can be held with nothing else in the pools.
  Shortage fits_alone(Tokens tokens) const noexcept {
    // A tail that cannot grow where it is lies in two places for a step.
    Units const blocks = ceil_div(tokens, block_tokens()) + (tails_.parts() > 0 ? 1 : 0);
    PoolUnits const need =
        organization_.need({blocks, std::min<Units>(2, tokens), {}}, SlabUse::none);
    for (int pool = 0; pool < pools; ++pool)
      if (need[pool] > organization_.pool(pool).capacity())
        return {Refusal::never_fits, static_cast<std::int8_t>(pool), need, capacities()};
    return {Refusal::none, -1, need, capacities()};
  }

  /// Admits a sequence at the prompt's joint boundary if the gate agrees, with references on every
  /// member of what it adopts. `match` may be the lookup just made; an outdated one is made again.
  template <admission_gate Gate = FixedHeadroom>
  Admission admit(const Prompt& prompt, const AdmitRequest& request, const Gate& gate = {},
                  const Match* match = nullptr) noexcept {
    return admit_into({}, prompt, request, gate, match);
  }

  /// Admits a preempted sequence again; the prompt now includes the tokens generated so far.
  template <admission_gate Gate = FixedHeadroom>
  Admission resume(SequenceHandle seq, const Prompt& prompt, const AdmitRequest& request,
                   const Gate& gate = {}, const Match* match = nullptr) noexcept {
    expect(seq, Status::preempted, "resume wants a preempted sequence");
    return admit_into(seq, prompt, request, gate, match);
  }

  /// Takes the attention blocks and destination states for the next n tokens: one state per kept
  /// boundary strictly inside, one more unless the working state continues in place. States that
  /// the previous step left behind are given back first, deepest first.
  Shortage reserve(SequenceHandle seq, Tokens n) noexcept {
    expect(seq, Status::active, "reserve wants an active sequence");
    Sequence& s = at(seq);
    HYBRIDSTATE_EXPECT(s.reserved == 0 && n > 0, "one reserve is open at a time, for >= 1 token",
                       s.reserved, n);
    ++counters_.reserves;
    Tokens const end = s.position + n;
    Units const blocks_after = std::max(ceil_div(end, block_tokens()), s.blocks);
    if (blocks_after > row_blocks_) return fail({Refusal::too_long, -1, {}, {}}, s);
    BlockPlan plan = plan_blocks(seq, s, blocks_after, end);
    if (plan.copies && copies_ == options_.max_sequences)  // the list is full until the next step
      return fail({Refusal::wait_pending, -1, {}, {}}, s);
    Units const inside =
        options_.placement.inside(s.position, end, checkpoint_tokens(), s.boundaries);
    bool const in_place = can_continue_in_place(seq, s);
    Units const states = inside + (in_place ? 0 : 1);

    if (plan.changes || states != 0 || s.states > 1 || s.copied_from) {
      acting_ = s.requester;
      Demand demand{plan.blocks, states, {}};
      Units slots = 0;
      PoolUnits const extra = retire(seq, s, slots);
      PoolUnits most = organization_.need(demand, SlabUse::each);
      if (slots > 0) most[Organization::state_pool] = most_need(demand, slots);
      if (!fits(most, extra) && !yield_retained(demand, most, extra) &&
          !yield_pins(demand, most, extra) && !make_room_alone(demand, extra)) {
        bool const behind_fence = waits_for_fence(most);  // counting what the retry will give back
        unretire(seq, s);
        if (active_ == 1 && retaining_ && options_.retention.mode != RetentionMode::none) {
          retaining_ = false;  // alone, it may not fail for what it was about to retain
          --counters_.reserves;
          Shortage const again = reserve(seq, n);
          retaining_ = true;
          return again;
        }
        return fail(shortage(most, behind_fence), s);
      }
      finish_retire(seq, s);
      if (tails_.parts() > 0) {  // what was given back may have made room for a tail
        plan = plan_blocks(seq, s, blocks_after, end);
        demand.attention_blocks = plan.blocks;
      }
      s.old_blocks = s.blocks;
      s.new_states = states;
      make_keyless(demand);
      place_blocks(seq, s, blocks_after, plan);
      s.first_target = in_place ? s.states - 1 : s.states;
      Tokens boundary = s.position;
      auto const next_boundary = [&](bool last) {
        return last ? end : options_.placement.next(boundary, checkpoint_tokens(), s.boundaries);
      };
      if (in_place) row_states(seq)[s.states - 1].boundary = boundary = next_boundary(states == 0);
      for (Units i = 0; i < states; ++i) {
        boundary = next_boundary(i + 1 == states);
        row_states(seq)[s.states++] = {take_state(s), boundary};
      }
    } else {
      s.old_blocks = s.blocks;
      s.new_states = 0;
      s.tail = TailChange::none;
      s.first_target = s.states - 1;
      row_states(seq)[s.states - 1].boundary = end;
    }
    s.reserved = n;
    counters_.reserves_without_need += plan.blocks == 0 && states == 0 ? 1 : 0;
    return {};
  }

  /// The reserved tokens are computed (or ordered on the device, with their ids known): publishes
  /// full blocks and the states at kept boundaries, pending until the next begin_step().
  void commit(SequenceHandle seq, const Committed& done, std::int64_t now = 0) noexcept {
    expect(seq, Status::active, "commit wants an active sequence");
    Sequence& s = at(seq);
    HYBRIDSTATE_EXPECT(done.count == s.reserved, "commit gives exactly the reserved tokens",
                       done.count, s.reserved);
    Tokens const begin = s.position;
    Tokens const end = begin + done.count;
    s.reserved = 0;
    s.position = end;
    fill_blocks(seq, std::max(begin, s.kv_valid_until), end);
    if (end / block_tokens() == begin / block_tokens()) {
      if (index_.identity() == BlockIdentity::tokens)
        std::memcpy(partial_tokens(seq) + begin % block_tokens(), done.tokens.data(),
                    std::size_t{done.count} * sizeof(TokenId));
    } else {
      publish_blocks(seq, s, begin, end, done, now);
    }
    // States: every held one but the last is at its boundary; the last is at `end`.
    HeldState* const held = row_states(seq);
    for (std::uint32_t i = s.first_target; i < s.states; ++i)
      if (options_.placement.keeps(held[i].boundary, checkpoint_tokens(), s.boundaries) &&
          held[i].boundary % checkpoint_tokens() == 0)
        publish_state(seq, s, held[i]);
  }

  /// Gives back now what the next reserve would give back first: the states that earlier steps left
  /// behind. A caller that has to wait for memory calls it, so that their fence can pass meanwhile.
  void retire(SequenceHandle seq) noexcept {
    expect(seq, Status::active, "retire wants an active sequence");
    Sequence& s = at(seq);
    HYBRIDSTATE_EXPECT(s.reserved == 0, "a sequence retires between its steps", seq.value,
                       s.reserved);
    Units slots = 0;
    static_cast<void>(retire(seq, s, slots));
    finish_retire(seq, s);
    s.new_states = s.first_target = 0;  // one state is left: the source of what comes next
  }

  /// Undoes the last reserve, only while the device has not run it. Cached objects that the reserve
  /// reclaimed stay lost; states that it gave back stay given back.
  void abort(SequenceHandle seq) noexcept {
    Sequence& s = at(seq);
    if (s.reserved == 0) return;
    s.reserved = 0;
    HeldState* const held = row_states(seq);
    for (; s.new_states > 0; --s.new_states) dereference(held[--s.states].state);
    if (s.states > 0) held[s.states - 1].boundary = s.position;
    AttentionHandle* const row = row_blocks(seq);
    while (s.blocks > s.old_blocks) dereference(row[--s.blocks]);
    if (s.copied_to) undo_copy(seq, s);
    if (s.tail == TailChange::grown)
      tails_.resize(tail_of(row[s.blocks - 1]), s.old_parts);
    else if (s.tail == TailChange::filled)
      unfill_tail(row[s.blocks - 1], s.old_parts);
  }

  /// Gives everything back; committed boundaries stay cached. The handle stays for resume().
  void preempt(SequenceHandle seq) noexcept {
    expect(seq, Status::active, "preempt wants an active sequence");
    Sequence& s = at(seq);
    ++counters_.preemptions;
    event({.kind = EventKind::preempt, .request = s.requester, .tokens = s.position});
    abort(seq);
    if (options_.pinning.distinct > 0) pin_rightmost(s);
    let_go_of_everything(seq, s);
    s.status = Status::preempted;
  }

  /// The sequence is over: gives everything back and frees the handle.
  void release(SequenceHandle seq) noexcept {
    Sequence& s = at(seq);
    HYBRIDSTATE_EXPECT(s.status != Status::free, "release wants a live sequence", seq.value, 0);
    ++counters_.releases;
    event({.kind = EventKind::finish, .request = s.requester, .tokens = s.position});
    if (s.status == Status::active) let_go_of_everything(seq, s);
    if (s.pinned) unpin(s);
    s.status = Status::free;
    free_sequences_[free_sequence_count_++] = seq;
  }

  /// A second sequence at the parent's position: it references all full blocks and the parent's
  /// state as source. Its first reserve takes destinations and lists one copy of the partial block.
  Admission fork(SequenceHandle parent, std::uint64_t requester) noexcept {
    expect(parent, Status::active, "fork wants an active parent");
    Sequence const& p = at(parent);
    HYBRIDSTATE_EXPECT(p.reserved == 0, "a parent forks between its steps", parent.value,
                       p.reserved);
    Admission result;
    if (free_sequence_count_ == 0) {
      result.refusal = Refusal::sequences;
      return result;
    }
    SequenceHandle const child = free_sequences_[--free_sequence_count_];
    Sequence& s = at(child);
    s = p;
    s.requester = requester;
    s.states = s.retained = 0;
    s.adopted = s.decoded = {};
    s.copy_from = s.copied_from = s.copied_to = {};
    s.new_states = 0;
    hold(s.tip);
    ++active_;
    // Attention that the parent re-uses past its position holds the parent's next tokens: the
    // child's may differ.
    s.blocks = ceil_div(p.position, block_tokens());
    s.kv_valid_until = std::min(p.kv_valid_until, p.position / block_tokens() * block_tokens());
    std::copy_n(row_blocks(parent), s.blocks, row_blocks(child));
    for (Units i = 0; i < s.blocks; ++i) reference(row_blocks(child)[i]);
    if (p.position % block_tokens() != 0)
      s.copy_from = row_blocks(child)[p.position / block_tokens()];
    if (p.states > 0) {
      HeldState const source = row_states(parent)[p.states - 1];
      reference(source.state);
      row_states(child)[s.states++] = source;
      s.adopted = source.state;
    }
    if (index_.identity() == BlockIdentity::tokens)
      std::copy_n(partial_tokens(parent), p.position % block_tokens(), partial_tokens(child));
    ++counters_.admissions;
    result.sequence = child;
    result.match.joint = p.position;
    event({.kind = EventKind::admit, .request = requester, .tokens = p.position});
    return result;
  }

  // --- whole steps -------------------------------------------------------------------------------

  struct ReserveRequest {
    SequenceHandle sequence;
    Tokens tokens = 0;
  };
  struct CommitRequest {
    SequenceHandle sequence;
    Committed done;
  };

  /// Reserves in order and stops at the first that fails; says how many succeeded.
  std::size_t reserve(std::span<const ReserveRequest> step) noexcept {
    for (std::size_t i = 0; i < step.size(); ++i)
      if (!reserve(step[i].sequence, step[i].tokens)) return i;
    return step.size();
  }
  void commit(std::span<const CommitRequest> step, std::int64_t now = 0) noexcept {
    for (CommitRequest const& c : step) commit(c.sequence, c.done, now);
  }
  /// Undoes reserves, last first.
  void abort(std::span<const SequenceHandle> step) noexcept {
    for (std::size_t i = step.size(); i-- > 0;) abort(step[i]);
  }

  // --- invalidation ------------------------------------------------------------------------------

  /// Removes one block or checkpoint from discovery; running sequences keep their references.
  void invalidate(AttentionHandle a) noexcept {
    acting_ = 0;
    invalidate(a, LossCause::invalidated);
  }
  void invalidate(StateHandle s) noexcept {
    acting_ = 0;
    invalidate(s, LossCause::invalidated);
  }

  /// Removes everything cached under this prompt at or past `from` tokens.
  void invalidate(const Prompt& prompt, Tokens from = 0) noexcept {
    acting_ = 0;
    NodeIndex at = index_.find_root(prompt.salt, prompt.extra);
    for (Units i = 0; at && i < prompt.length / block_tokens(); ++i) {
      at = index_.find_child(at, block_of(prompt, i));
      if (at && (i + 1) * block_tokens() > from) strip(at, LossCause::invalidated);
    }
  }

  /// A step failed on the device: nothing that it or a later one published may be found again.
  void invalidate_since(Step failed) noexcept {
    acting_ = 0;
    for (std::int32_t i = 0; i < states_capacity_; ++i)
      if (states_[i].node && states_[i].published >= failed)
        invalidate(StateHandle{i}, LossCause::failed_step);
    for (std::int32_t i = 0; i < blocks_capacity_; ++i)
      if (blocks_[i].node && blocks_[i].published >= failed)
        invalidate(AttentionHandle{i}, LossCause::failed_step);
  }

  /// Forgets everything that is discoverable; running sequences go on.
  void clear() noexcept {
    acting_ = 0;
    for (std::int32_t i = 0; i < states_capacity_; ++i)
      if (states_[i].node) invalidate(StateHandle{i}, LossCause::cleared);
    for (std::int32_t i = 0; i < blocks_capacity_; ++i)
      if (blocks_[i].node) invalidate(AttentionHandle{i}, LossCause::cleared);
  }

  // --- facts -------------------------------------------------------------------------------------

  Tokens block_tokens() const noexcept { return organization_.block_tokens(); }
  Tokens checkpoint_tokens() const noexcept { return organization_.checkpoint_tokens(); }
  const Organization& organization() const noexcept { return organization_; }
  const PrefixIndex& index() const noexcept { return index_; }
  const CacheOptions& options() const noexcept { return options_; }
  Observer& observer() noexcept { return observer_; }
  const Observer& observer() const noexcept { return observer_; }

  std::uint32_t running() const noexcept { return active_; }
  /// Changes with every publication, loss, and unit that becomes available.
  std::uint64_t version() const noexcept { return version_; }

  Tokens position(SequenceHandle seq) const noexcept { return at(seq).position; }
  Tokens reserved(SequenceHandle seq) const noexcept { return at(seq).reserved; }
  std::uint64_t requester(SequenceHandle seq) const noexcept { return at(seq).requester; }
  /// Attention below this position is adopted: block tables hold it, nothing may be written there.
  Tokens kv_valid_until(SequenceHandle seq) const noexcept { return at(seq).kv_valid_until; }
  std::span<const AttentionHandle> blocks(SequenceHandle seq) const noexcept {
    return {blocks_of_sequences_.data() + seq.at() * row_blocks_, at(seq).blocks};
  }
  /// States held, shallowest first; the last is the working state (the destination of the open
  /// step), the one before first_target(), if any, its source.
  std::span<const HeldState> states(SequenceHandle seq) const noexcept {
    return {states_of_sequences_.data() + seq.at() * row_states_, at(seq).states};
  }
  /// Index into states() of the state that the open step writes first. Equal to the source's index
  /// when the working state continues in place.
  std::uint32_t first_target(SequenceHandle seq) const noexcept { return at(seq).first_target; }
  /// The state that the open step reads: absent at position 0.
  StateHandle source(SequenceHandle seq) const noexcept {
    Sequence const& s = at(seq);
    std::uint32_t const held = s.states - s.new_states;
    return s.position > 0 && held > 0 ? states(seq)[held - 1].state : StateHandle{};
  }
  /// Where the block's bytes lie: with CacheOptions::tail_tokens, the last of a sequence's blocks
  /// may be a part of a block that the organization knows.
  AttentionPlace place(AttentionHandle a) const noexcept {
    if (!is_tail(a)) return {a, 0};
    return {{tails_.block(tail_of(a))}, tails_.part(tail_of(a)) * options_.tail_tokens};
  }
  const TailSlabs& tails() const noexcept { return tails_; }
  std::span<const BlockCopy> copies() const noexcept { return {copy_list_.data(), copies_}; }

  std::uint32_t references(AttentionHandle a) const noexcept { return blocks_[a.value].references; }
  std::uint32_t references(StateHandle s) const noexcept { return states_[s.value].references; }
  bool published(AttentionHandle a) const noexcept {
    return static_cast<bool>(blocks_[a.value].node);
  }
  bool published(StateHandle s) const noexcept { return static_cast<bool>(states_[s.value].node); }
  /// The step that published the object: a transfer waits for its fence.
  Step published_step(AttentionHandle a) const noexcept { return blocks_[a.value].published; }
  Step published_step(StateHandle s) const noexcept { return states_[s.value].published; }
  NodeIndex node(AttentionHandle a) const noexcept { return blocks_[a.value].node; }
  NodeIndex node(StateHandle s) const noexcept { return states_[s.value].node; }
  /// The objects that an adoption of `match` would take; absent when J is 0.
  StateHandle checkpoint(const Match& match) const noexcept {
    return match.joint > 0 ? StateHandle{index_[match.joint_node].oldest_state} : StateHandle{};
  }

  /// Boundaries that the sequence retains beyond its own use, shallowest first.
  std::span<const HeldState> retained(SequenceHandle seq) const noexcept {
    std::uint32_t const count = at(seq).retained;
    if (count == 0) return {};  // without retention there is no row to point into
    return {retained_of_sequences_.data() + seq.at() * row_states_, count};
  }
  /// The boundary that a preempted sequence pins; absent without one.
  StateHandle pinned(SequenceHandle seq) const noexcept { return at(seq).pinned; }

  const CacheCounters& counters() const noexcept { return counters_; }
  /// The counters as of the last begin_step(), from any thread.
  MetricsSnapshot snapshot() const noexcept { return metrics_.load(); }

  PoolUnits available() const noexcept {
    PoolUnits units;
    for (int pool = 0; pool < pools; ++pool) units[pool] = organization_.pool(pool).available();
    return units;
  }

  Usage usage() const noexcept {
    Usage u;
    for (int pool = 0; pool < pools; ++pool) {
      PoolUsage& p = u.pool[pool];
      UnitUse const use = organization_.unit_use(pool);
      p.capacity = organization_.pool(pool).capacity();
      p.keyless = organization_.pool(pool).keyless();
      p.cached = organization_.pool(pool).available() - p.keyless;
      if (ReclaimOrder::keeps_carriers && pool == Organization::state_pool)
        p.cached += idle_carriers();
      p.attention_referenced = blocks_use_.referenced * use.attention;
      p.attention_cached = blocks_use_.cached * use.attention;
      p.ssm_referenced = states_use_.referenced * use.ssm;
      p.ssm_cached = states_use_.cached * use.ssm;
      p.conv_referenced = states_use_.referenced * use.conv;
      p.conv_cached = states_use_.cached * use.conv;
      p.fenced = blocks_use_.fenced * use.attention + states_use_.fenced * (use.ssm + use.conv);
      if (pool == Organization::attention_pool && tails_.slabs() > 0) {
        // Objects in whole blocks each, tails by the slabs that they share.
        TailUse const t = tail_use();
        p.attention_referenced -= (t.tails.referenced - t.slabs.referenced) * use.attention;
        p.fenced -= (t.tails.fenced - t.slabs.fenced) * use.attention;
      }
      if (pool == Organization::state_pool) {
        p.conv_referenced += carriers_referenced_;
        p.conv_cached += idle_carriers();
        p.fenced += carriers_fenced_;
      }
      p.referenced = p.attention_referenced + p.ssm_referenced + p.conv_referenced;
      u.allocated += Bytes{p.capacity - p.keyless} * organization_.unit_bytes(pool);
    }
    u.attention_payload = payload_tokens_ * organization_.attention_payload_bytes_per_token();
    u.state_payload = Bytes{states_use_.referenced + states_use_.cached + states_use_.fenced} *
                      organization_.state_payload_bytes();
    return u;
  }

  /// Byte ranges of an object in its pools, for a layer that copies state out and in.
  template <class F>
  void for_each_extent(AttentionHandle a, F&& f) const noexcept {
    organization_.for_each_own_unit(place(a).block, [&](int pool, UnitIndex u) {
      Extent unit = whole_unit(pool, u);
      unit.carrier = is_tail(a) ? 1 : 0;
      f(unit);
    });
  }
  template <class F>
  void for_each_extent(StateHandle s, F&& f) const noexcept {
    organization_.for_each_own_unit(s, [&](int pool, UnitIndex u) { f(whole_unit(pool, u)); });
    int group = 0;
    organization_.for_each_carrier(s, [&](CarrierHandle c) {
      RowAddress const row = organization_.conv_address();
      auto const line = static_cast<Bytes>(organization_.conv_line(s, group++));
      f(Extent{Organization::state_pool, 1, organization_.carrier_unit(c).value,
               row.base + line * row.stride, row.stride});
    });
  }

  /// Counted by looking at every state and its path: for samples, not for every step.
  CachedCheckpoints cached_checkpoints() const noexcept {
    CachedCheckpoints count;
    for (std::int32_t i = 0; i < states_capacity_; ++i) {
      if (!states_[i].node || !states_[i].idle()) continue;
      ++count.all;
      NodeIndex n = states_[i].node;
      while (index_[n].depth > 0 && index_[n].oldest_unit >= 0) n = {index_[n].parent};
      count.orphaned += index_[n].depth > 0 ? 1 : 0;
    }
    return count;
  }

  /// Recounts everything the slow way; empty when all invariants hold, else the first that does
  /// not.
  std::string check_invariants() const;

 private:
  enum class Status : std::uint8_t { free, active, preempted };

  struct Object {
    NodeIndex node;  ///< absent: not discoverable
    std::uint32_t references = 0;
    bool live = false;    ///< taken and not given back
    bool fenced = false;  ///< unreferenced, its step not complete
    Tokens filled = 0;    ///< committed tokens of an attention block
    Step published = 0;

    /// Neither referenced nor fenced.
    bool idle() const noexcept { return (references | static_cast<std::uint32_t>(fenced)) == 0; }
  };

  /// What the open reserve did in place to the tail that was there.
  enum class TailChange : std::uint8_t { none, grown, filled, moved };

  /// How a reserve covers its tokens with attention.
  struct BlockPlan {
    Units blocks = 0;             ///< to take from the organization, a new slab included
    std::uint32_t new_parts = 0;  ///< of the last new block as a tail; 0: a whole block
    std::uint32_t parts = 0;      ///< of the block that was open before; 0: a whole block
    TailChange tail = TailChange::none;
    bool copies = false;   ///< the open block is copied to another place
    bool changes = false;  ///< anything at all
  };

  struct Sequence {
    Status status = Status::free;
    std::uint64_t requester = 0;
    Tokens position = 0;  ///< committed tokens
    Tokens reserved = 0;  ///< tokens of the open reserve
    RequestBoundaries boundaries;
    Tokens kv_valid_until = 0;
    Units blocks = 0;
    Units old_blocks = 0;  ///< blocks before the open reserve
    std::uint32_t states = 0;
    std::uint32_t first_target = 0;
    std::uint32_t new_states = 0;
    std::uint32_t retained = 0;      ///< boundaries kept by retention
    StateHandle adopted;             ///< the state it started from, computed by another sequence
    StateHandle pinned;              ///< while preempted
    StateHandle yielded;             ///< a pin let go until it is clear whether that helps
    std::uint64_t preempted_at = 0;  ///< order of preemptions, for pins
    StateHandle decoded;             ///< the last decode state left behind, until a newer one is
    NodeIndex decoded_at;
    Step decoded_in = 0;          ///< its publication
    NodeIndex tip;                ///< node of the last full block; held
    AttentionHandle copy_from;    ///< a fork's partial block before its first reserve
    AttentionHandle copied_from;  ///< the same after it, or a tail's last place, until the next
    AttentionHandle copied_to;
    TailChange tail = TailChange::none;  ///< by the open reserve
    std::uint32_t old_parts = 0;         ///< of the tail before it
  };

  struct ObjectUse {
    Units referenced = 0, cached = 0, fenced = 0;
  };

  struct TailUse {
    ObjectUse tails, slabs;
  };

  struct CarrierUse {
    std::uint32_t referenced = 0;  ///< slots of referenced states
    std::uint32_t fenced = 0;
  };

  /// What a reclaim order may see and do.
  struct View {
    static constexpr int pools = JointCache::pools;
    JointCache& cache;

    NodeIndex node_of(ObjectRef o) const noexcept { return cache.object(o).node; }
    const PrefixNode& node(NodeIndex n) const noexcept { return cache.index_[n]; }
    ObjectRef next_on_node(ObjectRef o) const noexcept {
      auto const& links = o.kind == ObjectKind::attention ? cache.block_links_ : cache.state_links_;
      return {o.kind, links.next(o.handle)};
    }
    bool reclaimable(ObjectRef o) const noexcept {
      Object const& object = cache.object(o);
      return object.node && object.references == 0 && !object.fenced;
    }
    const UnitPool& pool(int p) const noexcept { return cache.organization_.pool(p); }
    Tokens block_tokens() const noexcept { return cache.block_tokens(); }
    /// Adds the units of so many states and attention blocks, a state's share of carriers included.
    void add_units(double (&units)[max_pools], double states, double blocks) const noexcept {
      constexpr int at = Organization::state_pool;
      UnitUse const use = cache.organization_.unit_use(at);
      units[at] += states * (use.ssm + use.conv + cache.carrier_share(use));
      constexpr int blocks_at = Organization::attention_pool;
      units[blocks_at] += blocks * cache.organization_.unit_use(blocks_at).attention;
    }
    void reclaim(ObjectRef o) noexcept {
      if (o.kind == ObjectKind::attention)
        cache.reclaim(AttentionHandle{o.handle}, LossCause::reclaimed);
      else
        cache.reclaim(StateHandle{o.handle}, LossCause::reclaimed);
    }
    void reclaim_owner(int p, UnitIndex u) noexcept {
      cache.lose_owner(p, u, LossCause::reclaimed);
    }
  };
  static_assert(reclaim_order<ReclaimOrder, View>,
                "the reclaim order lacks a hook: see reclaim_order_base and reclaim_order in "
                "policy/reclaim_order.hpp for the six it must offer");

  static std::uint64_t node_capacity(const Organization& o, const CacheOptions& options) noexcept {
    std::uint64_t units = 0;
    for (int pool = 0; pool < pools; ++pool) units += o.pool(pool).capacity();
    return std::uint64_t{o.max_attention_blocks()} + o.max_states() +
           std::uint64_t{options.bare_nodes_per_unit} * units + 1;
  }

  static std::string tail_problem(const Organization& o, Tokens tail) {
    if (tail == 0) return {};
    Tokens const block = o.block_tokens();
    if (block % tail != 0 || block / tail < 2 || block / tail > TailSlabs::most_parts)
      return "JointCache: tails in parts of " + std::to_string(tail) +
             " tokens do not fit attention blocks of " + std::to_string(block) +
             " tokens; a block must be a multiple of the part, 2 to 64 of them";
    std::uint64_t const objects =
        std::uint64_t{o.max_attention_blocks()} * (1 + block / tail) + o.max_states();
    if (objects > 0x7fffffffULL)
      return "JointCache: tails in parts of " + std::to_string(tail) + " tokens would need " +
             std::to_string(objects) + " handles; at most 2147483647 are possible";
    return {};
  }

  void build() {
    Units const blocks = organization_.max_attention_blocks();
    std::uint32_t const parts =
        options_.tail_tokens > 0 ? block_tokens() / options_.tail_tokens : 0;
    if (parts > 0) tails_ = TailSlabs(blocks, parts);
    first_tail_ = static_cast<std::int32_t>(blocks);
    blocks_capacity_ = static_cast<std::int32_t>(blocks * (1 + parts));
    states_capacity_ = static_cast<std::int32_t>(organization_.max_states());
    auto const states = static_cast<std::uint32_t>(states_capacity_);
    blocks_ = FixedArray<Object>(blocks_capacity_);
    states_ = FixedArray<Object>(states);
    block_links_ = IndexLinks(blocks);
    state_links_ = IndexLinks(states);
    auto const fenceable = static_cast<std::uint32_t>(blocks_capacity_) + states;
    fence_links_ = IndexLinks(fenceable);
    fenced_at_ = FixedArray<Step>(fenceable);
    carriers_ = FixedArray<CarrierUse>(states);
    index_ = PrefixIndex(static_cast<std::uint32_t>(node_capacity(organization_, options_)),
                         block_tokens(), options_.identity, options_.key_bytes);
    Units width = organization_.max_attention_blocks();
    if (options_.max_sequence_tokens != 0)
      width = std::min(width, ceil_div(options_.max_sequence_tokens, block_tokens()));
    row_blocks_ = width;
    path_blocks_ = FixedArray<AttentionHandle>(width);
    std::uint64_t const longest = std::uint64_t{width} * block_tokens();
    row_states_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(longest / checkpoint_tokens() + 3, std::uint64_t{states} + 1));
    sequences_ = FixedArray<Sequence>(options_.max_sequences);
    blocks_of_sequences_ =
        FixedArray<AttentionHandle>(std::size_t{options_.max_sequences} * row_blocks_);
    states_of_sequences_ = FixedArray<HeldState>(std::size_t{options_.max_sequences} * row_states_);
    if (options_.retention.mode != RetentionMode::none) {
      retained_of_sequences_ =
          FixedArray<HeldState>(std::size_t{options_.max_sequences} * row_states_);
      yielded_ = FixedArray<StateHandle>(states);
    }
    retained_references_ = FixedArray<std::uint32_t>(states);
    pins_on_ = FixedArray<std::uint32_t>(states);
    if (options_.identity == BlockIdentity::tokens)
      partial_tokens_ = FixedArray<TokenId>(std::size_t{options_.max_sequences} * block_tokens());
    free_sequences_ = FixedArray<SequenceHandle>(options_.max_sequences);
    for (std::uint32_t i = options_.max_sequences; i-- > 0;)
      free_sequences_[free_sequence_count_++] = SequenceHandle{static_cast<std::int32_t>(i)};
    copy_list_ = FixedArray<BlockCopy>(options_.max_sequences);
    UnitUse const use = organization_.unit_use(Organization::state_pool);
    double const block_bytes =
        static_cast<double>(organization_.unit_bytes(Organization::attention_pool)) *
        organization_.unit_use(Organization::attention_pool).attention;
    double const state_bytes =
        static_cast<double>(organization_.unit_bytes(Organization::state_pool)) *
        (use.ssm + use.conv + carrier_share(use));
    order_.resize({blocks, states, index_.capacity(), state_bytes / block_bytes});
  }

  Sequence& at(SequenceHandle s) noexcept { return sequences_[s.at()]; }
  const Sequence& at(SequenceHandle s) const noexcept { return sequences_[s.at()]; }
  AttentionHandle* row_blocks(SequenceHandle s) noexcept {
    return blocks_of_sequences_.data() + s.at() * row_blocks_;
  }
  HeldState* row_states(SequenceHandle s) noexcept {
    return states_of_sequences_.data() + s.at() * row_states_;
  }
  TokenId* partial_tokens(SequenceHandle s) noexcept {
    return partial_tokens_.data() + s.at() * block_tokens();
  }
  void expect([[maybe_unused]] SequenceHandle s, [[maybe_unused]] Status status,
              [[maybe_unused]] const char* sentence) const noexcept {
    HYBRIDSTATE_EXPECT(s && s.at() < options_.max_sequences && at(s).status == status, sentence,
                       s.value, 0);
  }
  Object& object(ObjectRef o) noexcept {
    return o.kind == ObjectKind::attention ? blocks_[o.handle] : states_[o.handle];
  }
  const Object& object(ObjectRef o) const noexcept {
    return o.kind == ObjectKind::attention ? blocks_[o.handle] : states_[o.handle];
  }
  bool pending(Step published) const noexcept { return published == step_; }
  Units idle_carriers() const noexcept {
    return organization_.carriers() - carriers_referenced_ - carriers_fenced_;
  }
  /// Units that the slots of one state amount to.
  double carrier_share(UnitUse use) const noexcept {
    return use.slots * static_cast<double>(organization_.conv_address().stride) /
           static_cast<double>(organization_.unit_bytes(Organization::state_pool));
  }
  PoolUnits capacities() const noexcept {
    PoolUnits units;
    for (int pool = 0; pool < pools; ++pool) units[pool] = organization_.pool(pool).capacity();
    return units;
  }
  bool fits(PoolUnits need) const noexcept {
    for (int pool = 0; pool < pools; ++pool)
      if (need[pool] > organization_.pool(pool).available()) return false;
    return true;
  }
  Shortage shortage(PoolUnits need) const noexcept { return shortage(need, waits_for_fence(need)); }
  Shortage shortage(PoolUnits need, bool behind_fence) const noexcept {
    PoolUnits const have = available();
    int pool = 0;
    while (pool + 1 < pools && need[pool] <= have[pool]) ++pool;
    return {behind_fence ? Refusal::wait_fence : Refusal::wait_units,
            static_cast<std::int8_t>(pool), need, have};
  }
  bool waits_for_fence(PoolUnits need) const noexcept {
    if (fence_list_.size == 0) return false;
    Usage const u = usage();
    for (int pool = 0; pool < pools; ++pool)
      if (need[pool] > organization_.pool(pool).available() + u.pool[pool].fenced) return false;
    return true;
  }
  Extent whole_unit(int pool, UnitIndex u) const noexcept {
    Bytes const size = organization_.unit_bytes(pool);
    return {static_cast<std::int8_t>(pool), 0, u.value, u.at() * size, size};
  }
  BlockView block_of(const Prompt& p, Units i) const noexcept {
    TokenId const* tokens = nullptr;
    if (index_.identity() == BlockIdentity::tokens) {
      tokens = p.tokens.data() + std::size_t{i} * block_tokens();
      if (p.keys.empty()) return {block_key({tokens, block_tokens()}), tokens};
    }
    return {p.keys[i], tokens};
  }
  void event([[maybe_unused]] Event e) noexcept {
    if constexpr (Observer::enabled) {
      e.step = step_;
      observer_.on_event(e);
    }
  }
  void event_on([[maybe_unused]] NodeIndex n, [[maybe_unused]] Event e) noexcept {
    if constexpr (Observer::enabled) {
      PrefixNode const& node = index_[n];
      e.key = node.key;
      e.parent_key = node.parent >= 0 ? index_[NodeIndex{node.parent}].key : 0;
      e.path = node.path;
      e.salt = node.salt;
      e.boundary = node.depth * block_tokens();
      if (e.tokens == 0) e.tokens = block_tokens();
      event(e);
    }
  }
  Shortage fail(Shortage why, const Sequence& s) noexcept {
    ++counters_.failed_reserves;
    if (why.pool >= 0) ++counters_.pool_shortages[why.pool];
    event({.kind = EventKind::refuse,
           .refusal = static_cast<std::uint8_t>(why.refusal),
           .pool = why.pool,
           .request = s.requester,
           .tokens = s.position});
    return why;
  }

  void tell_released(ObjectRef o) noexcept {
    View view{*this};
    order_.released(view, o);
  }
  void tell_referenced(ObjectRef o) noexcept {
    View view{*this};
    order_.referenced(view, o);
  }
  void tell_published(StateHandle s) noexcept {
    if constexpr (ReclaimOrder::scores_states) {
      View view{*this};
      order_.published(view, {ObjectKind::checkpoint, s.value});
    }
  }
  void tell_lost(StateHandle s, NodeIndex n) noexcept {
    if constexpr (ReclaimOrder::scores_states) {
      View view{*this};
      order_.lost(view, {ObjectKind::checkpoint, s.value}, n);
    }
  }
  void tell_node_changed(NodeIndex n) noexcept {
    View view{*this};
    order_.node_changed(view, n);
  }

  // --- demand and nodes --------------------------------------------------------------------------

  void exit_at(NodeIndex n, Entry& entry, std::int64_t now) noexcept {
    if (entry.known == 0) return;
    entry.split = index_[n].kids > 0;
    // Counted where such a request could start: at the last boundary of the checkpoint grid.
    while (index_[n].depth % (checkpoint_tokens() / block_tokens()) != 0) n = {index_[n].parent};
    PrefixNode& node = index_[n];
    if (node.depth == 0) return;
    ++node.exits;
    node.last_exit_ns = now;
    if constexpr (ReclaimOrder::scores_states) {
      View view{*this};
      order_.demand_changed(view, n);
    }
  }
  void hold(NodeIndex n) noexcept {
    if (n) ++index_[n].holds;
  }
  void let_go(NodeIndex n) noexcept {
    if (!n) return;
    if (--index_[n].holds == 0) index_.loosened(n);
  }

  // --- references --------------------------------------------------------------------------------

  HYBRIDSTATE_INLINE void reference(AttentionHandle a) noexcept { reference(&a, 1); }
  /// A whole row. Counted in registers: a counter in memory would make every block wait for the
  /// one before.
  HYBRIDSTATE_INLINE void reference(const AttentionHandle* row, Units n) noexcept {
    Units referenced = 0;
    Units cached = 0;
    for (Units i = 0; i < n; ++i) {
      AttentionHandle const a = row[i];
      Object& o = blocks_[a.value];
      if (o.references++ > 0) continue;
      ++referenced;
      if (o.fenced) {
        unfence(o, a.value, blocks_use_);
      } else if (o.node) {
        tell_referenced({ObjectKind::attention, a.value});
        organization_.for_each_own_unit(
            a, [&](int pool, UnitIndex u) { organization_.pool(pool).unlist_cached(u); });
        ++cached;
      }
    }
    blocks_use_.referenced += referenced;
    blocks_use_.cached -= cached;
  }
  void reference(StateHandle s) noexcept {
    Object& o = states_[s.value];
    if (o.references++ > 0) return;
    ++states_use_.referenced;
    if (o.fenced) {
      unfence(o, blocks_capacity_ + s.value, states_use_);
      organization_.for_each_carrier(s, [&](CarrierHandle c) { carrier_step(c, +1, -1); });
    } else {
      if (o.node) {
        tell_referenced({ObjectKind::checkpoint, s.value});
        organization_.for_each_own_unit(
            s, [&](int pool, UnitIndex u) { organization_.pool(pool).unlist_cached(u); });
        --states_use_.cached;
      }
      organization_.for_each_carrier(s, [&](CarrierHandle c) { carrier_step(c, +1, 0); });
    }
  }
  void unfence(Object& o, std::int32_t fence_index, ObjectUse& use) noexcept {
    fence_links_.unlink(fence_list_, fence_index);
    o.fenced = false;
    --use.fenced;
  }

  HYBRIDSTATE_INLINE void dereference(AttentionHandle a) noexcept { dereference(&a, 1); }
  /// A whole row, the last block first; counted as reference() counts.
  HYBRIDSTATE_INLINE void dereference(const AttentionHandle* row, Units n) noexcept {
    Units dropped = 0;
    for (Units i = n; i-- > 0;) {
      AttentionHandle const a = row[i];
      Object& o = blocks_[a.value];
      if (--o.references > 0) continue;
      ++dropped;
      drop(o, a, a.value, blocks_use_);
    }
    blocks_use_.referenced -= dropped;
    version_ += dropped;
    freed_ += dropped;
  }
  void dereference(StateHandle s) noexcept {
    Object& o = states_[s.value];
    if (--o.references > 0) return;
    --states_use_.referenced;
    ++version_;
    ++freed_;
    if (options_.fences)
      organization_.for_each_carrier(s, [&](CarrierHandle c) { carrier_step(c, -1, +1); });
    drop(o, s, blocks_capacity_ + s.value, states_use_);
  }
  template <class Handle>
  HYBRIDSTATE_INLINE void drop(Object& o, Handle h, std::int32_t fence_index,
                               ObjectUse& use) noexcept {
    if (!options_.fences) {
      settle(h);
      return;
    }
    o.fenced = true;
    ++use.fenced;
    fenced_at_[static_cast<std::size_t>(fence_index)] = step_;
    fence_links_.push_back(fence_list_, fence_index);
  }

  /// An unreferenced object past its fence: cached if discoverable, else its units are keyless.
  HYBRIDSTATE_INLINE void settle(AttentionHandle a) noexcept {
    Object& o = blocks_[a.value];
    clear_fence(o, blocks_use_);
    if (!o.node) {
      free_block(a);
      return;
    }
    ++blocks_use_.cached;
    organization_.for_each_own_unit(a, [&](int pool, UnitIndex u) { enlist(pool, u); });
    tell_released({ObjectKind::attention, a.value});
  }
  void settle(StateHandle s) noexcept {
    Object& o = states_[s.value];
    bool const was_fenced = clear_fence(o, states_use_);
    auto const let_carrier_go = [&](CarrierHandle c) {
      CarrierUse& use = carriers_[c.at()];
      CarrierUse const before = use;
      was_fenced ? --use.fenced : --use.referenced;
      count_carrier(before, use);
    };
    if (!o.node) {
      o = {};
      // Slot by slot: a slab is idle when the last of the state's slots on it is free.
      organization_.give_back(s, [&](CarrierHandle c, bool empty) {
        let_carrier_go(c);
        if (!empty) idle_carrier(c, false);
      });
      return;
    }
    ++states_use_.cached;
    organization_.for_each_own_unit(s, [&](int pool, UnitIndex u) { enlist(pool, u); });
    organization_.for_each_carrier(s, let_carrier_go);
    organization_.for_each_carrier(s, [&](CarrierHandle c) { idle_carrier(c, true); });
    tell_released({ObjectKind::checkpoint, s.value});
  }
  void free_block(AttentionHandle a) noexcept {
    Object& o = blocks_[a.value];
    payload_tokens_ -= o.filled;
    o = {};
    if (is_tail(a)) [[unlikely]] {
      AttentionHandle const slab = place(a).block;
      if (tails_.give_back(tail_of(a))) organization_.give_back(slab);
    } else {
      organization_.give_back(a);
    }
  }
  static bool clear_fence(Object& o, ObjectUse& use) noexcept {
    if (!o.fenced) return false;
    o.fenced = false;
    --use.fenced;
    return true;
  }
  HYBRIDSTATE_INLINE void enlist(int pool, UnitIndex u) noexcept {
    if (order_.published_end() == ListEnd::back)
      organization_.pool(pool).push_back(u);
    else
      organization_.pool(pool).push_front(u);
  }

  // --- carriers ----------------------------------------------------------------------------------

  /// A slot of the carrier changed: counts, activity, and its unit's place in the list.
  void carrier_step(CarrierHandle c, int referenced, int fenced) noexcept {
    CarrierUse& use = carriers_[c.at()];
    CarrierUse const before = use;
    use.referenced = static_cast<std::uint32_t>(static_cast<int>(use.referenced) + referenced);
    use.fenced = static_cast<std::uint32_t>(static_cast<int>(use.fenced) + fenced);
    if (before.referenced + before.fenced == 0) {
      UnitPool& pool = organization_.pool(Organization::state_pool);
      UnitIndex const u = organization_.carrier_unit(c);
      if (pool.listed(u)) pool.unlist(u);
      organization_.set_active(c, true);
    }
    count_carrier(before, use);
  }
  void count_carrier(CarrierUse before, CarrierUse after) noexcept {
    carriers_referenced_ += (after.referenced > 0 ? 1U : 0U) - (before.referenced > 0 ? 1U : 0U);
    carriers_fenced_ += (after.referenced == 0 && after.fenced > 0 ? 1U : 0U) -
                        (before.referenced == 0 && before.fenced > 0 ? 1U : 0U);
  }
  /// Puts a carrier without active slots into the list; once, whatever the number of its slots.
  void idle_carrier(CarrierHandle c, bool published) noexcept {
    if constexpr (ReclaimOrder::keeps_carriers) return;
    CarrierUse const& use = carriers_[c.at()];
    UnitPool& pool = organization_.pool(Organization::state_pool);
    UnitIndex const u = organization_.carrier_unit(c);
    if (use.referenced + use.fenced > 0 || pool.listed(u)) return;
    organization_.set_active(c, false);
    if (order_.idle_carrier_end(published) == ListEnd::front)
      pool.push_front(u);
    else
      pool.push_back(u);
  }

  // --- publication and loss ----------------------------------------------------------------------

  void publish_blocks(SequenceHandle seq, Sequence& s, Tokens begin, Tokens end,
                      const Committed& done, std::int64_t now) noexcept {
    Tokens const size = block_tokens();
    Units const first = begin / size;
    bool const with_tokens = index_.identity() == BlockIdentity::tokens;
    Tokens const had = begin % size;
    TokenId const* tokens = done.tokens.data();
    AttentionHandle const* row = row_blocks(seq);
    for (Units i = first; i < end / size; ++i) {
      BlockView block;
      if (with_tokens) {
        if (i == first && had > 0) {
          std::memcpy(partial_tokens(seq) + had, tokens, std::size_t{size - had} * sizeof(TokenId));
          block.tokens = partial_tokens(seq);
          tokens += size - had;
        } else {
          block.tokens = tokens;
          tokens += size;
        }
        block.key = done.keys.empty() ? block_key({block.tokens, size}) : done.keys[i - first];
      } else {
        block.key = done.keys[i - first];
      }
      if (!s.tip) continue;  // the table could not hold the path: later blocks stay private
      NodeIndex next = index_.find_child(s.tip, block);
      if (!next) next = index_.add_child(s.tip, block, now);
      hold(next);
      let_go(s.tip);
      s.tip = next;
      if (next && !blocks_[row[i].value].node && (i + 1) * size > s.kv_valid_until)
        attach(row[i], next, s.requester);
    }
    if (with_tokens && end % size != 0)
      std::memcpy(partial_tokens(seq), tokens, std::size_t{end % size} * sizeof(TokenId));
  }

  void publish_state(SequenceHandle, Sequence& s, const HeldState& held) noexcept {
    if (states_[held.state.value].node || !s.tip) return;
    // The tip is the last full block; a boundary inside the chunk hangs on one of its ancestors.
    NodeIndex n = s.tip;
    Units const depth = held.boundary / block_tokens();
    while (n && index_[n].depth > depth) n = {index_[n].parent};
    if (n && index_[n].depth == depth) attach(held.state, n, s.requester);
  }

  void attach(AttentionHandle a, NodeIndex n, std::uint64_t request) noexcept {
    Object& o = blocks_[a.value];
    PrefixNode& node = index_[n];
    o.node = n;
    o.published = step_;
    IndexLinks::List list{node.oldest_unit, node.newest_unit, node.units};
    block_links_.push_back(list, a.value);
    node.oldest_unit = list.head;
    node.newest_unit = list.tail;
    node.units = list.size;
    ++version_;
    ++counters_.published_blocks;
    if (node.units == 2) tell_node_changed(n);
    event_on(n, {.kind = EventKind::publish,
                 .object = ObjectKind::attention,
                 .request = request,
                 .handle = a.value});
  }
  void attach(StateHandle s, NodeIndex n, std::uint64_t request) noexcept {
    Object& o = states_[s.value];
    PrefixNode& node = index_[n];
    o.node = n;
    o.published = step_;
    IndexLinks::List list{node.oldest_state, node.newest_state, 0};
    state_links_.push_back(list, s.value);
    node.oldest_state = list.head;
    node.newest_state = list.tail;
    ++version_;
    ++counters_.published_checkpoints;
    count_below(n, +1);
    tell_published(s);
    event_on(n, {.kind = EventKind::publish,
                 .object = ObjectKind::checkpoint,
                 .request = request,
                 .handle = s.value});
  }
  void count_below([[maybe_unused]] NodeIndex n, [[maybe_unused]] int change) noexcept {
    if constexpr (ReclaimOrder::counts_states_below) {
      for (; n; n = {index_[n].parent}) {
        std::uint32_t const before = index_[n].states_below;
        index_[n].states_below = static_cast<std::uint32_t>(static_cast<int>(before) + change);
        if (before + index_[n].states_below == 1) tell_node_changed(n);
      }
    }
  }

  /// Out of the index; the object itself stays as it is.
  void detach(AttentionHandle a, LossCause cause) noexcept {
    Object& o = blocks_[a.value];
    NodeIndex const n = o.node;
    event_on(n, {.kind = EventKind::loss,
                 .object = ObjectKind::attention,
                 .cause = cause,
                 .request = acting_,
                 .handle = a.value});
    PrefixNode& node = index_[n];
    IndexLinks::List list{node.oldest_unit, node.newest_unit, node.units};
    block_links_.unlink(list, a.value);
    node.oldest_unit = list.head;
    node.newest_unit = list.tail;
    node.units = list.size;
    o.node = {};
    ++version_;
    ++counters_.lost_blocks;
    if (node.units == 1) tell_node_changed(n);
    index_.loosened(n);
  }
  void detach(StateHandle s, LossCause cause) noexcept {
    Object& o = states_[s.value];
    NodeIndex const n = o.node;
    event_on(n, {.kind = EventKind::loss,
                 .object = ObjectKind::checkpoint,
                 .cause = cause,
                 .request = acting_,
                 .handle = s.value});
    PrefixNode& node = index_[n];
    IndexLinks::List list{node.oldest_state, node.newest_state, 1};
    state_links_.unlink(list, s.value);
    node.oldest_state = list.head;
    node.newest_state = list.tail;
    o.node = {};
    ++version_;
    ++counters_.lost_checkpoints;
    if (cause == LossCause::carrier) ++counters_.cross_invalidations;
    count_below(n, -1);
    tell_lost(s, n);
    index_.loosened(n);
  }

  void invalidate(AttentionHandle a, LossCause cause) noexcept {
    Object& o = blocks_[a.value];
    if (!o.node) return;
    bool const cached = o.references == 0 && !o.fenced;
    if (cached)
      reclaim(a, cause);
    else
      detach(a, cause);
  }
  void invalidate(StateHandle s, LossCause cause) noexcept {
    Object& o = states_[s.value];
    if (!o.node) return;
    if (o.references == 0 && !o.fenced) {
      reclaim(s, cause);
      return;
    }
    detach(s, cause);
    // Nobody can find it any more: retention and pins let go.
    std::uint32_t const retained = retained_references_[s.value];
    if (retained > 0) forget_retained(s);
    for (std::uint32_t i = 0; i < retained; ++i) dereference(s);
    for (std::uint32_t i = 0; pins_on_[s.value] > 0; ++i)
      if (sequences_[i].pinned == s) unpin(sequences_[i]);
  }
  void strip(NodeIndex n, LossCause cause) noexcept {
    while (index_[n].oldest_state >= 0) invalidate(StateHandle{index_[n].oldest_state}, cause);
    while (index_[n].oldest_unit >= 0) invalidate(AttentionHandle{index_[n].oldest_unit}, cause);
  }

  /// Every cached object goes; what is referenced or fenced stays discoverable.
  void drop_cached() noexcept {
    auto const cached = [](Object const& o) { return o.node && o.references == 0 && !o.fenced; };
    for (std::int32_t i = 0; i < states_capacity_; ++i)
      if (cached(states_[i])) reclaim(StateHandle{i}, LossCause::cleared);
    for (std::int32_t i = 0; i < blocks_capacity_; ++i)
      if (cached(blocks_[i])) reclaim(AttentionHandle{i}, LossCause::cleared);
  }

  /// A cached object loses its place: out of the index, then its units to the front, keyless.
  void reclaim(AttentionHandle a, LossCause cause) noexcept {
    tell_referenced({ObjectKind::attention, a.value});
    detach(a, cause);
    --blocks_use_.cached;
    count_reclaimed(cause, organization_.unit_use(Organization::attention_pool).attention);
    free_block(a);
  }
  void reclaim(StateHandle s, LossCause cause) noexcept {
    tell_referenced({ObjectKind::checkpoint, s.value});
    detach(s, cause);
    --states_use_.cached;
    UnitUse const use = organization_.unit_use(Organization::state_pool);
    count_reclaimed(cause, use.ssm + use.conv);
    states_[s.value] = {};
    organization_.give_back(s, [](CarrierHandle, bool) {});
  }
  void count_reclaimed(LossCause cause, Units units) noexcept {
    if (cause == LossCause::reassigned || cause == LossCause::carrier ||
        cause == LossCause::reclaimed)
      counters_.reclaimed_units += units;
  }

  /// Before a cached unit changes owner: everything that depends on it leaves the index.
  void lose_owner(int pool, UnitIndex u, LossCause cause) noexcept {
    std::int32_t const handle = organization_.pool(pool).owner_handle(u);
    UnitOwner const owner = organization_.pool(pool).owner(u);
    event({.kind = EventKind::reclaim,
           .object = owner == UnitOwner::attention ? ObjectKind::attention
                     : owner == UnitOwner::state   ? ObjectKind::checkpoint
                                                   : ObjectKind::carrier,
           .cause = cause,
           .pool = static_cast<std::int8_t>(pool),
           .request = acting_,
           .handle = handle});
    switch (owner) {
      case UnitOwner::attention:
        reclaim(AttentionHandle{handle}, cause);
        break;
      case UnitOwner::state:
        reclaim(StateHandle{handle}, cause);
        break;
      case UnitOwner::carrier: {
        CarrierHandle const c{handle};
        ++counters_.reclaimed_units;
        ++counters_.slab_pops;
        organization_.for_each_state_on(c, [&](StateHandle s) { reclaim(s, LossCause::carrier); });
        break;
      }
      case UnitOwner::none:
        break;
    }
  }

  // --- admission ---------------------------------------------------------------------------------

  template <class Gate>
  Admission admit_into(SequenceHandle into, const Prompt& prompt, const AdmitRequest& request,
                       const Gate& gate, const Match* hint) noexcept {
    Admission a;
    a.match = hint != nullptr && hint->version == version_ ? *hint : lookup(prompt);
    Tokens const longest = std::max(request.max_tokens, prompt.length);
    auto refuse = [&](Shortage why) {
      static_cast<Shortage&>(a) = why;
      ++counters_.refusals;
      if (why.refusal == Refusal::wait_pending) ++counters_.waits_for_pending;
      if (why.refusal == Refusal::wait_units && why.pool >= 0) ++counters_.pool_shortages[why.pool];
      event({.kind = EventKind::refuse,
             .refusal = static_cast<std::uint8_t>(why.refusal),
             .pool = why.pool,
             .request = request.requester,
             .salt = prompt.salt,
             .tokens = prompt.length});
      return a;
    };
    if (prompt.extra.size() > options_.key_bytes) return refuse({Refusal::key_bytes, -1, {}, {}});
    if (Shortage const alone = fits_alone(longest); !alone) return refuse(alone);
    if (ceil_div(longest, block_tokens()) > row_blocks_)
      return refuse({Refusal::too_long, -1, {}, {}});
    if (!into && free_sequence_count_ == 0) return refuse({Refusal::sequences, -1, {}, {}});
    if (a.match.pending) return refuse({Refusal::wait_pending, -1, {}, {}});

    Tokens joint = a.match.joint;
    [[maybe_unused]] Tokens const found = joint;
    [[maybe_unused]] LossCause dropped = LossCause::none;
    RequestBoundaries const boundaries{prompt.length, request.junction};
    PoolUnits need = admission_need(boundaries, a.match);
    if (active_ > 0) {
      if (!fits(need)) return refuse(shortage(need));
      AdmissionView view{prompt.length,     joint,  active_,           need,       available(), {},
                         request.requester, freed_, adopting(a.match), crossing(), guarded()};
      for (int pool = 0; pool < pools; ++pool) view.pools[pool] = &organization_.pool(pool);
      if (int const pool = ask(gate, view, this->checkpoint(a.match)); pool >= 0)
        return refuse({Refusal::wait_units, static_cast<std::int8_t>(pool), need, available()});
    } else if (!fits(need)) {
      // Alone, only what one step at a time holds is needed: the surplus of states is waived, then
      // the adoption, then everything cached. What fits alone is never refused for good.
      need = admission_need_alone(boundaries, a.match);
      if (any_pin()) {
        while (!fits(need) && yield_oldest_pin(into))
          need = admission_need_alone(boundaries, a.match);
        settle_yielded_pins(true);
      }
      if (!fits(need)) {
        if (fence_list_.size > 0) return refuse({Refusal::wait_fence, -1, need, available()});
        a.match.joint = joint = 0;
        a.match.joint_node = {};
        need = admission_need_alone(boundaries, a.match);
        if (!fits(need)) {
          a.match.settled = 0;  // what is cleared cannot be adopted
          a.match.raw_node = {};
          acting_ = request.requester;
          drop_cached();
          dropped = LossCause::cleared;
          need = admission_need_alone(boundaries, a.match);
        }
      }
    }
    NodeIndex const root = joint > 0 ? NodeIndex{} : index_.root(prompt.salt, prompt.extra, 0);
    SequenceHandle const seq = into ? into : free_sequences_[--free_sequence_count_];
    StateHandle const pin = into ? at(into).pinned : StateHandle{};
    adopt(seq, prompt, request, a.match, root);
    if (pin) drop_pin(pin);  // after the execution references: it may be what was adopted
    a.sequence = seq;
    a.need = need;
    a.available = available();
    ++counters_.admissions;
    event({.kind = EventKind::admit,
           .cause = dropped,
           .request = request.requester,
           .salt = prompt.salt,
           .boundary = joint,
           .tokens = prompt.length,
           .handle = seq.value,
           .attention = a.match.attention,
           .recurrent = a.match.recurrent,
           .joint = found});
    return a;
  }

  Units adopted_blocks(const Match& m) const noexcept {
    Tokens const upto = options_.reuse_beyond_joint ? std::max(m.settled, m.joint) : m.joint;
    return upto / block_tokens();
  }
  NodeIndex adopted_tip(const Match& m) const noexcept {
    return options_.reuse_beyond_joint && m.settled > m.joint ? m.raw_node : m.joint_node;
  }
  /// Of the blocks that it adopts, those that only the cache holds.
  Units adopted_idle(const Match& m) const noexcept {
    if (options_.reuse_beyond_joint && m.settled > m.joint) return m.settled_idle;
    return m.joint > 0 ? m.joint_idle : 0;
  }
  /// Adds the cached units that would become referenced: of so many blocks, and of J's checkpoint.
  void add_idle(const Match& m, Units blocks, PoolUnits& units) const noexcept {
    units[Organization::attention_pool] +=
        blocks * organization_.unit_use(Organization::attention_pool).attention;
    StateHandle const checkpoint = this->checkpoint(m);
    if (checkpoint && states_[checkpoint.value].idle())
      organization_.for_each_own_unit(checkpoint, [&](int pool, UnitIndex) { ++units[pool]; });
  }
  /// The same of J's own path.
  PoolUnits adopting(const Match& m) const noexcept {
    PoolUnits units;
    add_idle(m, m.joint > 0 ? m.joint_idle : 0, units);
    return units;
  }
  /// What passing one checkpoint boundary takes, without slots.
  PoolUnits crossing() const noexcept {
    PoolUnits units;
    units[Organization::attention_pool] +=
        checkpoint_tokens() / block_tokens() *
        organization_.unit_use(Organization::attention_pool).attention;
    UnitUse const use = organization_.unit_use(Organization::state_pool);
    units[Organization::state_pool] += use.ssm + use.conv;
    return units;
  }
  /// Units under the cached states that the order protects, whole ones.
  PoolUnits guarded() noexcept {
    PoolUnits units;
    if constexpr (ReclaimOrder::counts_requests) {
      double held[max_pools] = {};
      View{*this}.add_units(held, order_.guarded(), 0);
      for (int pool = 0; pool < pools; ++pool) units[pool] = static_cast<Units>(held[pool]);
    }
    return units;
  }
  template <class Gate>
  int ask(const Gate& gate, const AdmissionView& view,
          [[maybe_unused]] StateHandle adopted) noexcept {
    if constexpr (pricing_gate<Gate> && ReclaimOrder::scores_states) {
      if (!gate.stands_by_refusal(view)) {
        Market market;
        View seen{*this};
        order_.offer(seen, adopted, market);
        return gate.refusing_pool(view, market);
      }
    }
    return gate.refusing_pool(view);
  }

  PoolUnits admission_need(RequestBoundaries of, const Match& m,
                           Units most_states = 0xffffffffU) const noexcept {
    Units const adopted = adopted_blocks(m);
    Units const kept = 1 + options_.placement.inside(m.joint, of.prompt, checkpoint_tokens(), of);
    Units blocks = ceil_div(of.prompt, block_tokens()) - adopted;
    if (tails_.parts() > 0 && blocks > 0) {
      std::uint32_t const parts = open_parts(of.prompt);
      if (parts > 0 && tails_.find(parts) >= 0) --blocks;
    }
    PoolUnits need = organization_.need({blocks, std::min(kept, most_states), checkpoint(m)});
    add_idle(m, adopted_idle(m), need);
    return need;
  }
  PoolUnits admission_need_alone(RequestBoundaries of, const Match& m) const noexcept {
    return admission_need(of, m, m.joint > 0 ? 1 : 2);
  }

  void adopt(SequenceHandle seq, const Prompt& prompt, const AdmitRequest& request, const Match& m,
             NodeIndex root) noexcept {
    Sequence& s = at(seq);
    s = Sequence{};
    s.status = Status::active;
    s.requester = request.requester;
    s.boundaries = {prompt.length, request.junction};
    s.position = m.joint;
    ++active_;
    Units const adopted = adopted_blocks(m);
    s.blocks = adopted;
    s.kv_valid_until = adopted * block_tokens();
    s.tip = m.joint > 0 ? m.joint_node : root;
    hold(s.tip);
    AttentionHandle* const row = row_blocks(seq);
    if (m.lookup == last_lookup_) {
      std::copy_n(path_blocks_.data(), adopted, row);
    } else {  // another lookup came between: up the chain of parents, one dependent load a block
      NodeIndex n = adopted_tip(m);
      for (Units i = adopted; i > 0; --i, n = {index_[n].parent})
        row[i - 1] = AttentionHandle{index_[n].oldest_unit};
    }
    reference(row, adopted);
    if (StateHandle const checkpoint = this->checkpoint(m)) {
      reference(checkpoint);
      row_states(seq)[s.states++] = {checkpoint, m.joint};
      s.adopted = checkpoint;
      event_on(m.joint_node, {.kind = EventKind::adopt,
                              .object = ObjectKind::checkpoint,
                              .request = request.requester,
                              .tokens = m.joint,
                              .handle = checkpoint.value});
    }
    if constexpr (ReclaimOrder::scores_states || ReclaimOrder::counts_requests) {
      View view{*this};
      order_.admitted(view, request.requester, s.adopted);
    }
    ++version_;
  }

  // --- reserve -----------------------------------------------------------------------------------

  bool fits(PoolUnits need, PoolUnits extra) const noexcept {
    for (int pool = 0; pool < pools; ++pool)
      if (need[pool] > organization_.pool(pool).available() + extra[pool]) return false;
    return true;
  }

  /// Only a private, unpublished state may be overwritten.
  bool can_continue_in_place(SequenceHandle seq, const Sequence& s) const noexcept {
    if (s.states == 0) return false;
    Object const& o = states_[states(seq)[s.states - 1].state.value];
    return !o.node && o.references == 1;
  }

  /// Gives the superseded states back, deepest first: all but the last. Published ones only, since
  /// that can be undone; says how many units the others will add, and the slots of one of them if
  /// their carriers change with it.
  PoolUnits retire(SequenceHandle seq, Sequence& s, Units& slots) noexcept {
    PoolUnits extra;
    if (leaves_slab(s))
      extra[Organization::attention_pool] +=
          organization_.unit_use(Organization::attention_pool).attention;
    HeldState const* const held = row_states(seq);
    for (std::uint32_t i = s.states; i-- > 1;) {
      StateHandle const state = held[i - 1].state;
      Object const& o = states_[state.value];
      if (o.node) {
        if (!retains(s, state)) dereference(state);
      } else if (o.references == 1 && !options_.fences) {
        organization_.for_each_own_unit(state, [&](int pool, UnitIndex) { ++extra[pool]; });
        slots = 0;
        organization_.for_each_carrier(state, [&](CarrierHandle) { ++slots; });
      }
    }
    return extra;
  }
  /// The state pool's need when private states are about to be given back: their carriers may go
  /// idle and show single free slots, and then first fit may cost a unit for every slot.
  Units most_need(Demand d, Units slots) const noexcept {
    UnitUse const use = organization_.unit_use(Organization::state_pool);
    return d.attention_blocks * use.attention + d.states * (use.ssm + use.conv + slots);
  }
  /// The same once `state` is given up: its carriers may have gone idle.
  void widen(PoolUnits& most, Demand d, StateHandle state) const noexcept {
    Units slots = 0;
    organization_.for_each_carrier(state, [&](CarrierHandle) { ++slots; });
    if (slots > 0)
      most[Organization::state_pool] =
          std::max(most[Organization::state_pool], most_need(d, slots));
  }
  void unretire(SequenceHandle seq, Sequence& s) noexcept {
    HeldState const* const held = row_states(seq);
    for (std::uint32_t i = 0; i + 1 < s.states; ++i)
      if (states_[held[i].state.value].node && !retains(s, held[i].state)) reference(held[i].state);
  }
  void finish_retire(SequenceHandle seq, Sequence& s) noexcept {
    HeldState* const held = row_states(seq);
    for (std::uint32_t i = 0; i + 1 < s.states; ++i)
      if (states_[held[i].state.value].node && retains(s, held[i].state)) retain(seq, s, held[i]);
    for (std::uint32_t i = s.states; i-- > 1;)
      if (Object const& o = states_[held[i - 1].state.value]; o.references > 0 && !o.node)
        dereference(held[i - 1].state);
    for (std::uint32_t i = 0; i + 1 < s.states; ++i) supersede(s, held[i]);
    if (s.states > 1) {
      held[0] = held[s.states - 1];
      s.states = 1;
    }
    if (s.copied_from) dereference(s.copied_from);
    s.copied_from = s.copied_to = {};
  }
  /// The sequence has left a state behind. If decode wrote it, the one that decode left before
  /// goes, unless somebody uses it or another path branches off there.
  void supersede(Sequence& s, const HeldState& left) noexcept {
    if (options_.placement.kind != PlacementKind::junction) return;
    Object const& now = states_[left.state.value];
    if (left.boundary <= s.boundaries.prompt || !now.node) return;
    if (s.decoded) {
      Object const& before = states_[s.decoded.value];
      if (before.node && before.node == s.decoded_at && before.published == s.decoded_in &&
          before.idle() && index_[before.node].kids < 2) {
        acting_ = s.requester;
        reclaim(s.decoded, LossCause::superseded);
      }
    }
    s.decoded = left.state;
    s.decoded_at = now.node;
    s.decoded_in = now.published;
  }

  /// Whole objects go until the demand can be met with keyless units.
  void make_keyless(Demand d) noexcept {
    View view{*this};
    PoolUnits const need = organization_.need(d);
    for (int pool = 0; pool < pools; ++pool) order_.make_keyless(view, pool, need[pool]);
    if constexpr (ReclaimOrder::keeps_carriers) {
      // A carrier that went took free slots with it: its unit is keyless now and may be needed.
      constexpr int pool = Organization::state_pool;
      for (Units n = organization_.need(d)[pool]; organization_.pool(pool).keyless() < n;
           n = organization_.need(d)[pool])
        order_.make_keyless(view, pool, n);
    }
  }

  // --- retention and pinning ---------------------------------------------------------------------

  /// Whether a published state that the sequence is about to give back is kept.
  bool retains(const Sequence& s, StateHandle state) const noexcept {
    Retention const& rule = options_.retention;
    if (rule.mode == RetentionMode::none || !retaining_) return false;
    if (rule.mode == RetentionMode::producer && state == s.adopted) return false;
    return index_[states_[state.value].node].distinct >= rule.distinct;
  }
  /// The reference that the sequence has becomes a retained one.
  void retain(SequenceHandle seq, Sequence& s, const HeldState& held) noexcept {
    HYBRIDSTATE_EXPECT(s.retained < row_states_, "a sequence retains each boundary once",
                       s.retained, row_states_);
    retained_of_sequences_[seq.at() * row_states_ + s.retained++] = held;
    ++retained_references_[held.state.value];
    ++counters_.retained;
  }
  void let_retained_go(SequenceHandle seq, Sequence& s) noexcept {
    while (s.retained > 0) {
      StateHandle const state = retained_of_sequences_[seq.at() * row_states_ + --s.retained].state;
      --retained_references_[state.value];
      dereference(state);
    }
  }

  /// Gives retained boundaries up, least demanded first, until a reserve fits; none if all of them
  /// would not help. With fences their units come later, and the reserve has to wait for them.
  bool yield_retained(Demand d, PoolUnits& most, PoolUnits extra) noexcept {
    Retention const& rule = options_.retention;
    if (rule.mode == RetentionMode::none) return false;
    if (rule.yield == RetentionYield::never && active_ != 1) return false;
    PoolUnits const before = most;
    std::uint32_t given = 0;
    for (StateHandle state; !fits(most, extra) && (state = least_retained());) {
      yielded_[given++] = state;
      for (std::uint32_t i = retained_references_[state.value]; i > 0; --i) dereference(state);
      widen(most, d, state);
    }
    bool const enough = fits(most, extra);
    if (given == 0 || (!enough && !waits_for_fence(most))) {
      while (given > 0) {
        StateHandle const state = yielded_[--given];
        for (std::uint32_t i = retained_references_[state.value]; i > 0; --i) reference(state);
      }
      most = before;
      return false;
    }
    for (std::uint32_t i = 0; i < given; ++i) forget_retained(yielded_[i]);
    counters_.retained_yielded += given;
    return enough;
  }
  /// Of the states that only retention holds; absent without one.
  StateHandle least_retained() const noexcept {
    StateHandle least;
    for (std::int32_t i = 0; i < states_capacity_; ++i) {
      std::uint32_t const references = states_[i].references;
      if (references == 0 || references != retained_references_[i]) continue;
      if (!least || yields_before(states_[i], states_[least.value])) least = {i};
    }
    return least;
  }
  bool yields_before(const Object& a, const Object& b) const noexcept {
    PrefixNode const& x = index_[a.node];
    PrefixNode const& y = index_[b.node];
    if (x.distinct != y.distinct) return x.distinct < y.distinct;
    if (x.depth != y.depth) return x.depth < y.depth;
    return a.published < b.published;
  }
  void forget_retained(StateHandle state) noexcept {
    retained_references_[state.value] = 0;
    for (std::uint32_t i = 0; i < options_.max_sequences; ++i) {
      Sequence& s = sequences_[i];
      HeldState* const row = retained_of_sequences_.data() + std::size_t{i} * row_states_;
      auto const kept = std::remove_if(row, row + s.retained,
                                       [&](const HeldState& h) { return h.state == state; });
      s.retained = static_cast<std::uint32_t>(kept - row);
    }
  }

  /// Keeps the rightmost boundary of a sequence that is being preempted, if its demand and the
  /// protection budget allow.
  void pin_rightmost(Sequence& s) noexcept {
    NodeIndex n = s.tip;
    while (n && (index_[n].oldest_state < 0 || index_[n].depth * block_tokens() > s.position))
      n = {index_[n].parent};
    if (!n || index_[n].distinct < options_.pinning.distinct) return;
    StateHandle const state{index_[n].oldest_state};
    if (pins_on_[state.value] == 0) {
      PoolUnits const with = pinned_units(state, +1);
      for (int pool = 0; pool < pools; ++pool)
        if (static_cast<double>(with[pool]) >
            options_.pinning.protection_budget * organization_.pool(pool).capacity()) {
          ++counters_.pins_over_budget;
          return;
        }
    }
    ++counters_.pins;
    pin(s, state);
    s.preempted_at = counters_.preemptions;
  }
  void pin(Sequence& s, StateHandle state) noexcept {
    if (pins_on_[state.value]++ == 0) pinned_units_ = pinned_units(state, +1);
    reference(state);
    s.pinned = state;
  }
  /// Units under pins once those of one more state, its carriers whole, are added or taken off.
  PoolUnits pinned_units(StateHandle state, int change) const noexcept {
    PoolUnits units = pinned_units_;
    auto const count = [&](int pool) {
      units[pool] = static_cast<Units>(static_cast<int>(units[pool]) + change);
    };
    organization_.for_each_own_unit(state, [&](int pool, UnitIndex) { count(pool); });
    organization_.for_each_carrier(state, [&](CarrierHandle) { count(Organization::state_pool); });
    return units;
  }
  void drop_pin(StateHandle state) noexcept {
    if (--pins_on_[state.value] == 0) pinned_units_ = pinned_units(state, -1);
    dereference(state);
  }
  void unpin(Sequence& s) noexcept {
    StateHandle const state = s.pinned;
    s.pinned = {};
    drop_pin(state);
  }
  /// Lets go of the pin of the longest preempted sequence, that of `last` after all others; its
  /// state, absent without one. settle_yielded_pins() says whether that holds.
  StateHandle yield_oldest_pin(SequenceHandle last) noexcept {
    Sequence* oldest = nullptr;
    for (std::uint32_t i = 0; i < options_.max_sequences; ++i) {
      Sequence& s = sequences_[i];
      if (s.pinned && static_cast<std::int32_t>(i) != last.value &&
          (oldest == nullptr || s.preempted_at < oldest->preempted_at))
        oldest = &s;
    }
    if (oldest == nullptr && last && at(last).pinned) oldest = &at(last);
    if (oldest == nullptr) return {};
    oldest->yielded = oldest->pinned;
    unpin(*oldest);
    return oldest->yielded;
  }
  void settle_yielded_pins(bool keep) noexcept {
    for (std::uint32_t i = 0; i < options_.max_sequences; ++i) {
      Sequence& s = sequences_[i];
      if (!s.yielded) continue;
      if (keep)
        ++counters_.pins_yielded;
      else
        pin(s, s.yielded);
      s.yielded = {};
    }
  }
  bool any_pin() const noexcept { return (pinned_units_[0] | pinned_units_[1]) != 0; }
  /// With no other sequence running, pins may not stand in the way of a reserve; they stay when
  /// giving them up would not help.
  bool yield_pins(Demand d, PoolUnits& most, PoolUnits extra) noexcept {
    if (active_ != 1 || !any_pin()) return false;
    PoolUnits const before = most;
    for (StateHandle state; !fits(most, extra) && (state = yield_oldest_pin({}));)
      widen(most, d, state);
    bool const enough = fits(most, extra);
    bool const keep = enough || waits_for_fence(most);
    settle_yielded_pins(keep);
    if (!keep) most = before;
    return enough;
  }

  /// With no other sequence running, what is cached may not stand in the way: an idle slab with too
  /// few free slots can cost a unit more than a new one.
  bool make_room_alone(Demand d, PoolUnits extra) noexcept {
    if (active_ != 1) return false;
    set_idle_carriers(false);
    if (ReclaimOrder::keeps_carriers) extra[Organization::state_pool] += idle_carriers();
    bool const room = fits(organization_.need(d, SlabUse::active), extra);
    set_idle_carriers(true);
    if (room) drop_cached();
    return room;
  }

  /// Under an order that keeps carriers all of them lend their free slots: whether idle ones do.
  void set_idle_carriers([[maybe_unused]] bool active) noexcept {
    if constexpr (ReclaimOrder::keeps_carriers) {
      UnitPool const& pool = organization_.pool(Organization::state_pool);
      for (std::int32_t u = 0; u < static_cast<std::int32_t>(pool.capacity()); ++u)
        if (pool.owner({u}) == UnitOwner::carrier &&
            carriers_[u].referenced + carriers_[u].fenced == 0)
          organization_.set_active(CarrierHandle{u}, active);
    }
  }

  AttentionHandle take_units() noexcept {
    AttentionHandle const a = organization_.take_attention(
        [this](int pool, UnitIndex u) { lose_owner(pool, u, LossCause::reassigned); });
    HYBRIDSTATE_EXPECT(a, "need() covers every attention unit", available()[0],
                       organization_.pool(Organization::attention_pool).capacity());
    return a;
  }
  AttentionHandle take_block(const Sequence& s) noexcept { return begin_block(s, take_units()); }
  AttentionHandle begin_block(const Sequence& s, AttentionHandle a) noexcept {
    blocks_[a.value] = {};
    blocks_[a.value].references = 1;
    blocks_[a.value].live = true;
    ++blocks_use_.referenced;
    event({.kind = EventKind::allocate,
           .object = ObjectKind::attention,
           .request = s.requester,
           .handle = a.value});
    return a;
  }
  StateHandle take_state(const Sequence& s) noexcept {
    StateHandle const state = organization_.take_state(
        [this](int pool, UnitIndex u) { lose_owner(pool, u, LossCause::reassigned); });
    HYBRIDSTATE_EXPECT(state, "need() covers every unit of a state", s.position, s.states);
    states_[state.value] = {};
    states_[state.value].references = 1;
    states_[state.value].live = true;
    ++states_use_.referenced;
    organization_.for_each_carrier(state, [&](CarrierHandle c) { carrier_step(c, +1, 0); });
    event({.kind = EventKind::allocate,
           .object = ObjectKind::checkpoint,
           .request = s.requester,
           .handle = state.value});
    return state;
  }

  // --- tails -------------------------------------------------------------------------------------

  bool is_tail(AttentionHandle a) const noexcept { return a.value >= first_tail_; }
  std::int32_t tail_of(AttentionHandle a) const noexcept { return a.value - first_tail_; }
  /// Parts of a sequence's last block when it has so many tokens; 0: a whole block.
  std::uint32_t open_parts(Tokens tokens) const noexcept {
    std::uint32_t const parts = ceil_div(tokens % block_tokens(), options_.tail_tokens);
    return parts < tails_.parts() ? parts : 0;
  }
  /// Whether the tail's old place goes with the next reserve, and its slab with it.
  bool leaves_slab(const Sequence& s) const noexcept {
    return s.copied_from && is_tail(s.copied_from) && !options_.fences &&
           blocks_[s.copied_from.value].references == 1 && tails_.alone(tail_of(s.copied_from));
  }

  /// Without tails every block is whole. With them, a new last block and one that is copied go to
  /// the first place that holds them; the tail that is there stays, grows in place, becomes the
  /// block that it lies in if it is alone there, or is copied.
  HYBRIDSTATE_INLINE BlockPlan plan_blocks(SequenceHandle seq, const Sequence& s,
                                           Units blocks_after, Tokens end) const noexcept {
    BlockPlan plan;
    plan.blocks = blocks_after - s.blocks + (s.copy_from ? 1 : 0);
    plan.copies = static_cast<bool>(s.copy_from);
    plan.changes = plan.blocks != 0;
    if (tails_.parts() > 0) plan_tails(seq, s, blocks_after, end, plan);
    return plan;
  }
  void plan_tails(SequenceHandle seq, const Sequence& s, Units blocks_after, Tokens end,
                  BlockPlan& plan) const noexcept {
    bool const grows_row = blocks_after > s.blocks;
    std::uint32_t const last = open_parts(end);
    AttentionHandle const open = s.blocks > 0 ? blocks(seq)[s.blocks - 1] : AttentionHandle{};
    if (grows_row) plan.new_parts = last;
    if (!grows_row) plan.parts = last;
    if (!plan.copies && open && is_tail(open) && plan.parts != tails_.size(tail_of(open))) {
      std::int32_t const tail = tail_of(open);
      if (plan.parts > 0 && tails_.can_grow(tail, plan.parts))
        plan.tail = TailChange::grown;
      else if (plan.parts == 0 && tails_.part(tail) == 0 && tails_.alone(tail) &&
               blocks_[open.value].references == 1)
        plan.tail = TailChange::filled;
      else
        plan.tail = TailChange::moved;
      plan.copies = plan.tail == TailChange::moved;
      plan.changes = true;
      if (plan.copies) ++plan.blocks;
    }
    std::uint32_t const placed = grows_row ? plan.new_parts : plan.copies ? plan.parts : 0;
    std::int32_t const left =
        leaves_slab(s) ? tails_.block(tail_of(s.copied_from)) : TailSlabs::none;
    std::int32_t const filled =
        plan.tail == TailChange::filled ? tails_.block(tail_of(open)) : TailSlabs::none;
    if (placed > 0 && tails_.find(placed, left, filled) >= 0) --plan.blocks;
  }
  void place_blocks(SequenceHandle seq, Sequence& s, Units blocks_after,
                    const BlockPlan& plan) noexcept {
    AttentionHandle* const row = row_blocks(seq);
    s.tail = plan.tail;
    AttentionHandle const open = s.blocks > 0 ? row[s.blocks - 1] : AttentionHandle{};
    if (plan.tail != TailChange::none) s.old_parts = tails_.size(tail_of(open));
    if (plan.tail == TailChange::grown) {
      tails_.resize(tail_of(open), plan.parts);
      ++counters_.tails_grown;
    } else if (plan.tail == TailChange::filled) {
      row[s.blocks - 1] = fill_slab(open);
      ++counters_.tails_filled;
    }
    while (s.blocks < blocks_after) {
      bool const last = s.blocks + 1 == blocks_after;
      row[s.blocks++] = last && plan.new_parts > 0 ? take_tail(s, plan.new_parts) : take_block(s);
    }
    if (plan.copies) copy_partial_block(seq, s, plan.parts);
  }

  AttentionHandle take_tail(const Sequence& s, std::uint32_t parts) noexcept {
    std::int32_t tail = tails_.find(parts);
    if (tail < 0) {
      AttentionHandle const slab = take_units();
      tail = slab.value * static_cast<std::int32_t>(tails_.parts());
    }
    tails_.take(tail, parts);
    return begin_block(s, {first_tail_ + tail});
  }
  /// A tail that is alone on its slab becomes the block that the slab was.
  AttentionHandle fill_slab(AttentionHandle tail) noexcept {
    AttentionHandle const block = place(tail).block;
    tails_.give_back(tail_of(tail));
    blocks_[block.value] = std::exchange(blocks_[tail.value], {});
    return block;
  }
  void unfill_tail(AttentionHandle& block, std::uint32_t parts) noexcept {
    std::int32_t const tail = block.value * static_cast<std::int32_t>(tails_.parts());
    tails_.take(tail, parts);
    blocks_[first_tail_ + tail] = std::exchange(blocks_[block.value], {});
    block = {first_tail_ + tail};
  }
  /// Tails, and slabs by the strongest claim on any of their tails.
  TailUse tail_use() const noexcept {
    TailUse use;
    tails_.for_each_slab([&](std::int32_t slab) {
      Units referenced = 0;
      Units all = 0;
      tails_.for_each_tail(slab, [&](std::int32_t tail) {
        ++all;
        referenced += blocks_[first_tail_ + tail].references > 0 ? 1U : 0U;
      });
      use.tails.referenced += referenced;
      use.tails.fenced += all - referenced;
      ++(referenced > 0 ? use.slabs.referenced : use.slabs.fenced);
    });
    return use;
  }

  /// The open block of a fork or a tail, to parts of a slab or to a whole block.
  void copy_partial_block(SequenceHandle seq, Sequence& s, std::uint32_t parts) noexcept {
    Tokens const tokens = s.position % block_tokens();
    Bytes const bytes = tokens * organization_.attention_payload_bytes_per_token();
    AttentionHandle& open = row_blocks(seq)[s.position / block_tokens()];
    if (s.tail == TailChange::moved) {
      s.copy_from = open;
      ++counters_.tail_copies;
      counters_.tail_copied_bytes += bytes;
    }
    AttentionHandle const to = parts > 0 ? take_tail(s, parts) : take_block(s);
    open = to;
    blocks_[to.value].filled = tokens;
    payload_tokens_ += tokens;
    s.copied_from = s.copy_from;
    s.copied_to = to;
    s.copy_from = {};
    copy_list_[copies_++] = {s.copied_from, to, tokens, bytes};
  }
  void undo_copy(SequenceHandle seq, Sequence& s) noexcept {
    for (std::uint32_t i = 0; i < copies_; ++i)
      if (copy_list_[i].to == s.copied_to) {
        std::copy(&copy_list_[i] + 1, &copy_list_[copies_], &copy_list_[i]);
        --copies_;
        break;
      }
    dereference(s.copied_to);
    row_blocks(seq)[s.position / block_tokens()] = s.copied_from;
    if (s.tail != TailChange::moved) s.copy_from = s.copied_from;
    s.copied_from = s.copied_to = {};
  }

  /// Committed KV of [begin, end) lands in the sequence's own blocks.
  void fill_blocks(SequenceHandle seq, Tokens begin, Tokens end) noexcept {
    Tokens const size = block_tokens();
    while (begin < end) {
      Tokens const stop = std::min(end, (begin / size + 1) * size);
      blocks_[row_blocks(seq)[begin / size].value].filled += stop - begin;
      payload_tokens_ += stop - begin;
      begin = stop;
    }
  }

  void let_go_of_everything(SequenceHandle seq, Sequence& s) noexcept {
    abort(seq);
    dereference(row_blocks(seq), s.blocks);
    s.blocks = 0;
    HeldState const* const held = row_states(seq);
    std::uint32_t const states = s.states;
    while (s.states > 0) dereference(held[--s.states].state);
    for (std::uint32_t i = 0; i < states; ++i) supersede(s, held[i]);
    let_retained_go(seq, s);
    if (s.copied_from) dereference(s.copied_from);
    s.copy_from = s.copied_from = s.copied_to = {};
    let_go(s.tip);
    s.tip = {};
    --active_;
  }

  CacheOptions options_;
  Organization organization_;
  ReclaimOrder order_;
  [[no_unique_address]] Observer observer_;
  PrefixIndex index_;
  TailSlabs tails_;
  std::int32_t first_tail_ = 0;  ///< handles from here on are tails, below blocks
  std::int32_t blocks_capacity_ = 0;
  std::int32_t states_capacity_ = 0;
  FixedArray<Object> blocks_;
  FixedArray<Object> states_;
  IndexLinks block_links_;  ///< attention on one node, oldest first
  IndexLinks state_links_;
  IndexLinks fence_links_;  ///< blocks, then states
  IndexLinks::List fence_list_;
  FixedArray<Step> fenced_at_;
  FixedArray<CarrierUse> carriers_;
  Units carriers_referenced_ = 0;
  Units carriers_fenced_ = 0;
  ObjectUse blocks_use_;
  ObjectUse states_use_;
  std::uint64_t payload_tokens_ = 0;

  FixedArray<Sequence> sequences_;
  FixedArray<AttentionHandle> blocks_of_sequences_;
  FixedArray<HeldState> states_of_sequences_;
  FixedArray<HeldState> retained_of_sequences_;
  FixedArray<std::uint32_t> retained_references_;  ///< of each state, by retention alone
  FixedArray<StateHandle> yielded_;
  bool retaining_ = true;
  FixedArray<std::uint32_t> pins_on_;
  PoolUnits pinned_units_;
  FixedArray<TokenId> partial_tokens_;
  FixedArray<SequenceHandle> free_sequences_;
  std::uint32_t free_sequence_count_ = 0;
  Units row_blocks_ = 0;
  // The attention blocks that the last lookup passed, so that the admission that follows it finds
  // them without walking the tree again. A memo, not state: nothing that is observable.
  mutable FixedArray<AttentionHandle> path_blocks_;
  mutable std::uint64_t last_lookup_ = 0;
  std::uint32_t row_states_ = 0;
  std::uint32_t active_ = 0;
  FixedArray<BlockCopy> copy_list_;
  std::uint32_t copies_ = 0;

  Step step_ = 0;
  std::uint64_t version_ = 0;
  std::uint64_t stamp_ = 0;
  std::uint64_t freed_ = 0;   ///< rises whenever objects become available
  std::uint64_t acting_ = 0;  ///< requester of the current operation, for loss events
  CacheCounters counters_;
  MetricsBoard metrics_;
};

HYBRIDSTATE_NAMESPACE_END

#include <hybridstate/cache/invariants.hpp>
