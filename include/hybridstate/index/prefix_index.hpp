// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/contract.hpp>
#include <hybridstate/core/hash.hpp>
#include <hybridstate/core/list.hpp>
#include <hybridstate/core/types.hpp>
#include <span>

HYBRIDSTATE_NAMESPACE_BEGIN

/// How the equality of two blocks is decided once their keys agree.
enum class BlockIdentity : std::uint8_t {
  tokens,      ///< by the tokens, which nodes keep; a key may collide
  trusted_id,  ///< the key is an exact id, as in traces that publish block ids
};

/// One block as the index sees it: its key and, under BlockIdentity::tokens, its tokens.
struct BlockView {
  BlockKey key = 0;
  const TokenId* tokens = nullptr;
};

/// The most distinct requesters that a node tells apart; counts saturate one above.
inline constexpr std::uint32_t max_counted_requesters = 3;

/// A node of the prefix tree. Attention units, checkpoints and demand counts hang on it.
struct alignas(64) PrefixNode {
  // Read by every lookup: one cache line.
  BlockKey key = 0;
  std::uint64_t path = 0;    ///< hash of the keys from the root to here: the place in the table
  std::int32_t parent = -1;  ///< -1: a root, one per salt and key bytes
  std::int32_t oldest_unit = -1;   ///< attention blocks on this node, oldest first
  std::int32_t oldest_state = -1;  ///< checkpoints on this node, oldest first
  std::uint32_t depth = 0;         ///< blocks from the root: the node ends at depth * block_tokens
  std::int32_t newest_unit = -1;
  std::int32_t newest_state = -1;
  std::uint32_t children = 0;      ///< nodes whose parent this is
  std::uint32_t holds = 0;         ///< running sequences whose last full block this is
  std::uint32_t units = 0;         ///< attention blocks on this node
  std::uint32_t states_below = 0;  ///< published states on this node and below, when counted
  std::uint32_t generation = 0;    ///< changes when the node is created again
  // Demand, written by enter().
  std::uint32_t kids = 0;      ///< distinct children seen; a removed child counts no more
  std::uint32_t exits = 0;     ///< requests whose known path ended here or before the next
                               ///< boundary of the checkpoint grid
  std::uint32_t distinct = 0;  ///< distinct requesters, saturating above max_counted_requesters
  std::uint64_t requesters[max_counted_requesters] = {};
  std::uint64_t touched = 0;  ///< stamp of the last enter() over this node
  std::int64_t first_seen_ns = 0;
  std::int64_t last_exit_ns = 0;
  std::uint64_t salt = 0;
};

/// A fixed-capacity table of prefix nodes with a hash from the keys of a path to its last node. A
/// key only finds a candidate; parent and tokens confirm it, and a colliding prefix gets a node of
/// its own. The hash of a path needs no node on it, so that a lookup may run ahead of its memory.
/// When the table is full the least recently touched childless node with nothing on it goes.
class PrefixIndex {
 public:
  PrefixIndex() = default;

  /// `nodes` bounds the table; `key_bytes` bounds the extra bytes of a root.
  PrefixIndex(std::uint32_t nodes, Tokens block_tokens, BlockIdentity identity,
              std::uint32_t key_bytes)
      : capacity_(nodes),
        block_tokens_(block_tokens),
        identity_(identity),
        key_bytes_(key_bytes),
        nodes_(FixedArray<PrefixNode>(nodes)),
        recency_(nodes),
        buckets_(FixedArray<Bucket>(std::bit_ceil(std::uint64_t{nodes} * 2))),
        mask_(static_cast<std::uint32_t>(std::bit_ceil(std::uint64_t{nodes} * 2) - 1)),
        free_(FixedArray<std::int32_t>(nodes)),
        free_count_(nodes) {
    if (identity == BlockIdentity::tokens)
      tokens_ = FixedArray<TokenId>(std::size_t{nodes} * block_tokens);
    extra_ = FixedArray<unsigned char>(std::size_t{nodes} * key_bytes);
    extra_size_ = FixedArray<std::uint32_t>(nodes);
    for (std::uint32_t i = 0; i < nodes; ++i) free_[i] = static_cast<std::int32_t>(nodes - 1 - i);
  }

