// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/job.hpp>
#include <hybridstate/kernels/reduce.hpp>

// The linear of the numeric contract: 16 chains, element k in chain (k / 2) mod 16, in order of k
// from +0, a short last step of 32 elements padded with zeros, then halving. With inputs rounded to
// BF16, of elements k and k + 1 the odd one comes first, and subnormal elements and results of a
// chain are zeros (numeric::fused_flushed). A result depends on its row and its token alone,
// whatever else a batch holds.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// y[token][row] = (scale * (weights[row] . x[token]) + bias[row]) * post, each operation rounded.
struct LinearRows {
  const void* weights = nullptr;  ///< [rows][columns], packed
  Rows<const float> x{};          ///< [token][columns]
  Rows<float> y{};                ///< [token][rows]; does not overlap x
  float scale = 1;
  const float* bias = nullptr;  ///< [rows]; null: none
  float post = 1;
  std::uint32_t tokens = 0;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
};

/// Two neighbouring elements, which one chain takes one after the other.
template <class E>
struct ElementPair {
  using Bits = std::conditional_t<sizeof(E) == 2, std::uint32_t, std::uint64_t>;
  static constexpr unsigned element_bits = 8 * sizeof(E);

  Bits bits;

  HYBRIDSTATE_HD constexpr float even() const noexcept {
    return numeric::float_of(static_cast<std::uint32_t>(bits << (32 - element_bits)));
  }
  HYBRIDSTATE_HD constexpr float odd() const noexcept {
    if constexpr (sizeof(E) == 2)
      return numeric::float_of(bits & 0xffff0000U);
    else
      return numeric::float_of(static_cast<std::uint32_t>(bits >> element_bits));
  }

  /// Elements k and k + 1 of a row of n, zeros past its end. Pairs: n is even, and the row begins
  /// at a multiple of two elements. Inside: the row is known to hold both.
  template <bool Pairs, bool Inside, class T>
  HYBRIDSTATE_HD static ElementPair load(T& t, const E* row, std::uint32_t k, std::uint32_t n) {
    if constexpr (Pairs) {
      return {Inside || k < n ? t.template load<Bits>(row + k) : Bits{0}};
    } else {
      auto const element = [&](std::uint32_t i) {
        if (i >= n) return Bits{0};
        if constexpr (sizeof(E) == 2)
          return Bits{t.template load<E>(row + i).bits};
        else
          return Bits{numeric::bits_of(t.template load<E>(row + i))};
      };
      return {element(k) | element(k + 1) << element_bits};
    }
  }
};

/// How threads share out a linear: 16 lanes take a row, one its chain, so that they read whole
/// sectors of the row at each step; a lane holds `rows` x `tokens` sums.
struct LinearTile {
  unsigned tokens;       ///< of a warp
  unsigned rows;         ///< of half a warp
  unsigned steps;        ///< of 32 elements that a lane has in flight if they are BF16; F32: half
  unsigned row_warps;    ///< of a CTA: side by side along rows
  unsigned token_warps;  ///< and along tokens
};

/// E: of the weights, Bf16 or float. Pairs: columns are even, and weights and rows of x begin at
/// multiples of two elements. X: what the elements of x are rounded to, E or float.
template <class E, bool Pairs, LinearTile Tile, class X = float>
struct Linear : LinearRows {
  static constexpr unsigned threads = Tile.row_warps * Tile.token_warps * warp_lanes;
  static constexpr bool rounds = sizeof(X) == 2;
  static constexpr unsigned chains = 16;
  static constexpr unsigned step = 2 * chains;  ///< elements
  static constexpr unsigned unroll = Tile.steps * 2 / sizeof(E);
  static constexpr unsigned groups = warp_lanes / chains;  ///< rows of a warp at a time
  static constexpr unsigned tile_rows = Tile.row_warps * groups * Tile.rows;  ///< of a CTA
  static constexpr unsigned tile_tokens = Tile.token_warps * Tile.tokens;     ///< of a CTA

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {quotient_up<std::uint32_t>(tokens, tile_tokens),
            quotient_up<std::uint32_t>(rows, tile_rows), 1};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    unsigned const warp = t.thread() / warp_lanes;
    unsigned const chain = t.thread() % chains;
    std::uint32_t const token = t.block_x() * tile_tokens + warp % Tile.token_warps * Tile.tokens;
    std::uint32_t const row = t.block_y() * tile_rows +
                              warp / Tile.token_warps * groups * Tile.rows +
                              t.thread() % warp_lanes / chains;

