// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The linear layers, in the terms of lanes_body.hpp.

namespace hybridstate::runtime::cpu::HYBRIDSTATE_CPU_ISA {
namespace {
// NOLINTBEGIN(modernize-loop-convert): the unroll pragma wants counted loops

// --- linear -----------------------------------------------------------------------------------

/// 32 elements as their 16 even and their 16 odd ones: two 16-bit weights in one 32-bit lane become
/// floats with one operation each.
struct Pair {
  V even, odd;
};

HYBRIDSTATE_CPU_INLINE void split_piece(const unsigned char* from, F& even, F& odd) {
#if HYBRIDSTATE_CPU_WIDTH == 1
  even = read<F>(from);
  odd = read<F>(from + 4);
#elif HYBRIDSTATE_CPU_WIDTH == 8
  F const a = read<F>(from), b = read<F>(from + 32);
  even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  F const a = read<F>(from), b = read<F>(from + 64);
  even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#endif
}

template <Dtype D>
HYBRIDSTATE_CPU_INLINE Pair load_pair(const unsigned char* from) {
  Pair p;
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) {
    if constexpr (D == Dtype::f32) {
      split_piece(from + i * width * 8, p.even.p[i], p.odd.p[i]);
    } else {
      U const two = read<U>(from + i * width * 4);
      if constexpr (D == Dtype::bf16) {
        p.even.p[i] = as_float(two << 16);
        p.odd.p[i] = as_float(two & 0xffff0000U);
      } else {
        p.even.p[i] = Element<D>::from_bits(two & 0xffffU);
        p.odd.p[i] = Element<D>::from_bits(two >> 16);
      }
    }
  }
  return p;
}
template <Dtype D>
HYBRIDSTATE_CPU_INLINE Pair load_pair_part(const unsigned char* from, std::size_t n) {
  alignas(64) unsigned char buffer[2 * lanes * 4] = {};
  std::memcpy(buffer, from, n * Element<D>::bytes);
  return load_pair<D>(buffer);
}

#if HYBRIDSTATE_CPU_WIDTH == 1
HYBRIDSTATE_CPU_INLINE F fused_flushed(F a, F b, F c) {
  return numeric::fused_flushed(numeric::flushed(a), numeric::flushed(b), c);
}
#else
/// Between two of these, with a control word that flushes subnormal numbers and with the one found,
/// lie all operations on the accumulators: they pass through both.
template <std::size_t R, std::size_t T>
HYBRIDSTATE_CPU_INLINE void set_control(std::uint32_t word, V (&acc)[R][T]) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t r = 0; r < R; ++r) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t t = 0; t < T; ++t) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) asm volatile("" : "+v"(acc[r][t].p[i]));
  asm volatile("ldmxcsr %0" : : "m"(word));
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t r = 0; r < R; ++r) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t t = 0; t < T; ++t) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < pieces; ++i) asm volatile("" : "+v"(acc[r][t].p[i]));
}
HYBRIDSTATE_CPU_INLINE F fused_flushed(F a, F b, F c) { return fused_piece(a, b, c); }
#endif

/// Steps of 32 elements with weights of type D and inputs of type X: what one step holds of a row
/// of weights, and how it adds the products with the inputs of T tokens.
template <Dtype D, LinearInput X>
struct Steps {
#if HYBRIDSTATE_CPU_WIDTH == 16
  static constexpr std::size_t rows = 4, tokens = X == LinearInput::bf16 ? 5 : 6;  ///< of a tile
#elif HYBRIDSTATE_CPU_WIDTH == 8
  static constexpr std::size_t rows = 2, tokens = 3;
#else
  static constexpr std::size_t rows = 1, tokens = 1;
#endif
  static constexpr bool flushes = X == LinearInput::bf16 && HYBRIDSTATE_CPU_WIDTH > 1;
  static constexpr std::size_t input_bytes = X == LinearInput::bf16 ? 2 : 4;