  std::uint32_t capacity() const noexcept { return capacity_; }
  std::uint32_t size() const noexcept { return capacity_ - free_count_; }
  std::uint32_t key_bytes() const noexcept { return key_bytes_; }
  BlockIdentity identity() const noexcept { return identity_; }
  Tokens block_tokens() const noexcept { return block_tokens_; }

  PrefixNode& operator[](NodeIndex n) noexcept { return nodes_[n.at()]; }
  const PrefixNode& operator[](NodeIndex n) const noexcept { return nodes_[n.at()]; }
  bool alive(NodeIndex n) const noexcept { return n && nodes_[n.at()].depth != dead; }

  /// The root of a salt and its extra key bytes, or absent.
  NodeIndex find_root(std::uint64_t salt, std::span<const std::byte> extra) const noexcept {
    BlockKey const key = root_key(salt, extra);
    return probe(-1, key, path_to(root_path, key), [&](std::int32_t n) {
      return nodes_[n].salt == salt && extra_size_[n] == extra.size() &&
             (extra.empty() || std::memcmp(extra_of(n), extra.data(), extra.size()) == 0);
    });
  }

  /// The child of `parent` that holds exactly this block, or absent.
  NodeIndex find_child(NodeIndex parent, BlockView block) const noexcept {
    return find_child(parent, block, path_to(nodes_[parent.at()].path, block.key));
  }

  /// The same when the hash of the child's path is known already.
  NodeIndex find_child(NodeIndex parent, BlockView block, std::uint64_t path) const noexcept {
    return probe(parent.value, block.key, path,
                 [&](std::int32_t n) { return same_block(n, block.tokens); });
  }

  /// Walks down from `root` along `blocks` blocks and calls visit(node) for each that exists, until
  /// one does not; returns the last one, or `root`. With keys given (one a block) the walk asks for
  /// memory ahead of its steps, so that their latencies overlap; without them (null) it hashes the
  /// tokens as it goes.
  template <class Visit>
  HYBRIDSTATE_INLINE NodeIndex descend(NodeIndex root, std::uint32_t blocks, const BlockKey* keys,
                                       const TokenId* tokens, Visit&& visit) const noexcept {
    if (keys == nullptr) {
      NodeIndex at = root;
      for (; blocks > 0; --blocks, tokens += block_tokens_) {
        NodeIndex const next = find_child(at, {block_key({tokens, block_tokens_}), tokens});
        if (!next) break;
        visit(at = next);
      }
      return at;
    }
    if (tokens == nullptr) return descend_keyed(root, blocks, keys, tokens, TrustedId{}, visit);
    if (block_tokens_ == 16)
      return descend_keyed(root, blocks, keys, tokens, SixteenTokens{}, visit);
    return descend_keyed(root, blocks, keys, tokens, AnyTokens{block_tokens_}, visit);
  }

  /// The hash of a path one block longer.
  static std::uint64_t path_to(std::uint64_t parent_path, BlockKey key) noexcept {
    return detail::fold_product(parent_path ^ key, detail::hash_mul[0]) ^ parent_path;
  }

  /// The hash of the empty path under a salt and its extra key bytes, whether or not it has a root.
  static std::uint64_t path_of_root(std::uint64_t salt, std::span<const std::byte> extra) noexcept {
    return path_to(root_path, root_key(salt, extra));
  }