    // Past the end, the last row and token stand in: no load depends on a condition.
    Operands from;
    HYBRIDSTATE_UNROLL
    for (unsigned r = 0; r < Tile.rows; ++r) {
      std::uint32_t const at = row + r * groups < rows ? row + r * groups : rows - 1;
      from.weights[r] = static_cast<const E*>(weights) + std::int64_t{at} * columns;
    }
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < Tile.tokens; ++i)
      from.x[i] = x.row(token + i < tokens ? token + i : tokens - 1);
    Sums sums;
    sums.clear();
    std::uint32_t k = 2 * chain;
    std::uint32_t begin = 0;
    if constexpr (Pairs)
      if (constexpr std::uint32_t whole = unroll * step; columns >= whole) {
        // The loop hands weights on to its next turn: so they are under way while it computes.
        Weights<unroll> w;
        load<true>(t, from, k, w);
        for (begin = whole; columns - begin >= whole; begin += whole, k += whole) {
          Weights<unroll> next;
          load<true>(t, from, k + whole, next);
          add<true>(t, from, k, w, sums);
          w = next;
        }
        add<true>(t, from, k, w, sums);
        k += whole;
      }
    constexpr unsigned few = unroll < 4 ? unroll : 4;
    for (; begin < columns; begin += few * step, k += few * step) {
      Weights<few> w;
      load<false>(t, from, k, w);
      add<false>(t, from, k, w, sums);
    }
    if constexpr (rounds)
      if (sums.may_need_flush()) {
        sums.clear();
        for (begin = 0, k = 2 * chain; begin < columns; begin += step, k += step) {
          Weights<1> w;
          load<false>(t, from, k, w);
          add<false, true>(t, from, k, w, sums);
        }
      }

    HYBRIDSTATE_UNROLL
    for (unsigned r = 0; r < Tile.rows; ++r) {
      std::uint32_t const at = row + r * groups;
      float const own_bias =
          bias != nullptr && at < rows ? t.template load<float>(bias + at) : 0.0F;
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < Tile.tokens; ++i) {
        float chain_sum[1] = {sums.of[r][i]};
        float value = halve<1, chains, 1>(t, chain_sum) * scale;
        if (bias != nullptr) value = value + own_bias;
        if (chain == 0 && at < rows && token + i < tokens)
          t.store(y.row(token + i) + at, value * post);
      }
    }
  }

 private:
  struct Operands {
    const E* weights[Tile.rows];
    const float* x[Tile.tokens];
  };
  struct Sums {
    float of[Tile.rows][Tile.tokens];
    std::uint32_t least_weight;  ///< of the magnitudes that are not zero: twice their bits, less 1
    std::uint32_t least_x;

    HYBRIDSTATE_HD void clear() {
      HYBRIDSTATE_UNROLL
      for (unsigned r = 0; r < Tile.rows; ++r) HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < Tile.tokens; ++i) of[r][i] = 0.0F;
      least_weight = least_x = ~0U;
    }
    HYBRIDSTATE_HD static void note(std::uint32_t& least, float f) {
      std::uint32_t const magnitude = (numeric::bits_of(f) << 1) - 1U;  // zero becomes the largest
      least = magnitude < least ? magnitude : least;
    }
    /// Otherwise all products, hence all sums, are multiples of 2^-126: none is subnormal, and
    /// flushing changes nothing. BF16 values of exponents e and f are multiples of 2^(e - 7) and
    /// 2^(f - 7).
    HYBRIDSTATE_HD bool may_need_flush() const {
      constexpr unsigned bias = 127;
      unsigned const e = least_weight >> 24;
      unsigned const f = least_x >> 24;
      return e == 0 || f == 0 || e + f < 2 * bias - 126 + 14;
    }
  };

  /// Of elements k and k + 1 of `Steps` steps.
  template <unsigned Steps>
  struct Weights {
    ElementPair<E> of[Steps][Tile.rows];
  };

  /// Whole: the row holds all of these steps.
  template <bool Whole, unsigned Steps, class T>
  HYBRIDSTATE_HD void load(T& t, const Operands& from, std::uint32_t k, Weights<Steps>& w) const {
    HYBRIDSTATE_UNROLL
    for (unsigned s = 0; s < Steps; ++s) HYBRIDSTATE_UNROLL
    for (unsigned r = 0; r < Tile.rows; ++r)
      w.of[s][r] =
          ElementPair<E>::template load<Pairs, Whole>(t, from.weights[r], k + s * step, columns);
  }
  /// Steps past the end of the row add nothing, not even zeros, which would turn -0 into +0.
  template <bool Whole, bool Flush = false, unsigned Steps, class T>
  HYBRIDSTATE_HD void add(T& t, const Operands& from, std::uint32_t k, const Weights<Steps>& w,
                          Sums& sums) const {
    HYBRIDSTATE_UNROLL
    for (unsigned s = 0; s < Steps; ++s) {
      std::uint32_t const at = k + s * step;
      if (!Whole && at / step * step >= columns) break;  // the same for the whole CTA
      if constexpr (rounds && !Flush) {
        HYBRIDSTATE_UNROLL
        for (unsigned r = 0; r < Tile.rows; ++r) {
          Sums::note(sums.least_weight, w.of[s][r].even());
          Sums::note(sums.least_weight, w.of[s][r].odd());
        }
      }
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < Tile.tokens; ++i) {
        auto const own = ElementPair<float>::load<Pairs, Whole>(t, from.x[i], at, columns);
        float even = own.even();
        float odd = own.odd();
        if constexpr (rounds) {
          even = numeric::round_to_bf16(even);
          odd = numeric::round_to_bf16(odd);
          if constexpr (!Flush) {
            Sums::note(sums.least_x, even);
            Sums::note(sums.least_x, odd);
          }
        }
        HYBRIDSTATE_UNROLL
        for (unsigned r = 0; r < Tile.rows; ++r) {
          float& sum = sums.of[r][i];
          if constexpr (rounds) {
            sum = product<Flush>(w.of[s][r].odd(), odd, sum);
            sum = product<Flush>(w.of[s][r].even(), even, sum);
          } else {
            sum = numeric::fused(w.of[s][r].even(), even, sum);
            sum = numeric::fused(w.of[s][r].odd(), odd, sum);
          }
        }
      }
    }
  }
  template <bool Flush>
  HYBRIDSTATE_HD static float product(float w, float x, float sum) {
    if constexpr (Flush)
      return numeric::fused_flushed(numeric::flushed(w), numeric::flushed(x), sum);
    else
      return numeric::fused(w, x, sum);
  }
};

