// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/hash.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/index/prefix_index.hpp>
#include <hybridstate/policy/placement.hpp>
#include <hybridstate/policy/retention.hpp>
#include <span>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A request's prompt as the cache sees it; everything is borrowed for the length of one call.
struct Prompt {
  Tokens length = 0;
  std::span<const TokenId> tokens;   ///< `length` ids, under BlockIdentity::tokens
  std::span<const BlockKey> keys;    ///< one per full block; optional beside tokens, ids otherwise
  std::uint64_t salt = 0;            ///< nothing is shared between different salts
  std::span<const std::byte> extra;  ///< further key bytes: adapter, image hash, tenant, …

  /// Real tokens; `keys` (as block_key gives them) saves hashing them again.
  static Prompt of_tokens(std::span<const TokenId> tokens, std::uint64_t salt = 0,
                          std::span<const BlockKey> keys = {}) noexcept {
    return {static_cast<Tokens>(tokens.size()), tokens, keys, salt, {}};
  }
  /// Exact ids of the full blocks, which are trusted.
  static Prompt of_blocks(Tokens length, std::span<const BlockKey> ids,
                          std::uint64_t salt = 0) noexcept {
    return {length, {}, ids, salt, {}};
  }
};

/// Tokens that a step computed, in order; for trusted ids the number of tokens and the ids of the
/// blocks that they complete.
struct Committed {
  Tokens count = 0;
  std::span<const TokenId> tokens;
  std::span<const BlockKey> keys;

  static Committed of_tokens(std::span<const TokenId> tokens) noexcept {
    return {static_cast<Tokens>(tokens.size()), tokens, {}};
  }
  static Committed of_blocks(Tokens count, std::span<const BlockKey> completed) noexcept {
    return {count, {}, completed};
  }
};

/// Why a lookup found no joint boundary, or a shallower one than the attention prefix.
enum class MissReason : std::uint8_t {
  none,        ///< J reaches A
  cold,        ///< neither attention nor a checkpoint is known for this prefix
  attention,   ///< a checkpoint exists, but the attention prefix does not reach it
  checkpoint,  ///< attention exists, but no checkpoint as deep as it
  key_bytes,   ///< more extra key bytes than the index holds
};

/// The answer of a lookup. A, R and J are usable boundaries: at most length - 1.
struct Match {
  Tokens attention = 0;  ///< A: deepest checkpoint boundary inside the contiguous attention prefix
  Tokens recurrent = 0;  ///< R: deepest complete checkpoint on the chain
  Tokens joint = 0;      ///< J: deepest joint boundary
  Tokens raw = 0;        ///< tokens of the contiguous attention prefix, whole blocks
  bool pending = false;  ///< the objects of J were published in the current step
  MissReason reason = MissReason::cold;
  NodeIndex joint_node;       ///< node of J
  NodeIndex raw_node;         ///< node of the last settled (not pending) block of the raw match
  Tokens settled = 0;         ///< tokens up to raw_node
  Units joint_idle = 0;       ///< of the blocks up to J, those that no sequence references
  Units settled_idle = 0;     ///< the same up to raw_node
  std::uint64_t version = 0;  ///< of the cache; a match of an older version is looked up again
  std::uint64_t lookup = 0;   ///< which lookup made it; the cache remembers the blocks of the last
};

enum class Refusal : std::uint8_t {
  none,
  never_fits,    ///< larger than the pool can hold even alone
  wait_units,    ///< not enough available units, or the gate says wait
  wait_pending,  ///< J was published in this very step, or no more copies fit into it
  wait_fence,    ///< enough units once a fence completes
  sequences,     ///< all sequence slots are in use
  too_long,      ///< longer than max_sequence_tokens
  key_bytes,     ///< more extra key bytes than configured
};

/// The outcome of an admission or a reserve. On refusal nothing changed; pool, need and available
/// name the pool that was short (-1: none).
struct Shortage {
  Refusal refusal = Refusal::none;
  std::int8_t pool = -1;
  PoolUnits need;
  PoolUnits available;

  explicit operator bool() const noexcept { return refusal == Refusal::none; }
};

struct Admission : Shortage {
  SequenceHandle sequence;
  Match match;
};

/// Who asks to be admitted, and how far the sequence may grow.
struct AdmitRequest {
  std::uint64_t requester = 0;  ///< identity for demand counts and events
  Tokens max_tokens = 0;        ///< prompt + maximum output; 0: the prompt's length
  Tokens junction = 0;          ///< Entry::known of a split entry, for PlacementKind::junction
};

/// Demand seen at enter().
struct Entry {
  Tokens known = 0;    ///< tokens of the deepest known node of the path
  bool split = false;  ///< that node already had children and this path leaves it
};

/// A state that a sequence holds and the boundary at which it is, or will be after the open step.
struct HeldState {
  StateHandle state;
  Tokens boundary = 0;
};

