// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Caches filled with contexts, and the floor that they are measured against. Shared by the timed
// benchmark and by the instruction count.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hybridstate/hybridstate.hpp>
#include <utility>
#include <vector>

namespace hybridstate::bench {

/// A small generator of reproducible numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
  }
  std::uint32_t below(std::uint32_t n) noexcept {
    return static_cast<std::uint32_t>((next() >> 32) * n >> 32);
  }

 private:
  std::uint64_t state_;
};

/// Prompts of one length with the keys of their full blocks; `tokens + 1` ids of a 65,024-token
/// vocabulary, so that neighbouring prompts do not share cache sets.
class Prompts {
 public:
  Prompts(std::uint32_t count, Tokens length, Tokens block_tokens, std::uint64_t seed = 1)
      : count_(count), length_(length), blocks_(length / block_tokens) {
    Random random(seed);
    tokens_.resize(std::size_t{count} * (length + 1));
    for (TokenId& t : tokens_) t = random.below(65024);
    keys_.reserve(std::size_t{count} * blocks_);
    for (std::uint32_t i = 0; i < count; ++i)
      for (Units b = 0; b < blocks_; ++b)
        keys_.push_back(
            block_key(ids(i).subspan(std::size_t{b} * block_tokens, std::size_t{block_tokens})));
  }

  std::uint32_t count() const noexcept { return count_; }
  Tokens length() const noexcept { return length_; }
  Units blocks() const noexcept { return blocks_; }
  std::span<const TokenId> ids(std::uint32_t i) const noexcept {
    return {tokens_.data() + std::size_t{i} * (length_ + 1), length_};
  }
  std::span<const BlockKey> keys(std::uint32_t i) const noexcept {
    return {keys_.data() + std::size_t{i} * blocks_, blocks_};
  }
  Prompt operator[](std::uint32_t i) const noexcept {
    return Prompt::of_tokens(ids(i), 0, keys(i));
  }

 private:
  std::uint32_t count_;
  Tokens length_;
  Units blocks_;
  std::vector<TokenId> tokens_;
  std::vector<BlockKey> keys_;
};

[[noreturn]] inline void give_up(const char* what, std::uint64_t got, std::uint64_t wanted) {
  std::fprintf(stderr, "%s: %llu instead of %llu\n", what, static_cast<unsigned long long>(got),
               static_cast<unsigned long long>(wanted));
  std::exit(1);
}
inline void require(bool holds, const char* what, std::uint64_t got = 0, std::uint64_t wanted = 0) {
  if (!holds) give_up(what, got, wanted);
}

/// Computes the whole prompt of an admitted sequence in chunks, as a scheduler would.
template <class Cache>
bool prefill(Cache& cache, SequenceHandle seq, const Prompts& prompts, std::uint32_t i,
             Tokens chunk = 2048) {
  while (cache.position(seq) < prompts.length()) {
    Tokens const at = cache.position(seq);
    Tokens const n = std::min(chunk, prompts.length() - at);
    if (!cache.reserve(seq, n)) return false;
    cache.commit(seq, Committed::of_tokens(prompts.ids(i).subspan(at, n)));
    cache.begin_step();
  }
  return true;
}

/// Serves every prompt once, so that its blocks and checkpoints are cached.
template <class Cache>
void fill(Cache& cache, const Prompts& prompts) {
  for (std::uint32_t i = 0; i < prompts.count(); ++i) {
    cache.begin_step();
    Admission const a = cache.admit(prompts[i], {i, 0});
    require(static_cast<bool>(a), "fill: refused", i);
    require(prefill(cache, a.sequence, prompts, i), "fill: no room", i);
    cache.release(a.sequence);
  }
  cache.begin_step();
}

/// The depth of the deepest joint boundary of a prompt that is cached in full.
template <class Cache>
Tokens joint_of(const Cache& cache, const Prompts& prompts) {
  Tokens const grid = cache.checkpoint_tokens();
  return (prompts.length() - 1) / grid * grid;
}

/// One request whose prefix is cached: the hot path of the cache.
template <class Cache>
inline std::uint64_t cached_request(Cache& cache, const Prompt& prompt, std::uint64_t requester) {
  Match const match = cache.lookup(prompt);
  Admission const a = cache.admit(prompt, {requester, 0}, FixedHeadroom{}, &match);
  if (!a) return 0;
  std::uint64_t const sum =
      std::uint64_t{a.match.joint} + static_cast<std::uint32_t>(cache.blocks(a.sequence).size());
  cache.release(a.sequence);
  return sum;
}

/// What no block manager with this interface can avoid, over tables of the same size and layout:
/// per block of the prompt one hash probe with the same comparison of tokens and one counter; for
/// the blocks that are adopted, one move to the back of the list. Nothing else.
class Floor {
 public:
  Floor(std::uint32_t nodes, std::uint32_t units, Tokens block_tokens, const Prompts& prompts,
        Units adopted)
      : block_tokens_(block_tokens),
        adopted_(adopted),
        nodes_(nodes),
        tokens_(std::size_t{nodes} * block_tokens),
        buckets_(std::bit_ceil(std::uint64_t{nodes} * 2)),
        mask_(buckets_.size() - 1),
        counters_(units),
        links_(units) {
    for (std::uint32_t i = 0; i < prompts.count(); ++i) insert(prompts[i]);
    // Released deepest first, prompt after prompt.
    Units const blocks = prompts.blocks();
    for (std::uint32_t i = 0; i < prompts.count(); ++i)
      for (Units b = blocks; b-- > 0;)
        if (i * blocks + b < units)
          links_.push_back(list_, static_cast<std::int32_t>(i * blocks + b));
  }

