// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/device/ssm_pages.hpp>
#include <hybridstate/kernels/reduce.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// The inputs of the recurrence S = exp(dt A) S + (dt x) B, y = S . C + D x for a batch of tokens,
/// where dt = softplus(raw dt + bias) inside [dt_low, dt_high]. All FP32; x, b and c may point into
/// one buffer of rows.
struct RecurrenceInputs {
  const float* x = nullptr;  ///< [token][stride], head h at h * rows
  const float* b = nullptr;  ///< [token][stride], group g at g * state
  const float* c = nullptr;  ///< as b
  std::int64_t stride = 0;
  const float* dt = nullptr;  ///< [token][dt_stride], raw, one a head
  std::int64_t dt_stride = 0;
  const float* dt_bias = nullptr;  ///< [heads]
  const float* a = nullptr;        ///< [heads], negative: -exp(A_log)
  const float* d = nullptr;        ///< [heads]
  float dt_low = 0;
  float dt_high = numeric::float_of(0x7f800000U);
  float* y = nullptr;  ///< [token][y_stride], head h at h * rows
  std::int64_t y_stride = 0;
  std::uint32_t heads = 0;
  std::uint32_t groups = 1;  ///< of B and C: head h belongs to group h / (heads / groups)
  std::uint32_t rows = 0;    ///< of a head (head_dim)
};

/// Where the SSM states of a batch lie. A state without source begins at zero; a sequence without
/// destination is padding: its output is zero and nothing else is touched.
template <class Map>
struct StateRows {
  SsmPages<Map> source{};
  SsmPages<Map> destination{};  ///< may equal the source: in place
};

/// What a token of a head contributes: the factors of the recurrence.
struct TokenFactors {
  float decay, dt;
};
template <class T>
HYBRIDSTATE_HD TokenFactors token_factors(T& t, const RecurrenceInputs& in, std::uint32_t head,
                                          std::int64_t token) {
  float const raw = t.template load<float>(in.dt + token * in.dt_stride + head);
  float dt = numeric::softplus(raw + t.template load<float>(in.dt_bias + head));
  dt = dt < in.dt_low ? in.dt_low : dt;
  dt = dt > in.dt_high ? in.dt_high : dt;
  return {numeric::exp(dt * t.template load<float>(in.a + head)), dt};
}

/// How a warp shares out rows of N elements: sixteen bytes a lane and access, whole rows a group of
/// lanes.
template <class E, unsigned N>
struct RowTiling {
  static constexpr unsigned in_vector = per_vector<E>;
  static constexpr unsigned lanes = N / in_vector < warp_lanes ? N / in_vector : warp_lanes;
  static constexpr unsigned vectors = N / (lanes * in_vector);
  static constexpr unsigned elements = vectors * in_vector;  ///< of one lane
  static constexpr unsigned rows = warp_lanes / lanes;       ///< of one warp at a time
  static_assert(N % (lanes * in_vector) == 0 && N <= 256 && lanes >= in_vector,
                "rows of 64, 128 or 256 elements");

  /// The first element of vector v of a lane.
  HYBRIDSTATE_HD static constexpr unsigned first(unsigned lane, unsigned v) noexcept {
    return (v * lanes + lane) * in_vector;
  }
};

/// The part of B or C that belongs to a lane.
template <class Tiling, class T>
HYBRIDSTATE_HD void load_factors(T& t, const float* from, unsigned lane,
                                 float (&to)[Tiling::elements]) {
  for (unsigned v = 0; v < Tiling::vectors; ++v)
    for (unsigned k = 0; k < Tiling::in_vector; k += 4)
      unpack<float>(t.template load<Vector16>(from + Tiling::first(lane, v) + k),
                    to + v * Tiling::in_vector + k);
}

/// One token of the part of a row that a lane holds; the output in every lane of the row.
template <class Tiling, class T>
HYBRIDSTATE_HD float advance_row(T& t, TokenFactors factors, float x, float d,
                                 const float (&b)[Tiling::elements],
                                 const float (&c)[Tiling::elements], float (&s)[Tiling::elements]) {
  float const input = factors.dt * x;
  float product[Tiling::elements];
  for (unsigned i = 0; i < Tiling::elements; ++i) {
    s[i] = numeric::fused(factors.decay, s[i], input * b[i]);
    product[i] = s[i] * c[i];
  }
  return numeric::fused(d, x, halve<Tiling::vectors, Tiling::lanes, Tiling::in_vector>(t, product));
}

