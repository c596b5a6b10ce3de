// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/contract.hpp>
#include <hybridstate/core/first_set.hpp>
#include <hybridstate/core/types.hpp>
#include <vector>

HYBRIDSTATE_NAMESPACE_BEGIN

/// Attention blocks that are cut into equal parts (quarters, at 512 and 128 tokens) so that the
/// tails of several sequences share one: which blocks are such slabs, and which runs of parts are
/// used. A tail is named by its first part, `parts() * block + part`; the name stays while it
/// grows. First fit: the lowest slab, and in it the lowest run that is long enough.
class TailSlabs {
 public:
  static constexpr std::uint32_t most_parts = 64;
  static constexpr std::int32_t none = -1;

  TailSlabs() = default;
  TailSlabs(Units blocks, std::uint32_t parts)
      : parts_(parts),
        used_(FixedArray<std::uint64_t>(blocks)),
        sizes_(FixedArray<std::uint8_t>(std::size_t{blocks} * parts)),
        slabs_(blocks),
        with_run_(parts, FirstSet(blocks)) {}

  /// Parts of a block; 0: nothing is ever shared.
  std::uint32_t parts() const noexcept { return parts_; }
  std::int32_t block(std::int32_t tail) const noexcept {
    return tail / static_cast<std::int32_t>(parts_);
  }
  std::uint32_t part(std::int32_t tail) const noexcept {
    return static_cast<std::uint32_t>(tail) % parts_;
  }
  /// Parts of one tail; 0: there is none of this name.
  std::uint32_t size(std::int32_t tail) const noexcept { return sizes_[tail]; }
  bool is_slab(std::int32_t block) const noexcept { return used(block) != 0; }
  /// Whether nothing else is on the tail's slab.
  bool alone(std::int32_t tail) const noexcept {
    return used(block(tail)) == run(part(tail), size(tail));
  }
  Units slabs() const noexcept { return count_; }
  Units used_parts() const noexcept { return used_parts_; }
  /// Blocks that became slabs since construction.
  std::uint64_t created() const noexcept { return created_; }

  /// The first place for n parts on a slab other than two that are about to go, or none.
  std::int32_t find(std::uint32_t n, std::int32_t except = none,
                    std::int32_t or_this = none) const noexcept {
    FirstSet const& with = with_run_[n - 1];
    std::int32_t b = with.first();
    while (b >= 0 && (b == except || b == or_this)) b = with.first_from(b + 1);
    return b < 0 ? none : name(b, static_cast<std::uint32_t>(std::countr_zero(starts(b, n))));
  }

  /// Uses n free parts; the block becomes a slab if it is none.
  void take(std::int32_t tail, std::uint32_t n) noexcept {
    std::int32_t const b = block(tail);
    HYBRIDSTATE_EXPECT((used(b) & run(part(tail), n)) == 0, "the parts are free", tail, n);
    if (used(b) == 0) {
      slabs_.insert(b);
      ++count_;
      ++created_;
    }
    set(b, used(b) | run(part(tail), n));
    sizes_[tail] = static_cast<std::uint8_t>(n);
    used_parts_ += n;
  }

  bool can_grow(std::int32_t tail, std::uint32_t n) const noexcept {
    return part(tail) + n <= parts_ &&
           (used(block(tail)) & run(part(tail), n)) == run(part(tail), size(tail));
  }
  /// Grows a tail in place, or takes that back.
  void resize(std::int32_t tail, std::uint32_t n) noexcept {
    std::uint32_t const had = size(tail);
    HYBRIDSTATE_EXPECT(n > 0 && (n <= had || can_grow(tail, n)), "the next parts are free", tail,
                       n);
    set(block(tail), (used(block(tail)) & ~run(part(tail), had)) | run(part(tail), n));
    sizes_[tail] = static_cast<std::uint8_t>(n);
    used_parts_ = used_parts_ - had + n;
  }

  /// Frees a tail; true when it was the last one: the block is no slab any more.
  bool give_back(std::int32_t tail) noexcept {
    std::int32_t const b = block(tail);
    std::uint32_t const n = size(tail);
    HYBRIDSTATE_EXPECT(n > 0, "the tail exists", tail, 0);
    used_parts_ -= n;
    sizes_[tail] = 0;
    set(b, used(b) & ~run(part(tail), n));
    if (used(b) != 0) return false;
    for (FirstSet& with : with_run_) with.erase(b);
    slabs_.erase(b);
    --count_;
    return true;
  }

  template <class F>
  void for_each_slab(F&& f) const noexcept {
    for (std::int32_t b = count_ > 0 ? slabs_.first() : none; b >= 0; b = slabs_.first_from(b + 1))
      f(b);
  }
  template <class F>
  void for_each_tail(std::int32_t block, F&& f) const noexcept {
    for (std::uint32_t i = 0; i < parts_; ++i)
      if (size(name(block, i)) > 0) f(name(block, i));
  }

 private:
  static std::uint64_t run(std::uint32_t part, std::uint32_t n) noexcept {
    return (n == most_parts ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << part;
  }
  std::int32_t name(std::int32_t block, std::uint32_t part) const noexcept {
    return block * static_cast<std::int32_t>(parts_) + static_cast<std::int32_t>(part);
  }
  std::uint64_t used(std::int32_t block) const noexcept { return used_[block]; }
  /// The parts at which n free ones begin.
  std::uint64_t starts(std::int32_t block, std::uint32_t n) const noexcept {
    std::uint64_t const free = ~used(block) & run(0, parts_);
    std::uint64_t all = free;
    for (std::uint32_t i = 1; i < n; ++i) all &= free >> i;
    return all;
  }
  void set(std::int32_t block, std::uint64_t used) noexcept {
    used_[block] = used;
    for (std::uint32_t n = 1; n <= parts_; ++n)
      starts(block, n) != 0 ? with_run_[n - 1].insert(block) : with_run_[n - 1].erase(block);
  }

  std::uint32_t parts_ = 0;
  FixedArray<std::uint64_t> used_;  ///< one bit a part
  FixedArray<std::uint8_t> sizes_;  ///< of the tail that begins at this part
  FirstSet slabs_;
  std::vector<FirstSet> with_run_;  ///< slabs with a free run of at least 1, 2, … parts
  Units count_ = 0;
  Units used_parts_ = 0;
  std::uint64_t created_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