  /// What request() returns for prompt i.
  static std::uint64_t checksum(const Prompts& prompts, std::uint32_t i) noexcept {
    std::uint64_t const n = prompts.blocks();
    return i * n * n + n * (n - 1) / 2;
  }

  std::uint64_t request(const Prompt& prompt) noexcept {
    std::uint64_t sum = 0;
    std::uint64_t hash = 0;
    std::int32_t parent = -1;
    Units const blocks = prompt.length / block_tokens_;
    TokenId const* tokens = prompt.tokens.data();
    for (Units i = 0; i < blocks; ++i, tokens += block_tokens_) {
      hash = chained(hash, prompt.keys[i]);
      std::int32_t const n = find(hash, parent, tokens);
      if (n < 0) break;
      ++counters_[static_cast<std::size_t>(n)];
      if (i < adopted_) {
        links_.unlink(list_, n);
        links_.push_back(list_, n);
      }
      sum += static_cast<std::uint64_t>(n);
      parent = n;
    }
    return sum;
  }

 private:
  struct Bucket {
    std::int32_t node = -1;
    std::uint32_t tag = 0;
  };

  static std::uint64_t chained(std::uint64_t hash, BlockKey key) noexcept {
    return hybridstate::detail::fold_product(hash ^ key, hybridstate::detail::hash_mul[0]);
  }
  std::int32_t find(std::uint64_t hash, std::int32_t parent, const TokenId* tokens) const noexcept {
    for (std::uint64_t at = hash & mask_; buckets_[at].node >= 0; at = (at + 1) & mask_) {
      if (buckets_[at].tag != static_cast<std::uint32_t>(hash >> 32)) continue;
      std::int32_t const n = buckets_[at].node;
      if (nodes_[static_cast<std::size_t>(n)].parent == parent && same_tokens(n, tokens)) return n;
    }
    return -1;
  }
  bool same_tokens(std::int32_t n, const TokenId* tokens) const noexcept {
    return hybridstate::detail::equal_tokens(
        tokens_.data() + static_cast<std::size_t>(n) * block_tokens_, tokens, block_tokens_);
  }
  void insert(const Prompt& prompt) {
    std::uint64_t hash = 0;
    std::int32_t parent = -1;
    for (Units i = 0; i < prompt.length / block_tokens_; ++i) {
      hash = chained(hash, prompt.keys[i]);
      auto const n = static_cast<std::int32_t>(size_++);
      nodes_[static_cast<std::size_t>(n)].parent = parent;
      std::memcpy(tokens_.data() + static_cast<std::size_t>(n) * block_tokens_,
                  prompt.tokens.data() + std::size_t{i} * block_tokens_,
                  std::size_t{block_tokens_} * sizeof(TokenId));
      std::uint64_t at = hash & mask_;
      while (buckets_[at].node >= 0) at = (at + 1) & mask_;
      buckets_[at] = {n, static_cast<std::uint32_t>(hash >> 32)};
      parent = n;
    }
  }

  Tokens block_tokens_;
  Units adopted_;
  std::uint32_t size_ = 0;
  std::vector<PrefixNode> nodes_;
  std::vector<TokenId> tokens_;
  std::vector<Bucket> buckets_;
  std::uint64_t mask_;
  std::vector<std::uint32_t> counters_;
  IndexLinks links_;
  IndexLinks::List list_;
};

/// The pool-size sweep: 16-token blocks and one checkpoint a context, so that a request is 64
/// blocks and one state whatever the number of units.
inline constexpr Tokens sweep_block = 16;
inline constexpr Tokens sweep_context = 1024;
inline constexpr Tokens sweep_prompt = sweep_context + 6;

template <class Order = PaperOrder, class Observer = NullObserver>
using DualCache = JointCache<NativeDualPool<>, Order, Observer>;

inline StateLayout falcon_layout() { return make_layout(find_preset("falcon-h1-7b")->geometry); }

template <class Order = PaperOrder>
DualCache<Order> sweep_cache(std::uint32_t units) {
  std::uint32_t const contexts = units / (sweep_context / sweep_block + 1);
  CacheOptions options;
  options.max_sequences = 16;
  options.max_sequence_tokens = 2 * sweep_context;
  options.bare_nodes_per_unit = 1;
  return DualCache<Order>(
      NativeDualPool<>(falcon_layout(), {{units, contexts + 4}}, {sweep_block, sweep_context}),
      options);
}
inline Prompts sweep_prompts(std::uint32_t units) {
  return {units / (sweep_context / sweep_block + 1), sweep_prompt, sweep_block};
}

}  // namespace hybridstate::bench