  /// Finds or makes a root; absent when no node can be had or the bytes are too many.
  NodeIndex root(std::uint64_t salt, std::span<const std::byte> extra, std::int64_t now) noexcept {
    if (NodeIndex const n = find_root(salt, extra)) return n;
    if (extra.size() > key_bytes_) return {};
    NodeIndex const n = make(-1, root_key(salt, extra), 0, salt, now);
    if (!n) return {};
    extra_size_[n.at()] = static_cast<std::uint32_t>(extra.size());
    if (!extra.empty()) std::memcpy(extra_of(n.value), extra.data(), extra.size());
    return n;
  }

  /// Makes a child that find_child did not find; absent when no node can be had.
  NodeIndex add_child(NodeIndex parent, BlockView block, std::int64_t now) noexcept {
    PrefixNode& up = (*this)[parent];
    ++up.holds;  // the parent must survive making room for its child
    NodeIndex const n = make(parent.value, block.key, up.depth + 1, up.salt, now);
    --up.holds;
    if (!n) {
      loosened(parent);  // it may have been passed over while it was held
      return {};
    }
    if (identity_ == BlockIdentity::tokens)
      std::memcpy(tokens_of(n.value), block.tokens, std::size_t{block_tokens_} * sizeof(TokenId));
    ++up.children;
    ++up.kids;
    return n;
  }

  /// On the path of an enter(): most recently touched.
  void touch(NodeIndex n, std::uint64_t stamp) noexcept {
    nodes_[n.at()].touched = stamp;
    if (recency_.linked(n.value)) recency_.unlink(recent_, n.value);
    recency_.push_back(recent_, n.value);
  }

  /// Call after something left the node: it may have become removable.
  void loosened(NodeIndex n) noexcept {
    if (recency_.linked(n.value) || !removable(n)) return;
    // It was passed over as the least recent one, so its place is at or near the front.
    std::int32_t after = IndexLinks::end;
    for (std::int32_t at = recent_.head; at != IndexLinks::end; at = recency_.next(at)) {
      if (nodes_[at].touched > nodes_[n.at()].touched) break;
      after = at;
    }
    recency_.insert_after(recent_, after, n.value);
  }

  /// Counts a requester that the node has not seen; says whether the count grew.
  bool count_requester(NodeIndex n, std::uint64_t requester) noexcept {
    PrefixNode& node = nodes_[n.at()];
    for (std::uint32_t i = 0; i < node.distinct && i < max_counted_requesters; ++i)
      if (node.requesters[i] == requester) return false;
    if (node.distinct > max_counted_requesters) return false;
    if (node.distinct < max_counted_requesters) node.requesters[node.distinct] = requester;
    ++node.distinct;
    return true;
  }

  bool removable(NodeIndex n) const noexcept {
    PrefixNode const& node = nodes_[n.at()];
    return node.children == 0 && node.holds == 0 && node.oldest_unit < 0 && node.oldest_state < 0;
  }

  /// A node that nothing lives on any more is created again with another generation.
  std::uint32_t generation(NodeIndex n) const noexcept { return nodes_[n.at()].generation; }

 private:
  static constexpr std::uint32_t dead = 0xffffffffU;
  struct Bucket {
    std::int32_t node = -1;
    std::uint32_t tag = 0;
  };

  static constexpr std::uint64_t root_path = detail::hash_mul[1];

  static BlockKey root_key(std::uint64_t salt, std::span<const std::byte> extra) noexcept {
    return detail::hash_bytes(extra.data(), extra.size(), salt);
  }
  TokenId* tokens_of(std::int32_t n) noexcept {
    return tokens_.data() + static_cast<std::size_t>(n) * block_tokens_;
  }
  const TokenId* tokens_of(std::int32_t n) const noexcept {
    return tokens_.data() + static_cast<std::size_t>(n) * block_tokens_;
  }
  unsigned char* extra_of(std::int32_t n) noexcept {
    return extra_.data() + static_cast<std::size_t>(n) * key_bytes_;
  }
  const unsigned char* extra_of(std::int32_t n) const noexcept {
    return extra_.data() + static_cast<std::size_t>(n) * key_bytes_;
  }

