// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <hybridstate/core/types.hpp>
#include <span>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A block's key: finds a candidate node. Equality is decided by parent and tokens, never by a key.
using BlockKey = std::uint64_t;

namespace detail {

/// 64 x 64 -> 128-bit product folded to 64 bits.
constexpr std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) noexcept {
#if defined(__SIZEOF_INT128__)
  __extension__ using Wide = unsigned __int128;
  Wide const p = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(p) ^ static_cast<std::uint64_t>(p >> 64);
#else
  std::uint64_t const ah = a >> 32, al = a & 0xffffffffU, bh = b >> 32, bl = b & 0xffffffffU;
  std::uint64_t const mid = ah * bl + ((al * bl) >> 32);
  std::uint64_t const mid2 = al * bh + (mid & 0xffffffffU);
  return (a * b) ^ (ah * bh + (mid >> 32) + (mid2 >> 32));
#endif
}

inline constexpr std::uint64_t hash_mul[4] = {0x9e3779b97f4a7c15ULL, 0xc2b2ae3d27d4eb4fULL,
                                              0x165667b19e3779f9ULL, 0xd6e8feb86659fd93ULL};

inline std::uint64_t read_word(const unsigned char* p) noexcept {
  std::uint64_t w = 0;
  std::memcpy(&w, p, sizeof w);
  return w;
}

/// Four independent multiply-fold lanes: enough parallel products to hash at memory speed.
inline std::uint64_t hash_bytes(const void* data, std::size_t n, std::uint64_t seed) noexcept {
  auto const* p = static_cast<const unsigned char*>(data);
  std::uint64_t lane[4] = {seed ^ hash_mul[0], seed ^ hash_mul[1], seed ^ hash_mul[2],
                           seed ^ hash_mul[3]};
  std::size_t left = n;
  for (; left >= 64; left -= 64, p += 64) {
    for (int i = 0; i < 4; ++i)
      lane[i] =
          fold_product(read_word(p + 16 * i) ^ hash_mul[i], read_word(p + 16 * i + 8) ^ lane[i]);
  }
  // The lanes cancel the seed while they hold nothing else.
  std::uint64_t h = fold_product(lane[0] ^ lane[2] ^ seed, lane[1] ^ lane[3] ^ hash_mul[1]);
  for (; left >= 8; left -= 8, p += 8) h = fold_product(h ^ read_word(p), hash_mul[2]);
  if (left > 0) {
    std::uint64_t tail = 0;
    std::memcpy(&tail, p, left);
    h = fold_product(h ^ tail, hash_mul[3]);
  }
  return fold_product(h ^ n, hash_mul[0]);
}

#if defined(__GNUC__)
using Words16 [[gnu::vector_size(16)]] = std::uint64_t;  ///< two words in one register
#else
struct Words16 {
  std::uint64_t word[2];
  std::uint64_t operator[](int i) const noexcept { return word[i]; }
  friend Words16 operator^(Words16 a, Words16 b) noexcept {
    return {{a.word[0] ^ b.word[0], a.word[1] ^ b.word[1]}};
  }
  friend Words16 operator|(Words16 a, Words16 b) noexcept {
    return {{a.word[0] | b.word[0], a.word[1] | b.word[1]}};
  }
};
#endif
HYBRIDSTATE_INLINE Words16 read_words(const TokenId* p) noexcept {
  Words16 w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

/// Whether two runs of n tokens are equal. Short blocks are compared in place: a call would cost
/// more than the comparison.
HYBRIDSTATE_INLINE bool equal_tokens(const TokenId* a, const TokenId* b, std::size_t n) noexcept {
  constexpr std::size_t run = 16;
  if (n > 8 * run || n % run != 0) return std::memcmp(a, b, n * sizeof(TokenId)) == 0;
  for (; n > 0; n -= run, a += run, b += run) {
    Words16 const different =
        ((read_words(a) ^ read_words(b)) | (read_words(a + 4) ^ read_words(b + 4))) |
        ((read_words(a + 8) ^ read_words(b + 8)) | (read_words(a + 12) ^ read_words(b + 12)));
    if ((different[0] | different[1]) != 0) return false;
  }
  return true;
}

}  // namespace detail

/// The default key of a block of tokens. Content only: the parent is confirmed by the index.
inline BlockKey block_key(std::span<const TokenId> tokens) noexcept {
  return detail::hash_bytes(tokens.data(), tokens.size_bytes(), 0);
}

HYBRIDSTATE_NAMESPACE_END
