// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/job.hpp>
#include <hybridstate/kernels/reduce.hpp>

// The linear of the numeric contract: 16 chains, element k in chain (k / 2) mod 16, in order of k
// from +0, a short last step of 32 elements padded with zeros, then halving. A result depends on
// its row and its token alone, whatever else a batch holds.

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
/// multiples of two elements.
template <class E, bool Pairs, LinearTile Tile>
struct Linear : LinearRows {
  static constexpr unsigned threads = Tile.row_warps * Tile.token_warps * warp_lanes;
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
    Sums sums;
    HYBRIDSTATE_UNROLL
    for (unsigned r = 0; r < Tile.rows; ++r) {
      std::uint32_t const at = row + r * groups < rows ? row + r * groups : rows - 1;
      from.weights[r] = static_cast<const E*>(weights) + std::int64_t{at} * columns;
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < Tile.tokens; ++i) sums.of[r][i] = 0.0F;
    }
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < Tile.tokens; ++i)
      from.x[i] = x.row(token + i < tokens ? token + i : tokens - 1);
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
  template <bool Whole, unsigned Steps, class T>
  HYBRIDSTATE_HD void add(T& t, const Operands& from, std::uint32_t k, const Weights<Steps>& w,
                          Sums& sums) const {
    HYBRIDSTATE_UNROLL
    for (unsigned s = 0; s < Steps; ++s) {
      std::uint32_t const at = k + s * step;
      if (!Whole && at / step * step >= columns) break;  // the same for the whole CTA
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < Tile.tokens; ++i) {
        auto const own = ElementPair<float>::load<Pairs, Whole>(t, from.x[i], at, columns);
        HYBRIDSTATE_UNROLL
        for (unsigned r = 0; r < Tile.rows; ++r)
          sums.of[r][i] =
              numeric::fused(w.of[s][r].odd(), own.odd(),
                             numeric::fused(w.of[s][r].even(), own.even(), sums.of[r][i]));
      }
    }
  }
};

/// With weights of a type that is known at run time only.
struct LinearJob : LinearRows {
  ElementType type = ElementType::bf16;
};

/// Weights are read once for up to 8 tokens. Two elements at a time where columns are even, weights
/// begin at multiples of two elements and rows of x of 8 bytes, single elements elsewhere. False:
/// more CTAs than a launch takes (524280 rows, 2^31 - 1 tokens).
template <class Run>
bool with_kernel(const LinearJob& job, Run&& run) {
  constexpr std::uint32_t least_tile_rows = 8;
  if (job.rows > least_tile_rows * detail::most_grid_y || job.tokens > detail::most_grid_x)
    return false;
  return detail::with_element(job.type, [&]<class E>() {
    auto const whole = [](const void* data, std::int64_t stride, std::int64_t bytes) {
      return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uint64_t>(bytes) == 0 &&
             stride % 2 == 0;
    };
    // Few tokens: many loads in flight. Many: rows and tokens that share their loads.
    if (!whole(job.weights, job.columns, 2 * sizeof(E)) ||
        !whole(job.x.data, job.x.stride, 2 * sizeof(float)))
      run(Linear<E, false, LinearTile{8, 4, 4, 2, 1}>{job});
    else if (job.tokens <= 1)
      run(Linear<E, true, LinearTile{1, 2, 16, 2, 1}>{job});
    else if (job.tokens <= 2)
      run(Linear<E, true, LinearTile{2, 2, 16, 2, 1}>{job});
    else if (job.tokens <= 4)
      run(Linear<E, true, LinearTile{4, 4, 8, 2, 1}>{job});
    else if (job.tokens <= 8)
      run(Linear<E, true, LinearTile{8, 4, 8, 2, 1}>{job});
    else
      run(Linear<E, true, LinearTile{8, 8, 2, 2, 2}>{job});
    return true;
  });
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