  HYBRIDSTATE_INLINE bool same_block(std::int32_t n, const TokenId* tokens) const noexcept {
    return identity_ == BlockIdentity::trusted_id ||
           detail::equal_tokens(tokens_of(n), tokens, block_tokens_);
  }

  /// How the walk confirms a block under the right parent: by its trusted id, or by its tokens; the
  /// native size apart, where a loop and a multiplication would cost as much as the comparison.
  struct TrustedId {
    static constexpr std::size_t count = 0;
    bool confirms(BlockKey kept_key, BlockKey key, const TokenId*, const TokenId*) const noexcept {
      return kept_key == key;
    }
  };
  struct AnyTokens {
    std::size_t count;
    bool confirms(BlockKey, BlockKey, const TokenId* kept, const TokenId* tokens) const noexcept {
      return detail::equal_tokens(kept, tokens, count);
    }
  };
  struct SixteenTokens {
    static constexpr std::size_t count = 16;
    HYBRIDSTATE_INLINE bool confirms(BlockKey, BlockKey, const TokenId* kept,
                                     const TokenId* tokens) const noexcept {
      return detail::equal_tokens(kept, tokens, count);
    }
  };

  /// Three stages, a run of blocks apart: fetch the buckets, fetch nodes and tokens, compare.
  template <class Block, class Visit>
  HYBRIDSTATE_INLINE NodeIndex descend_keyed(NodeIndex root, std::uint32_t blocks,
                                             const BlockKey* keys, const TokenId* tokens,
                                             Block block, Visit& visit) const noexcept {
    constexpr std::uint32_t run = 8;
    constexpr std::uint32_t ring = 4 * run;
    PrefixNode const* const nodes = nodes_.data();
    Bucket const* const buckets = buckets_.data();
    TokenId const* const kept = tokens_.data();
    std::uint32_t const mask = mask_;
    std::uint64_t paths[ring];
    std::int32_t found[ring];  // in the first bucket of the path, almost always the node itself
    std::uint64_t path = nodes[root.at()].path;
    std::int32_t at = root.value;
    auto const until = [blocks](std::uint32_t end) { return end < blocks ? end : blocks; };
    std::uint32_t hashed = 0;
    std::uint32_t fetched = 0;
    std::uint32_t compared = 0;
    for (std::uint32_t lead = run;; lead += run) {
      for (std::uint32_t const end = until(lead); hashed < end; ++hashed) {
        paths[hashed % ring] = path = path_to(path, keys[hashed]);
        detail::prefetch(&buckets[static_cast<std::uint32_t>(path) & mask]);
      }
      if (lead < 2 * run) continue;
      for (std::uint32_t const end = until(lead - run); fetched < end; ++fetched) {
        std::int32_t const n =
            buckets[static_cast<std::uint32_t>(paths[fetched % ring]) & mask].node;
        found[fetched % ring] = n;
        if (n < 0) continue;
        detail::prefetch(&nodes[n]);
        detail::prefetch(kept + static_cast<std::size_t>(n) * block.count);
      }
      if (lead < 3 * run) continue;
      for (std::uint32_t const end = until(lead - 2 * run); compared < end; ++compared) {
        std::int32_t n = found[compared % ring];
        if (n < 0) return {at};
        if (nodes[n].parent != at ||
            !block.confirms(nodes[n].key, keys[compared],
                            kept + static_cast<std::size_t>(n) * block.count, tokens))
            [[unlikely]] {
          n = find_child(NodeIndex{at}, {keys[compared], tokens}, paths[compared % ring]).value;
          if (n < 0) return {at};
        }
        at = n;
        visit(NodeIndex{at});
        tokens += block.count;
      }
      if (compared == blocks) return {at};
    }
  }