  using Weights = Pair;
  static HYBRIDSTATE_CPU_INLINE Weights load_weights(const unsigned char* from) {
    return load_pair<D>(from);
  }

  template <std::size_t R, std::size_t T>
  static HYBRIDSTATE_CPU_INLINE void add(const Weights (&w)[R], const unsigned char* x,
                                         std::size_t stride, V (&acc)[R][T]) {
    if constexpr (X == LinearInput::fp32) {
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t t = 0; t < T; ++t) {
        V const even = load<Dtype::f32>(x + t * stride);
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t r = 0; r < R; ++r) acc[r][t] = fused(w[r].even, even, acc[r][t]);
      }
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t t = 0; t < T; ++t) {
        V const odd = load<Dtype::f32>(x + t * stride + lanes * 4);
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t r = 0; r < R; ++r) acc[r][t] = fused(w[r].odd, odd, acc[r][t]);
      }
    } else {
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t t = 0; t < T; ++t) HYBRIDSTATE_CPU_UNROLL
      for (std::size_t i = 0; i < pieces; ++i) {
        U const two = read<U>(x + t * stride + i * width * 4);
        F const odd = as_float(two & 0xffff0000U);
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t r = 0; r < R; ++r)
          acc[r][t].p[i] = fused_flushed(w[r].odd.p[i], odd, acc[r][t].p[i]);
      }
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t t = 0; t < T; ++t) HYBRIDSTATE_CPU_UNROLL
      for (std::size_t i = 0; i < pieces; ++i) {
        U const two = read<U>(x + t * stride + i * width * 4);
        F const even = as_float(two << 16);
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t r = 0; r < R; ++r)
          acc[r][t].p[i] = fused_flushed(w[r].even.p[i], even, acc[r][t].p[i]);
      }
    }
  }
};

#if defined(HYBRIDSTATE_CPU_DOT)
/// One instruction for both elements of a pair: the odd one's product first, subnormals flushed.
template <>
struct Steps<Dtype::bf16, LinearInput::bf16> {
  static constexpr std::size_t rows = 3, tokens = 8;
  static constexpr bool flushes = false;
  static constexpr std::size_t input_bytes = 2;

  using Weights = __m512i;
  static HYBRIDSTATE_CPU_INLINE Weights load_weights(const unsigned char* from) {
    return read<__m512i>(from);
  }

  template <std::size_t R, std::size_t T>
  static HYBRIDSTATE_CPU_INLINE void add(const Weights (&w)[R], const unsigned char* x,
                                         std::size_t stride, V (&acc)[R][T]) {
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t t = 0; t < T; ++t) {
      auto const own = (__m512bh)read<__m512i>(x + t * stride);
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t r = 0; r < R; ++r)
        acc[r][t].p[0] = (F)_mm512_dpbf16_ps((__m512)acc[r][t].p[0], (__m512bh)w[r], own);
    }
  }
};
#endif

// Of one token: as many rows as a core follows streams of memory.
constexpr std::size_t lone_rows = HYBRIDSTATE_CPU_WIDTH == 1 ? 1 : 4;
constexpr std::size_t block_bytes = 1U << 18;  // of weights that stay in the second-level cache
constexpr std::size_t few_bytes = 1U << 16;    // the same for 2 or 3 tiles of tokens
constexpr std::size_t many_tiles = 4;
constexpr std::size_t stream_ahead = 3072;    // bytes of a stream of weights that are under way
constexpr std::size_t input_room = 3U << 13;  // bytes of inputs that stay in the first-level cache
constexpr std::size_t pass_bytes = 1U << 14;  // of the inputs of a pass, where they do not
constexpr std::size_t pass_tiles = 4;         // of rows that one piece of the inputs serves

/// All columns of a tile at once.
struct Whole {};
/// Some of them, and where the sums of the tile lie between two passes.
struct Pass {
  std::size_t first, end;
  float* sums;
};