/// With weights of a type that is known at run time only.
struct LinearJob : LinearRows {
  ElementType type = ElementType::bf16;
  ElementType input = ElementType::f32;  ///< what x is rounded to; BF16 only with such weights
};

/// Weights are read once for up to 8 tokens. Two elements at a time where columns are even, weights
/// begin at multiples of two elements and rows of x of 8 bytes, single elements elsewhere. False:
/// more CTAs than a launch takes (524280 rows, 2^31 - 1 tokens), or FP32 weights with BF16 inputs.
template <class Run>
bool with_kernel(const LinearJob& job, Run&& run) {
  constexpr std::uint32_t least_tile_rows = 8;
  if (job.rows > least_tile_rows * detail::most_grid_y || job.tokens > detail::most_grid_x)
    return false;
  auto const whole = [](const void* data, std::int64_t stride, std::int64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uint64_t>(bytes) == 0 &&
           stride % 2 == 0;
  };
  auto const with = [&]<class E, class X>() {
    // Few tokens: many loads in flight. Many: rows and tokens that share their loads.
    if (!whole(job.weights, job.columns, 2 * sizeof(E)) ||
        !whole(job.x.data, job.x.stride, 2 * sizeof(float)))
      run(Linear<E, false, LinearTile{8, 4, 4, 2, 1}, X>{job});
    else if (job.tokens <= 1)
      run(Linear<E, true, LinearTile{1, 2, 16, 2, 1}, X>{job});
    else if (job.tokens <= 2)
      run(Linear<E, true, LinearTile{2, 2, 16, 2, 1}, X>{job});
    else if (job.tokens <= 4)
      run(Linear<E, true, LinearTile{4, 4, 8, 2, 1}, X>{job});
    else if (job.tokens <= 8)
      run(Linear<E, true, LinearTile{8, 4, 8, 2, 1}, X>{job});
    else
      run(Linear<E, true, LinearTile{8, 8, 2, 2, 2}, X>{job});
    return true;
  };
  if (job.input == ElementType::f32)
    return detail::with_element(job.type,
                                [&]<class E>() { return with.template operator()<E, float>(); });
  return job.type == ElementType::bf16 && with.template operator()<Bf16, Bf16>();
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