  template <class Confirm>
  NodeIndex probe(std::int32_t parent, BlockKey key, std::uint64_t path,
                  Confirm&& confirm) const noexcept {
    auto const tag = static_cast<std::uint32_t>(path >> 32);
    for (std::uint32_t at = static_cast<std::uint32_t>(path) & mask_; buckets_[at].node >= 0;
         at = (at + 1) & mask_) {
      std::int32_t const n = buckets_[at].node;
      if (buckets_[at].tag == tag && nodes_[n].key == key && nodes_[n].parent == parent &&
          confirm(n))
        return {n};
    }
    return {};
  }

  NodeIndex make(std::int32_t parent, BlockKey key, std::uint32_t depth, std::uint64_t salt,
                 std::int64_t now) noexcept {
    if (free_count_ == 0 && !remove_least_recent()) return {};
    std::int32_t const n = free_[--free_count_];
    std::uint32_t const generation = nodes_[n].generation + 1;
    nodes_[n] = PrefixNode{};
    nodes_[n].key = key;
    nodes_[n].path = path_to(parent < 0 ? root_path : nodes_[parent].path, key);
    nodes_[n].parent = parent;
    nodes_[n].depth = depth;
    nodes_[n].generation = generation;
    nodes_[n].salt = salt;
    nodes_[n].first_seen_ns = now;
    nodes_[n].touched = recent_.tail == IndexLinks::end ? 0 : nodes_[recent_.tail].touched;
    extra_size_[n] = 0;
    recency_.push_back(recent_, n);
    std::uint64_t const path = nodes_[n].path;
    std::uint32_t at = static_cast<std::uint32_t>(path) & mask_;
    while (buckets_[at].node >= 0) at = (at + 1) & mask_;
    buckets_[at] = {n, static_cast<std::uint32_t>(path >> 32)};
    return {n};
  }

  bool remove_least_recent() noexcept {
    while (recent_.head != IndexLinks::end) {
      NodeIndex const n{recent_.head};
      recency_.unlink(recent_, n.value);
      if (!removable(n)) continue;  // comes back through loosened() or touch()
      remove(n);
      return true;
    }
    return false;
  }

  void remove(NodeIndex n) noexcept {
    PrefixNode& node = nodes_[n.at()];
    unhash(n.value);
    std::int32_t const parent = node.parent;
    node.depth = dead;
    free_[free_count_++] = n.value;
    if (parent < 0) return;
    --nodes_[parent].children;
    --nodes_[parent].kids;
    loosened({parent});
  }

  void unhash(std::int32_t n) noexcept {
    auto home = [&](std::int32_t m) { return static_cast<std::uint32_t>(nodes_[m].path) & mask_; };
    std::uint32_t hole = home(n);
    while (buckets_[hole].node != n) hole = (hole + 1) & mask_;
    // Backward shift keeps every probe chain whole without tombstones.
    for (std::uint32_t at = (hole + 1) & mask_; buckets_[at].node >= 0; at = (at + 1) & mask_) {
      std::uint32_t const wanted = home(buckets_[at].node);
      if (((at - wanted) & mask_) >= ((at - hole) & mask_)) {
        buckets_[hole] = buckets_[at];
        hole = at;
      }
    }
    buckets_[hole] = {};
  }

  std::uint32_t capacity_ = 0;
  Tokens block_tokens_ = 0;
  BlockIdentity identity_ = BlockIdentity::tokens;
  std::uint32_t key_bytes_ = 0;
  FixedArray<PrefixNode> nodes_;
  IndexLinks recency_;
  IndexLinks::List recent_;  ///< least recently touched first; busy nodes may be left out
  FixedArray<Bucket> buckets_;
  std::uint32_t mask_ = 0;
  FixedArray<std::int32_t> free_;
  std::uint32_t free_count_ = 0;
  FixedArray<TokenId> tokens_;
  FixedArray<unsigned char> extra_;
  FixedArray<std::uint32_t> extra_size_;
};

HYBRIDSTATE_NAMESPACE_END
