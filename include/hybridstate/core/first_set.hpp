// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <hybridstate/core/contract.hpp>
#include <vector>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A set of indices in [0, capacity) that finds its least member in a number of word reads that
/// grows with log64(capacity): first fit without a scan.
class FirstSet {
 public:
  static constexpr std::int32_t none = -1;

  FirstSet() = default;
  explicit FirstSet(std::uint32_t capacity) {
    std::uint32_t words = capacity;
    do {
      words = (words + 63) / 64;
      levels_.emplace_back(words, std::uint64_t{0});
    } while (words > 1);
  }

  bool contains(std::int32_t i) const noexcept {
    return (levels_[0][word(i)] >> (i & 63) & 1U) != 0;
  }

  void insert(std::int32_t i) noexcept {
    for (auto& level : levels_) {
      level[word(i)] |= bit(i);
      i >>= 6;
    }
  }

  void erase(std::int32_t i) noexcept {
    for (auto& level : levels_) {
      level[word(i)] &= ~bit(i);
      if (level[word(i)] != 0) return;
      i >>= 6;
    }
  }

  /// The least member, or none.
  std::int32_t first() const noexcept { return first_from(0); }

  /// The least member >= i, or none.
  std::int32_t first_from(std::int32_t i) const noexcept {
    std::size_t level = 0;
    for (;;) {
      if (level == levels_.size() || word(i) >= levels_[level].size()) return none;
      std::uint64_t const rest = levels_[level][word(i)] & (~std::uint64_t{0} << (i & 63));
      if (rest != 0) {
        i = static_cast<std::int32_t>((static_cast<std::uint32_t>(i) & ~63U) |
                                      static_cast<std::uint32_t>(std::countr_zero(rest)));
        break;
      }
      i = (i >> 6) + 1;
      ++level;
    }
    while (level-- > 0) {
      i = static_cast<std::int32_t>(static_cast<std::uint32_t>(i) << 6 |
                                    static_cast<std::uint32_t>(std::countr_zero(
                                        levels_[level][static_cast<std::size_t>(i)])));
    }
    return i;
  }

 private:
  static std::size_t word(std::int32_t i) noexcept { return static_cast<std::size_t>(i >> 6); }
  static std::uint64_t bit(std::int32_t i) noexcept { return std::uint64_t{1} << (i & 63); }

  std::vector<std::vector<std::uint64_t>> levels_;
};

HYBRIDSTATE_NAMESPACE_END