/// R rows, `step` apart, of T tokens. With Fetch, weights `ahead` bytes further on are fetched
/// meanwhile.
template <Dtype D, LinearInput X, std::size_t R, std::size_t T, bool Fetch, class Columns>
void linear_tile(const Linear& j, std::size_t row, std::size_t step, std::size_t token,
                 std::size_t ahead, const Columns& pass) {
  using S = Steps<D, X>;
  constexpr bool whole = std::is_same_v<Columns, Whole>;
  std::size_t const n = j.columns;
  const unsigned char* w[R];
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t r = 0; r < R; ++r)
    w[r] = static_cast<const unsigned char*>(j.weights) + (row + r * step) * n * Element<D>::bytes;
  std::size_t const stride = j.x_stride * S::input_bytes;
  const unsigned char* const x = static_cast<const unsigned char*>(j.x) + token * stride;
  V acc[R][T];
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t r = 0; r < R; ++r) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t t = 0; t < T; ++t) acc[r][t] = zero();
  std::size_t k = 0;
  std::size_t end = n;
  if constexpr (!whole) {
    k = pass.first;
    end = pass.end;
    if (k > 0) HYBRIDSTATE_CPU_UNROLL
    for (std::size_t r = 0; r < R; ++r) HYBRIDSTATE_CPU_UNROLL
    for (std::size_t t = 0; t < T; ++t) acc[r][t] = load(pass.sums + (r * T + t) * lanes);
  }
#if HYBRIDSTATE_CPU_WIDTH > 1
  std::uint32_t const control = S::flushes ? _mm_getcsr() : 0;
  constexpr std::uint32_t flush = 0x8040;  // results, inputs
  if constexpr (S::flushes) set_control(control | flush, acc);
#endif
  for (; k + 2 * lanes <= end; k += 2 * lanes) {
    typename S::Weights p[R];
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      p[r] = S::load_weights(w[r] + k * Element<D>::bytes);
      if constexpr (Fetch) __builtin_prefetch(w[r] + k * Element<D>::bytes + ahead, 0, 2);
    }
    S::add(p, x + k * S::input_bytes, stride, acc);
  }
  if (k < end) {
    typename S::Weights p[R];
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      alignas(64) unsigned char last[2 * lanes * Element<D>::bytes] = {};
      std::memcpy(last, w[r] + k * Element<D>::bytes, (n - k) * Element<D>::bytes);
      p[r] = S::load_weights(last);
    }
    S::add(p, x + k * S::input_bytes, stride, acc);
  }
#if HYBRIDSTATE_CPU_WIDTH > 1
  if constexpr (S::flushes) set_control(control, acc);
#endif
  if constexpr (!whole) {
    if (end < n) {
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t r = 0; r < R; ++r) HYBRIDSTATE_CPU_UNROLL
      for (std::size_t t = 0; t < T; ++t) store(pass.sums + (r * T + t) * lanes, acc[r][t]);
      return;
    }
  }
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t t = 0; t < T; ++t) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    float y = halve(acc[r][t]) * j.scale;
    if (j.bias != nullptr) y = y + j.bias[row + r * step];
    j.y[(token + t) * j.y_stride + row + r * step] = y * j.post;
  }
}

/// The rows [first, end) of T tokens. A tile takes rows that lie far apart, so that each of its
/// streams of weights runs on in memory from tile to tile, where the prefetcher can follow.
template <Dtype D, LinearInput X, std::size_t R, std::size_t T, bool Fetch>
void linear_streams(const Linear& j, std::size_t first, std::size_t end, std::size_t token,
                    std::size_t ahead) {
  std::size_t const step = (end - first) / R;
  for (std::size_t i = 0; i < step; ++i)
    linear_tile<D, X, R, T, Fetch>(j, first + i, step, token, ahead, Whole{});
  for (std::size_t row = first + step * R; row < end; ++row)
    linear_tile<D, X, 1, T, Fetch>(j, row, 1, token, ahead, Whole{});
}