/// The decode step of selective state spaces: one token of each sequence, states read from the
/// source and written to the destination, each byte once. Row `s` of the maps and token row `s` of
/// the inputs belong to sequence s.
///
/// E: Bf16 (stored after every token, the output from the state before its rounding) or float.
/// N: elements of a row; heads must lie within a page (StateUpdateAny takes all other shapes).
/// Addresses of states and inputs are multiples of 16 bytes. A CTA takes `tile_rows` rows of one
/// head; results do not depend on it.
template <class E, unsigned N, class Map = MemberMap>
struct StateUpdate {
  using Tiling = RowTiling<E, N>;
  static constexpr unsigned threads = 128;
  static constexpr unsigned unroll = 4;  ///< accesses of a lane in flight
  static constexpr unsigned step = threads / warp_lanes * Tiling::rows;

  RecurrenceInputs in{};
  StateRows<Map> states{};
  /// A second destination, e.g. a checkpoint at this boundary; rows may be absent. Null pages:
  /// none.
  SsmPages<Map> checkpoint{};
  std::uint32_t sequences = 0;
  std::uint32_t tile_rows = 32;  ///< a multiple of `step`

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {in.heads * quotient_up(in.rows, tile_rows), sequences, 1};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const tiles = quotient_up(in.rows, tile_rows);
    std::uint32_t const head = t.block_x() / tiles;
    std::uint32_t const begin = t.block_x() % tiles * tile_rows;
    std::uint32_t const end = begin + tile_rows < in.rows ? begin + tile_rows : in.rows;
    auto const sequence = static_cast<std::int32_t>(t.block_y());
    auto const at = static_cast<std::int32_t>(head);
    float* const y = in.y + std::int64_t{sequence} * in.y_stride + head * in.rows;

    std::byte* const to = states.destination.addr_ssm(sequence, at);
    if (to == nullptr) {
      for (std::uint32_t row = begin + t.thread(); row < end; row += threads)
        t.store(y + row, 0.0F);
      return;
    }
    const std::byte* const from = states.source.addr_ssm(sequence, at);
    std::byte* const copy =
        checkpoint.pages != nullptr ? checkpoint.addr_ssm(sequence, at) : nullptr;

    unsigned const lane = t.thread() % Tiling::lanes;
    const float* const x = in.x + std::int64_t{sequence} * in.stride + head * in.rows;
    std::int64_t const factors_at =
        std::int64_t{sequence} * in.stride + head / (in.heads / in.groups) * N;
    float b[Tiling::elements];
    float c[Tiling::elements];
    load_factors<Tiling>(t, in.b + factors_at, lane, b);
    load_factors<Tiling>(t, in.c + factors_at, lane, c);
    TokenFactors const factors = token_factors(t, in, head, sequence);
    float const d = t.template load<float>(in.d + head);

    std::uint32_t const first = begin + t.thread() / Tiling::lanes;
    for (std::uint32_t base = begin; base < end; base += unroll * step) {
      Vector16 loaded[unroll][Tiling::vectors];
      float xs[unroll];
      for (unsigned u = 0; u < unroll; ++u) {
        std::uint32_t const row = first + (base - begin) + u * step;
        for (unsigned v = 0; v < Tiling::vectors; ++v)
          loaded[u][v] = from != nullptr && row < end
                             ? t.template load<Vector16>(from + byte_of(row, lane, v))
                             : Vector16{};
        xs[u] = row < end ? t.template load<float>(x + row) : 0.0F;
      }
      for (unsigned u = 0; u < unroll; ++u) {
        if (base + u * step >= end) break;  // the same for the whole CTA
        std::uint32_t const row = first + (base - begin) + u * step;
        float s[Tiling::elements];
        for (unsigned v = 0; v < Tiling::vectors; ++v)
          unpack<E>(loaded[u][v], s + v * Tiling::in_vector);
        float const out = advance_row<Tiling>(t, factors, xs[u], d, b, c, s);
        if (row >= end) continue;
        for (unsigned v = 0; v < Tiling::vectors; ++v) {
          Vector16 const stored = packed<E>(s + v * Tiling::in_vector);
          t.store(to + byte_of(row, lane, v), stored);
          if (copy != nullptr) t.store(copy + byte_of(row, lane, v), stored);
        }
        if (lane == 0) t.store(y + row, out);
      }
    }
  }

 private:
  HYBRIDSTATE_HD static constexpr std::int64_t byte_of(std::uint32_t row, unsigned lane,
                                                       unsigned v) noexcept {
    return (std::int64_t{row} * N + Tiling::first(lane, v)) * static_cast<std::int64_t>(sizeof(E));
  }
};

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