/// Bytes to copy before the next step runs, in the order of the list: the partial block of a fork,
/// or a tail that could not grow in place.
struct BlockCopy {
  AttentionHandle from;
  AttentionHandle to;
  Tokens tokens = 0;  ///< the first `tokens` of the block
  Bytes bytes = 0;    ///< over all groups
};

/// Where an attention handle's bytes lie: token t of the block is token `offset` + t of a block
/// that the organization knows. The offset is 0 but for tails, which share a block with others.
struct AttentionPlace {
  AttentionHandle block;
  Tokens offset = 0;
};

/// A byte range of an object inside a pool, in bytes of one layer group.
struct Extent {
  std::int8_t pool = 0;
  std::int8_t carrier = 0;  ///< 1: a slot inside a shared unit; for a tail the unit that it shares
  std::int64_t unit = -1;
  Bytes offset = 0;  ///< from the pool's base
  Bytes bytes = 0;
};

/// Occupancy of one pool in units: keyless + cached + referenced + fenced = capacity.
struct PoolUsage {
  Units capacity = 0;
  Units keyless = 0;
  Units cached = 0;
  Units referenced = 0;
  Units fenced = 0;
  Units unit_count() const noexcept { return keyless + cached + referenced + fenced; }
  // The referenced and the cached units again, by what they hold.
  Units attention_referenced = 0, ssm_referenced = 0, conv_referenced = 0;
  Units attention_cached = 0, ssm_cached = 0, conv_cached = 0;
};

struct Usage {
  PoolUsage pool[max_pools];
  Bytes attention_payload = 0;  ///< KV bytes of committed tokens in live blocks
  Bytes state_payload = 0;      ///< SSM and convolution bytes of live states
  Bytes allocated = 0;          ///< bytes of units that are not keyless
};

/// Published checkpoints that no sequence references.
struct CachedCheckpoints {
  Units all = 0;
  Units orphaned = 0;  ///< attention is lost on their path: nobody can adopt them
};

/// Running totals since construction.
struct CacheCounters {
  std::uint64_t admissions = 0;
  std::uint64_t refusals = 0;
  std::uint64_t waits_for_pending = 0;
  std::uint64_t reserves = 0;
  std::uint64_t failed_reserves = 0;
  std::uint64_t reserves_without_need = 0;  ///< granted ones that took no unit
  std::uint64_t pool_shortages[max_pools] = {0, 0};
  std::uint64_t published_blocks = 0;
  std::uint64_t published_checkpoints = 0;
  std::uint64_t lost_blocks = 0;
  std::uint64_t lost_checkpoints = 0;
  std::uint64_t reclaimed_units = 0;      ///< cached units that changed owner or became keyless
  std::uint64_t cross_invalidations = 0;  ///< checkpoints lost with their slab page
  std::uint64_t slab_pops = 0;            ///< slab pages reassigned with cached checkpoints on them
  std::uint64_t preemptions = 0;
  std::uint64_t releases = 0;
  // Demand, retention and pinning.
  std::uint64_t eligible_boundaries = 0;  ///< grid nodes that reached the distinct requesters
  std::uint64_t retained = 0;             ///< boundaries kept instead of given back
  std::uint64_t retained_yielded = 0;     ///< of them, given back before their holder ended
  std::uint64_t pins = 0;                 ///< boundaries pinned at a preemption
  std::uint64_t pins_over_budget = 0;     ///< eligible ones that the protection budget refused
  std::uint64_t pins_yielded = 0;         ///< pins given up before their sequence came back
  // Tails (CacheOptions::tail_tokens); undone ones count.
  std::uint64_t tails_grown = 0;        ///< in place, by parts
  std::uint64_t tails_filled = 0;       ///< alone on their slab, they became its block in place
  std::uint64_t tail_copies = 0;        ///< copied to where they could grow
  std::uint64_t tail_copied_bytes = 0;  ///< over all groups, of one layer each
};

/// Sizes and behaviour of a JointCache.
struct CacheOptions {
  std::uint32_t max_sequences = 256;  ///< admitted and preempted ones together
  Tokens max_sequence_tokens = 0;     ///< 0: what the pool can hold
  BlockIdentity identity = BlockIdentity::tokens;
  bool fences = false;           ///< units given back wait for complete(step)
  std::uint32_t key_bytes = 32;  ///< most extra key bytes of a prompt
  std::uint32_t bare_nodes_per_unit = 8;
  Placement placement;
  bool reuse_beyond_joint = false;  ///< reference cached attention past J instead of duplicating
  Retention retention;
  Pinning pinning;
  /// A sequence's last, partial block takes parts of this many tokens of a block that it shares
  /// with the tails of others, until it needs all of them; 0: a whole block, always. Must divide
  /// the block into 2 to 64 parts.
  Tokens tail_tokens = 0;
};

HYBRIDSTATE_NAMESPACE_END