/// The same in passes of `columns` columns, each over a few tiles of neighbouring rows: their sums
/// wait in memory for the next pass, which adds to them in the same order.
template <Dtype D, LinearInput X, std::size_t R, std::size_t T>
void linear_passes(const Linear& j, std::size_t first, std::size_t end, std::size_t columns) {
  alignas(64) float sums[pass_tiles][R * T * lanes];
  std::size_t const n = j.columns;
  std::size_t const tiles = (end - first) / R;
  std::size_t const ahead = pass_tiles * R * n * Element<D>::bytes;
  for (std::size_t tile = 0; tile < tiles; tile += pass_tiles)
    for (std::size_t k = 0; k < n; k += columns)
      for (std::size_t i = tile; i < std::min(tile + pass_tiles, tiles); ++i)
        linear_tile<D, X, R, T, true>(j, first + i * R, 1, 0, ahead,
                                      Pass{k, std::min(n, k + columns), sums[i - tile]});
  for (std::size_t row = first + tiles * R; row < end; ++row)
    linear_tile<D, X, 1, T, true>(j, row, 1, 0, ahead, Whole{});
}

/// `ahead`: 0 for weights that are near. All tokens at once where `alone`.
template <Dtype D, LinearInput X, std::size_t T>
void linear_tokens(const Linear& j, std::size_t first, std::size_t end, std::size_t token,
                   std::size_t count, std::size_t ahead, bool alone) {
  constexpr std::size_t rows = T == 1 ? lone_rows : Steps<D, X>::rows;
  if (count == T) {
    if (ahead == 0) return linear_streams<D, X, rows, T, false>(j, first, end, token, 0);
    std::size_t const bytes = T * j.columns * Steps<D, X>::input_bytes;
    if (alone && bytes > input_room)
      return linear_passes<D, X, rows, T>(
          j, first, end, packed_size(j.columns / ((bytes + pass_bytes - 1) / pass_bytes)));
    return linear_streams<D, X, rows, T, true>(j, first, end, token, ahead);
  }
  if constexpr (T > 1) linear_tokens<D, X, T - 1>(j, first, end, token, count, ahead, alone);
}

template <Dtype D, LinearInput X>
void linear_rows(const Linear& j, std::size_t tokens, std::size_t first, std::size_t end) {
  using S = Steps<D, X>;
  std::size_t const tiles = (tokens + S::tokens - 1) / S::tokens;
  // All tokens in one tile: a stream of weights is fetched while those before it are multiplied.
  // One token leaves nothing to wait for.
  if (tiles == 1)
    return linear_tokens<D, X, S::tokens>(j, first, end, 0, tokens, tokens > 1 ? stream_ahead : 0,
                                          true);
  // The inputs of a tile of tokens stay in the first-level cache while a block of rows passes, and
  // the block in the second-level cache until the last tile.
  std::size_t const row_bytes = std::size_t{j.columns} * Element<D>::bytes;
  std::size_t const kept = tiles < many_tiles ? few_bytes : block_bytes;
  std::size_t const rows =
      std::max<std::size_t>(4 * S::rows, kept / std::max<std::size_t>(1, row_bytes));
  for (std::size_t row = first; row < end; row += rows)
    for (std::size_t i = 0; i < tiles; ++i) {
      std::size_t const from = i * tokens / tiles;
      // The last tile finds its weights near and leaves the memory to the next block.
      bool const fetch = i + 1 == tiles && row + 2 * rows <= end;
      linear_tokens<D, X, S::tokens>(j, row, std::min(end, row + rows), from,
                                     (i + 1) * tokens / tiles - from, fetch ? rows * row_bytes : 0,
                                     false);
    }
}

}  // namespace
// NOLINTEND(modernize-loop-convert)
}  // namespace hybridstate::runtime::cpu::HYBRIDSTATE_CPU_ISA
