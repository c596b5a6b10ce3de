// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <hybridstate/cache/types.hpp>
#include <vector>

#include "executor/step_plan.hpp"
#include "executor/unit_memory.hpp"

namespace hybridstate::runtime::verify {

/// Compares the bytes of all pools before and after each step: a step may change the keys and
/// values of the tokens that it computes or copies and the states that it writes, and nothing else.
template <class Cache>
class StoreGuard {
 public:
  using Memory = UnitMemory<typename Cache::OrganizationType>;

  void begin(const Memory& memory) {
    for (int pool = 0; pool < Cache::OrganizationType::pools; ++pool)
      before_[pool].assign(memory.bytes(pool).begin(), memory.bytes(pool).end());
  }

  /// What the chunk of the coming step may change.
  void allow(const Cache& cache, const Chunk& c) {
    Tokens const size = cache.block_tokens();
    Tokens const end = c.begin + c.count;
    Tokens const from = std::max(c.begin, cache.kv_valid_until(c.sequence));
    auto const blocks = cache.blocks(c.sequence);
    for (Tokens b = from / size; b * size < end; ++b)
      tokens_.push_back({cache.place(blocks[b]), from > b * size ? from - b * size : 0,
                         std::min(size, end - b * size)});
    for (BlockCopy const& copy : cache.copies())
      if (copy.to == blocks[c.begin / size])
        tokens_.push_back({cache.place(copy.to), 0, copy.tokens});
    for (HeldState const& h : cache.states(c.sequence).subspan(cache.first_target(c.sequence)))
      cache.for_each_extent(h.state, [&](const Extent& e) { extents_.push_back(e); });
  }

  /// After the step: whether all other bytes are as before.
  bool unchanged_elsewhere(const Memory& memory) {
    for (Extent const& e : extents_)
      for (Bytes l = 0; l < layers(memory, e.pool); ++l)
        accept(memory, e.pool, l * memory.layer_bytes(e.pool) + e.offset, e.bytes);
    for (Stretch const& t : tokens_) accept(memory, t);
    extents_.clear();
    tokens_.clear();
    bool unchanged = true;
    for (int pool = 0; pool < Cache::OrganizationType::pools; ++pool) {
      auto const now = memory.bytes(pool);
      if (now.empty() || std::memcmp(now.data(), before_[pool].data(), now.size()) == 0) continue;
      unchanged = false;
      std::memcpy(before_[pool].data(), now.data(), now.size());
    }
    return unchanged;
  }

 private:
  struct Stretch {  ///< tokens [from, to) of a block
    AttentionPlace block;
    Tokens from, to;
  };

  static Bytes layers(const Memory& memory, int pool) {
    return memory.layer_bytes(pool) == 0 ? 0 : memory.bytes(pool).size() / memory.layer_bytes(pool);
  }
  void accept(const Memory& memory, int pool, Bytes at, Bytes bytes) {
    std::memcpy(before_[pool].data() + at, memory.bytes(pool).data() + at, bytes);
  }
  void accept(const Memory& memory, const Stretch& t) {
    constexpr int pool = Cache::OrganizationType::attention_pool;
    KvStrides const& k = memory.kv().blocks.strides;
    std::int64_t const unit = memory.offset(t.block);
    for (Bytes l = 0; l < layers(memory, pool); ++l)
      for (std::int64_t head = 0; head < k.value; head += k.head)
        for (std::int64_t const part : {std::int64_t{0}, k.value})
          accept(memory, pool,
                 l * memory.layer_bytes(pool) +
                     static_cast<Bytes>(unit + head + part + t.from * k.token),
                 static_cast<Bytes>((t.to - t.from) * k.token));
  }

  std::vector<std::byte> before_[max_pools];
  std::vector<Extent> extents_;
  std::vector<Stretch> tokens_;
};

}  // namespace hybridstate::runtime::verify
