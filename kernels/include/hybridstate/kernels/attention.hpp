// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <hybridstate/device/attention_blocks.hpp>
#include <hybridstate/kernels/job.hpp>
#include <hybridstate/kernels/reduce.hpp>

// Attention over keys and values in units of a pool, grouped queries, in the order of the numeric
// contract: splits of 256 tokens inside spans of 1,024, both counted from position 0; the splits of
// a span are joined in order, then the spans in order. Nothing depends on the batch, on how a
// prompt is cut into runs, or on what a CTA takes of a query's tokens: all of them
// (Pieces::in_turn), or a span or a split beside the others (Pieces::side_by_side, then
// JoinPieces).

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

inline constexpr std::uint32_t split_tokens = 256;
inline constexpr std::uint32_t span_tokens = 1024;

/// A run of queries at consecutive positions for each sequence of a batch. A query attends to
/// positions 0 to its own; keys and values of all of them are in their units already.
///
/// A sequence is padding, whose outputs are zero and of which nothing is read, where its table row,
/// its position or the first unit of its row is negative. A negative unit further on counts as
/// zeros.
struct AttentionBatch {
  AttentionBlocks blocks{};                ///< strides.token: head_dim elements
  const std::int32_t* row = nullptr;       ///< [sequences] of the block tables; null: sequence s
  const std::int32_t* position = nullptr;  ///< [sequences] of the first query
  /// [sequences + 1] the run of sequence s is token rows [first[s], first[s + 1]) of q and out;
  /// null: token row s alone, the decode step.
  const std::int32_t* first = nullptr;
  const float* q = nullptr;  ///< [token][q_stride], head h at h * head_dim, 16-byte aligned
  std::int64_t q_stride = 0;
  float* out = nullptr;  ///< as q
  std::int64_t out_stride = 0;
  float scale = 1;  ///< of scores
  std::uint32_t sequences = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t group = 1;  ///< query heads of a KV head: head h belongs to KV head h / group
};

/// The softmax over some tokens: their largest score, and the sum of exponentials relative to it.
struct alignas(8) Softmax {
  float largest, denominator;
};

/// Factors of what the tokens so far and the next ones contribute.
struct Rescale {
  float keep, take;
};
HYBRIDSTATE_HD inline Rescale join(Softmax& total, Softmax next) noexcept {
  float const m = total.largest < next.largest ? next.largest : total.largest;
  Rescale const by{numeric::exp(total.largest - m), numeric::exp(next.largest - m)};
  total = {m, numeric::fused(total.denominator, by.keep, next.denominator * by.take)};
  return by;
}

/// Joins four elements of an output into those of the tokens before.
HYBRIDSTATE_HD inline void join(const float (&before)[4], float (&next)[4], Rescale by) noexcept {
  for (unsigned i = 0; i < 4; ++i) next[i] = numeric::fused(before[i], by.keep, next[i] * by.take);
}

/// Softmax and unnormalized output of each piece of a decode step, in memory of the caller:
/// [sequence][query head][pieces], an output being head_dim floats. A sequence of one piece has
/// none.
struct PieceResults {
  Softmax* softmax = nullptr;
  float* output = nullptr;                    ///< 16-byte aligned
  std::uint32_t pieces = 0;                   ///< at least those of the longest sequence
  std::uint32_t piece_tokens = split_tokens;  ///< or span_tokens

  HYBRIDSTATE_HD constexpr std::int64_t at(std::int64_t sequence, std::uint32_t heads,
                                           std::uint32_t head, std::uint32_t piece) const noexcept {
    return (sequence * heads + head) * pieces + piece;
  }
};

/// A sequence's queries.
struct QueryRun {
  std::int32_t row, position;  ///< row negative: padding
  std::int64_t first;          ///< token row
  std::uint32_t queries;
};
template <class T>
HYBRIDSTATE_HD QueryRun query_run(T& t, const AttentionBatch& in, std::uint32_t sequence) {
  QueryRun run{static_cast<std::int32_t>(sequence), 0, sequence, 1};
  if (in.row != nullptr) run.row = t.template load<std::int32_t>(in.row + sequence);
  run.position = t.template load<std::int32_t>(in.position + sequence);
  if (in.first != nullptr) {
    run.first = t.template load<std::int32_t>(in.first + sequence);
    run.queries = static_cast<std::uint32_t>(
        t.template load<std::int32_t>(in.first + sequence + 1) - run.first);
  }
  if (run.position < 0 || table_entry(in.blocks.units, in.blocks.row_stride, run.row, 0) < 0)
    run.row = -1;
  return run;
}

/// How the tokens of a KV head lie in shared memory while a CTA works on them: rows of 16-byte
/// vectors, one more than needed, so that the vectors of 8 neighbouring rows lie in all 32 banks.
/// BF16 rows are read by halves of a vector, 16 rows at a time: every other 8 rows swap the halves.
template <class E, unsigned D>
struct TokenTile {
  static constexpr unsigned vectors = D / per_vector<E>;  ///< of a row
  static constexpr unsigned tokens = D * sizeof(E) <= 256 ? 64 : D * sizeof(E) <= 512 ? 32 : 16;
  static constexpr unsigned size = tokens * (vectors + 1);

  HYBRIDSTATE_HD static constexpr unsigned at(unsigned token, unsigned vector) noexcept {
    return token * (vectors + 1) + vector;
  }
  HYBRIDSTATE_HD static constexpr bool swapped(unsigned token) noexcept {
    return sizeof(E) == 2 && (token & 8U) != 0;
  }
  HYBRIDSTATE_HD static constexpr void put(Vector16* tile, unsigned token, unsigned vector,
                                           const Vector16& v) noexcept {
    tile[at(token, vector)] =
        swapped(token) ? Vector16{{v.word[2], v.word[3], v.word[0], v.word[1]}} : v;
  }
  /// Elements [4 * quad, 4 * quad + 4) of a token.
  HYBRIDSTATE_HD static constexpr void get(const Vector16* tile, unsigned token, unsigned quad,
                                           float (&to)[4]) noexcept {
    if constexpr (sizeof(E) == 2) {
      const Vector16& v = tile[at(token, quad / 2)];
      unsigned const half = (quad % 2 != 0) != swapped(token) ? 2 : 0;
      std::uint32_t const low = v.word[half];
      std::uint32_t const high = v.word[half + 1];
      to[0] = numeric::float_of(low << 16);
      to[1] = numeric::float_of(low & 0xffff0000U);
      to[2] = numeric::float_of(high << 16);
      to[3] = numeric::float_of(high & 0xffff0000U);
    } else {
      unpack<E>(tile[at(token, quad)], to);
    }
  }
};

/// Chains of the wide sum over n <= 256 elements: one an element.
constexpr unsigned wide_chains(unsigned n) noexcept {
  unsigned chains = 16;
  while (chains < n) chains *= 2;
  return chains;
}

/// Products of one key with N queries, four neighbouring chains at a time. Quad g of the W quads
/// that are left while halving is quad g plus quad g + W of the 2 W before: taken depth first, few
/// of them live at once.
template <class E, unsigned D, unsigned N>
struct KeyDot {
  static constexpr unsigned quads = wide_chains(D) / 4;
  const Vector16* tile;
  unsigned token;
  const Vector16* q;  ///< [N][D / 4]

  template <unsigned W, unsigned G>
  HYBRIDSTATE_HD HYBRIDSTATE_INLINE void halved(float (&to)[N][4]) const {
    if constexpr (W < quads) {
      float upper[N][4];
      halved<2 * W, G>(to);
      halved<2 * W, G + W>(upper);
      for (unsigned n = 0; n < N; ++n)
        for (unsigned i = 0; i < 4; ++i) to[n][i] = to[n][i] + upper[n][i];
    } else if constexpr (4 * G < D) {
      float key[4];
      TokenTile<E, D>::get(tile, token, G, key);
      for (unsigned n = 0; n < N; ++n) {
        unpack<float>(q[n * (D / 4) + G], to[n]);
        for (unsigned i = 0; i < 4; ++i) to[n][i] = to[n][i] * key[i];
      }
    } else {
      for (unsigned n = 0; n < N; ++n)
        for (unsigned i = 0; i < 4; ++i) to[n][i] = 0;
    }
  }
  HYBRIDSTATE_HD void operator()(float (&to)[N]) const {
    float sum[N][4];
    halved<1, 0>(sum);
    for (unsigned n = 0; n < N; ++n) to[n] = (sum[n][0] + sum[n][2]) + (sum[n][1] + sum[n][3]);
  }
};

enum class Pieces : std::uint8_t { in_turn, side_by_side };

/// Attention of the queries of a batch. The queries of a sequence times the query heads of a KV
/// head are its rows; a CTA takes R of them, which share every key and value it reads.
///
/// E: Bf16 or float, of keys and values. D: head_dim. Addresses of keys and values are multiples of
/// 16 bytes. With Pieces::in_turn a CTA takes all tokens of its rows; with Pieces::side_by_side,
/// for one query per sequence, one piece, into `results`, for JoinPieces.
template <class E, unsigned D, unsigned R, Pieces S>
struct Attention {
  using Tile = TokenTile<E, D>;
  static constexpr unsigned threads = D <= 128 ? 128 : 256;
  /// 128 registers a thread, or 168.
  static constexpr int least_ctas = D > 128                                       ? 2
                                    : S == Pieces::side_by_side && sizeof(E) == 2 ? 4
                                                                                  : 3;
  static constexpr unsigned quads = D / 4;
  static_assert(D % 16 == 0 && D >= 64 && D <= 256 && R >= 1 && R <= 8);

  AttentionBatch in{};
  PieceResults results{};          ///< Pieces::side_by_side
  std::uint32_t most_queries = 1;  ///< of any sequence

  HYBRIDSTATE_HD constexpr std::uint32_t tiles() const noexcept {
    return quotient_up(most_queries * in.group, R);
  }
  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {in.kv_heads * tiles(), in.sequences, S == Pieces::in_turn ? 1 : results.pieces};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    Rows rows{};
    rows.run = query_run(t, in, t.block_y());
    rows.kv_head = t.block_x() % in.kv_heads;
    rows.first = (tiles() - 1 - t.block_x() / in.kv_heads) * R;  // the longest first
    rows.group = in.group;
    std::uint32_t const all = rows.run.queries * in.group;
    if (rows.first >= all) return;
    rows.count = rows.first + R < all ? R : all - rows.first;
    if (rows.run.row < 0) {
      if constexpr (S == Pieces::in_turn)
        for (unsigned i = t.thread(); i < rows.count * quads; i += threads)
          t.store(in.out + place(rows, i / quads) + i % quads * 4, Vector16{});
      return;
    }
    std::int32_t const last = rows.position(rows.count - 1);
    std::int32_t end = last + 1;
    if constexpr (S == Pieces::side_by_side) {
      auto const piece = static_cast<std::int32_t>(results.piece_tokens);
      rows.start = static_cast<std::int32_t>(t.block_z()) * piece;
      if (rows.start >= end) return;
      if (end - rows.start > piece) end = rows.start + piece;
    }
    Shared& m = t.template shared<Shared>();
    place_rows(t, m, rows);
    for (; rows.start < end; rows.start += tokens) {
      std::int32_t const left = end - rows.start;
      attend(t, m, rows, left < tokens ? left : tokens);
    }
  }

 private:
  static constexpr std::int32_t tokens = split_tokens;
  static constexpr std::int32_t span = span_tokens;
  static constexpr unsigned staged = Tile::tokens * Tile::vectors / threads;
  static_assert(Tile::tokens * Tile::vectors % threads == 0);
  // Scores: a thread takes one token of a tile and some rows.
  static constexpr unsigned score_parts = threads / Tile::tokens;
  static constexpr unsigned score_rows = quotient_up(R, score_parts);
  /// Rows at a time, for want of registers.
  static constexpr unsigned scored = sizeof(E) == 4 ? 1 : score_rows <= 3 ? score_rows : 2;
  static_assert(R % score_rows == 0 && score_rows % scored == 0);
  // Values: a thread takes four elements, every fourth token, and some rows.
  static constexpr unsigned value_parts = threads / D;
  static constexpr unsigned value_rows = quotient_up(R, value_parts);
  static_assert(R % value_rows == 0);
  static constexpr unsigned exchanged = 2 * R * quads;
  /// Of joins: what there is of a row at level 0, in turn a span behind the first one at level 1.
  static constexpr unsigned levels = S == Pieces::in_turn ? 2 : 1;

  /// Rows of a CTA, and the position where the split begins that it is at.
  struct Rows {
    QueryRun run;
    std::uint32_t kv_head, group, first, count;
    std::int32_t start;

    HYBRIDSTATE_HD std::int64_t token(unsigned r) const { return run.first + (first + r) / group; }
    HYBRIDSTATE_HD std::uint32_t head(unsigned r) const {
      return kv_head * group + (first + r) % group;
    }
    HYBRIDSTATE_HD std::int32_t position(unsigned r) const {
      return run.position + static_cast<std::int32_t>((first + r) / group);
    }
  };

  /// Of scores, then exponentials, token t of a split lies at [t % 4][t / 4]: what a thread reads
  /// of them for values lies together, and a warp's access to 32 tokens meets 32 banks.
  struct Shared {
    Vector16 tile[Tile::size > exchanged ? Tile::size : exchanged];
    Vector16 q[R * quads];
    Vector16 p[R][4][split_tokens / 16 + 2];
    Vector16 output[levels][R * quads];
    std::int64_t offset[split_tokens];  ///< of keys
    std::int64_t query[R];              ///< place of a row in `q`; -1: none
    std::int64_t place[R];              ///< of a row in `out`, or of its piece in `results`
    std::int32_t position[R];           ///< of a row's query; -1: none
    Softmax softmax[levels][R];
    Rescale rescale[levels][R];  ///< of the last join into a level

    HYBRIDSTATE_HD std::uint32_t& score(unsigned r, unsigned token) {
      return p[r][token % 4][token / 16].word[token / 4 % 4];
    }
    /// Tokens from `start` on that a row attends to; none where not positive.
    HYBRIDSTATE_HD std::int32_t visible(unsigned r, std::int32_t start) const {
      return position[r] - start + 1;
    }
  };

  HYBRIDSTATE_HD std::int64_t place(const Rows& rows, unsigned r) const {
    return rows.token(r) * in.out_stride + std::int64_t{rows.head(r)} * D;
  }
  /// Whether the only piece of its sequence is at hand, which needs no joining.
  HYBRIDSTATE_HD bool alone(std::int32_t position) const {
    return S == Pieces::in_turn || position < static_cast<std::int32_t>(results.piece_tokens);
  }
  HYBRIDSTATE_HD bool one_split() const {
    return S == Pieces::side_by_side && results.piece_tokens == split_tokens;
  }
  /// Whether the split at `start` is the first one, or for a row the last one, that is joined on
  /// its level.
  HYBRIDSTATE_HD bool begins(std::int32_t start) const { return start % span == 0 || one_split(); }
  HYBRIDSTATE_HD bool ends(std::int32_t start, std::int32_t visible) const {
    return visible <= tokens || (start + tokens) % span == 0 || one_split();
  }
  HYBRIDSTATE_HD static unsigned level_of(std::int32_t start) {
    return levels == 2 && start >= span ? 1 : 0;
  }

  /// One split, of which the rows' queries attend to `count` tokens at most.
  template <class T>
  HYBRIDSTATE_HD void attend(T& t, Shared& m, const Rows& rows, std::int32_t count) const {
    for (unsigned i = t.thread(); i < split_tokens; i += threads) {
      auto const token = static_cast<std::int32_t>(i);
      m.offset[i] = token < count
                        ? in.blocks
                              .key_offset(rows.run.row, static_cast<std::int32_t>(rows.kv_head),
                                          rows.start + token)
                              .value
                        : -1;
    }
    t.sync();
    // A tile is on its way from memory while the one before is in use.
    unsigned const tiles = quotient_up(static_cast<unsigned>(count), Tile::tokens);
    const std::byte* const keys = in.blocks.base;
    const std::byte* const values = keys + in.blocks.strides.value;
    Vector16 next[staged];
    fetch(t, m, keys, 0, next);
    if (S == Pieces::in_turn ? rows.start == 0 : begins(rows.start)) load_queries(t, m);
    for (unsigned tile = 0; tile < tiles; ++tile) {
      put(t, m, next);
      t.sync();
      bool const more = tile + 1 < tiles;
      fetch(t, m, more ? keys : values, more ? tile + 1 : 0, next);
      score(t, m, tile);
      t.sync();
    }
    exponentiate(t, m, rows.start, count);

    float sum[value_rows][4] = {};
    for (unsigned tile = 0; tile < tiles; ++tile) {
      put(t, m, next);
      t.sync();
      if (tile + 1 < tiles) fetch(t, m, values, tile + 1, next);
      weigh(t, m, rows.start, count, tile, sum);
      t.sync();
    }
    finish(t, m, rows.start, sum);
  }

  template <class T>
  HYBRIDSTATE_HD void place_rows(T& t, Shared& m, const Rows& rows) const {
    if (t.thread() >= R) return;
    unsigned const r = t.thread();
    bool const used = r < rows.count;
    m.position[r] = used ? rows.position(r) : -1;
    m.query[r] = used ? rows.token(r) * in.q_stride + std::int64_t{rows.head(r)} * D : -1;
    m.place[r] = alone(rows.position(0)) ? place(rows, r)
                                         : results.at(rows.run.first, in.kv_heads * in.group,
                                                      rows.head(r), t.block_z());
  }
  template <class T>
  HYBRIDSTATE_HD void load_queries(T& t, Shared& m) const {
    for (unsigned i = t.thread(); i < R * quads; i += threads) {
      std::int64_t const at = m.query[i / quads];
      m.q[i] = at < 0 ? Vector16{} : t.template load<Vector16>(in.q + at + i % quads * 4);
    }
  }

  template <class T>
  HYBRIDSTATE_HD static void fetch(T& t, const Shared& m, const std::byte* base, unsigned tile,
                                   Vector16 (&to)[staged]) {
    for (unsigned i = 0; i < staged; ++i) {
      unsigned const v = t.thread() + i * threads;
      std::int64_t const offset = m.offset[tile * Tile::tokens + v / Tile::vectors];
      to[i] = offset < 0
                  ? Vector16{}
                  : t.template load<Vector16>(base + offset + v % Tile::vectors * sizeof(Vector16));
    }
  }
  template <class T>
  HYBRIDSTATE_HD static void put(T& t, Shared& m, const Vector16 (&from)[staged]) {
    for (unsigned i = 0; i < staged; ++i) {
      unsigned const v = t.thread() + i * threads;
      Tile::put(m.tile, v / Tile::vectors, v % Tile::vectors, from[i]);
    }
  }

  template <class T>
  HYBRIDSTATE_HD void score(T& t, Shared& m, unsigned tile) const {
    unsigned const token = t.thread() % Tile::tokens;
    unsigned const first = t.thread() / Tile::tokens * score_rows;
    if (first >= R) return;
    for (unsigned row = first; row < first + score_rows; row += scored) {
      float dot[scored];
      KeyDot<E, D, scored>{m.tile, token, m.q + row * quads}(dot);
      for (unsigned r = 0; r < scored; ++r)
        m.score(row + r, tile * Tile::tokens + token) = numeric::bits_of(dot[r] * in.scale);
    }
  }

  /// Scores to exponentials relative to the largest, and their sum: a warp a row.
  template <class T>
  HYBRIDSTATE_HD void exponentiate(T& t, Shared& m, std::int32_t start, std::int32_t count) const {
    constexpr unsigned each = split_tokens / warp_lanes;
    unsigned const lane = t.thread() % warp_lanes;
    for (unsigned r = t.thread() / warp_lanes; r < R; r += threads / warp_lanes) {
      std::int32_t const visible = m.visible(r, start);
      if (visible <= 0) continue;
      auto const end = static_cast<unsigned>(visible < count ? visible : count);
      float s[each];
      for (unsigned i = 0; i < each; ++i)
        s[i] = i * warp_lanes + lane < end ? numeric::float_of(m.score(r, i * warp_lanes + lane))
                                           : 0.0F;
      float largest = numeric::float_of(0xff800000U);  // a NaN among scores ends in the sum
      for (unsigned i = 0; i < each; ++i)
        largest = i * warp_lanes + lane < end && largest < s[i] ? s[i] : largest;
      for (unsigned bit = warp_lanes / 2; bit > 0; bit /= 2) {
        float const other = t.shuffle_xor(largest, bit);
        largest = largest < other ? other : largest;
      }
      for (unsigned i = 0; i < each; ++i) {
        unsigned const token = i * warp_lanes + lane;
        s[i] = token < end ? numeric::exp(s[i] - largest) : 0.0F;
        m.score(r, token) = numeric::bits_of(s[i]);
      }
      Softmax const split{largest, halve<each, warp_lanes, 1>(t, s)};
      if (lane != 0) continue;
      unsigned const level = level_of(start);
      if (begins(start))
        m.softmax[level][r] = split;
      else
        m.rescale[level][r] = join(m.softmax[level][r], split);
      if (level > 0 && ends(start, visible))
        m.rescale[0][r] = join(m.softmax[0][r], m.softmax[level][r]);
    }
  }

  /// The first row, chain and quad of a thread of weigh().
  struct Share {
    unsigned row, chain, quad;
  };
  HYBRIDSTATE_HD static Share share(unsigned thread) {
    unsigned const part = thread / D;
    return {part < value_parts ? part * value_rows : R, thread % D / quads, thread % quads};
  }

  /// Adds the values of a tile, weighted, to the sums of a thread's chain.
  template <class T>
  HYBRIDSTATE_HD void weigh(T& t, const Shared& m, std::int32_t start, std::int32_t count,
                            unsigned tile, float (&sum)[value_rows][4]) const {
    Share const at = share(t.thread());
    if (at.row >= R) return;
    // Tokens that all rows attend to.
    std::int32_t const common = S == Pieces::in_turn ? m.visible(0, start) : count;
    for (unsigned step = 0; step < Tile::tokens / 16; ++step) {
      unsigned const first = tile * Tile::tokens + step * 16 + at.chain;
      auto const token = static_cast<std::int32_t>(first);
      if (token >= count) break;
      float value[4][4];
      for (unsigned k = 0; k < 4; ++k)
        Tile::get(m.tile, step * 16 + k * 4 + at.chain, at.quad, value[k]);
      for (unsigned r = 0; r < value_rows; ++r) {
        float p[4];
        unpack<float>(m.p[at.row + r][at.chain][first / 16], p);
        std::int32_t const end = token + 12 < common || S == Pieces::side_by_side
                                     ? common
                                     : m.visible(at.row + r, start);
        for (unsigned k = 0; k < 4; ++k)
          if (token + static_cast<std::int32_t>(4 * k) < end)
            for (unsigned i = 0; i < 4; ++i)
              sum[r][i] = numeric::fused(p[k], value[k][i], sum[r][i]);
      }
    }
  }

  /// The four chains' sums to the split's output: chain 0 + 2 and 1 + 3, then both.
  template <class T>
  HYBRIDSTATE_HD void finish(T& t, Shared& m, std::int32_t start,
                             float (&sum)[value_rows][4]) const {
    Share const at = share(t.thread());
    bool const active = at.row < R;
    auto const slot = [&](unsigned chain, unsigned r) -> Vector16& {
      return m.tile[(chain * R + at.row + r) * quads + at.quad];
    };
    auto const add = [&](const Vector16& v, unsigned r) {
      float other[4];
      unpack<float>(v, other);
      for (unsigned i = 0; i < 4; ++i) sum[r][i] = sum[r][i] + other[i];
    };
    if (active && at.chain >= 2)
      for (unsigned r = 0; r < value_rows; ++r) slot(at.chain - 2, r) = packed<float>(sum[r]);
    t.sync();
    if (active && at.chain < 2)
      for (unsigned r = 0; r < value_rows; ++r) {
        add(slot(at.chain, r), r);
        if (at.chain == 1) slot(1, r) = packed<float>(sum[r]);
      }
    t.sync();
    if (!active || at.chain != 0) return;
    for (unsigned r = 0; r < value_rows; ++r) {
      if (m.visible(at.row + r, start) > 0) {
        add(slot(1, r), r);
        leave(t, m, start, at.row + r, at.quad, sum[r]);
      }
    }
  }

  /// Four elements of a row's output of the split, to where they go.
  template <class T>
  HYBRIDSTATE_HD void leave(T& t, Shared& m, std::int32_t start, unsigned r, unsigned quad,
                            float (&sum)[4]) const {
    unsigned level = level_of(start);
    auto const join_level = [&] {
      float before[4];
      unpack<float>(m.output[level][r * quads + quad], before);
      join(before, sum, m.rescale[level][r]);
    };
    if (!begins(start)) join_level();
    bool const ended = ends(start, m.visible(r, start));
    if (level > 0 && ended) {
      level = 0;
      join_level();
    }
    if (!ended || (S == Pieces::in_turn && m.visible(r, start) > tokens)) {
      m.output[level][r * quads + quad] = packed<float>(sum);
    } else if (alone(m.position[r])) {
      for (float& f : sum) f = f / m.softmax[0][r].denominator;
      t.store(in.out + m.place[r] + quad * 4, packed<float>(sum));
    } else {
      t.store(results.output + m.place[r] * D + quad * 4, packed<float>(sum));
      if (quad == 0) t.store(results.softmax + m.place[r], m.softmax[0][r]);
    }
  }
};

/// Joins what Attention with Pieces::side_by_side left, in order: the outputs of a decode step.
struct JoinPieces {
  static constexpr unsigned threads = 128;
  static constexpr unsigned ahead = 4;  ///< pieces in flight

  AttentionBatch in{};
  PieceResults results{};
  std::uint32_t head_dim = 0;  ///< a multiple of 4

  HYBRIDSTATE_HD constexpr std::uint32_t quads() const noexcept {
    return in.kv_heads * in.group * (head_dim / 4);
  }
  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {quotient_up(quads(), threads), in.sequences, 1};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const at = t.block_x() * threads + t.thread();
    if (at >= quads()) return;
    QueryRun const run = query_run(t, in, t.block_y());
    float* const out = in.out + run.first * in.out_stride + std::int64_t{at} * 4;
    if (run.row < 0) return t.store(out, Vector16{});

    std::int64_t const base =
        results.at(t.block_y(), in.kv_heads * in.group, at / (head_dim / 4), 0);
    std::uint32_t const pieces =
        static_cast<std::uint32_t>(run.position) / results.piece_tokens + 1;
    if (pieces == 1) return;  // Attention has written its output
    std::uint32_t const each = span_tokens / results.piece_tokens;
    Softmax total{}, span{};
    float all[4] = {};
    float before[4] = {};  // of the span
    for (std::uint32_t first = 0; first < pieces; first += ahead) {
      Softmax softmax[ahead];
      Vector16 output[ahead];
      for (unsigned i = 0; i < ahead; ++i) {
        if (first + i >= pieces) break;
        softmax[i] = t.template load<Softmax>(results.softmax + base + first + i);
        output[i] = t.template load<Vector16>(results.output + (base + first + i) * head_dim +
                                              at % (head_dim / 4) * 4);
      }
      for (unsigned i = 0; i < ahead; ++i) {
        std::uint32_t const piece = first + i;
        if (piece >= pieces) break;
        float next[4];
        unpack<float>(output[i], next);
        if (piece % each == 0)
          span = softmax[i];
        else
          join(before, next, join(span, softmax[i]));
        copy(next, before);
        if ((piece + 1) % each != 0 && piece + 1 < pieces) continue;
        if (piece < each)
          total = span;
        else
          join(all, next, join(total, span));
        copy(next, all);
      }
    }
    for (float& f : all) f = f / total.denominator;
    t.store(out, packed<float>(all));
  }

 private:
  HYBRIDSTATE_HD static void copy(const float (&from)[4], float (&to)[4]) noexcept {
    for (unsigned i = 0; i < 4; ++i) to[i] = from[i];
  }
};

/// The same for heads of any width up to 512 and any alignment, a query head of a query a CTA:
/// for small models.
template <class E>
struct AttentionAny {
  static constexpr unsigned threads = 128;
  static constexpr unsigned most_dim = 512;

  AttentionBatch in{};
  std::uint32_t head_dim = 0;
  std::uint32_t most_queries = 1;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {in.kv_heads * in.group, most_queries, in.sequences};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    QueryRun const run = query_run(t, in, t.block_z());
    if (t.block_y() >= run.queries) return;
    std::int64_t const token = run.first + t.block_y();
    std::int64_t const at = std::int64_t{t.block_x()} * head_dim;
    float* const out = in.out + token * in.out_stride + at;
    if (run.row < 0) {
      for (unsigned e = t.thread(); e < head_dim; e += threads) t.store(out + e, 0.0F);
      return;
    }
    struct Shared {
      float p[split_tokens];
    };
    auto& p = t.template shared<Shared>().p;
    auto const head = static_cast<std::int32_t>(t.block_x() / in.group);
    std::int32_t const tokens = run.position + static_cast<std::int32_t>(t.block_y()) + 1;
    constexpr unsigned held = most_dim / warp_lanes;
    float q[held];
    const float* const from = in.q + token * in.q_stride + at;
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < held; ++i) q[i] = element<float>(t, from, i * warp_lanes + lane(t));

    Softmax total{}, span{};
    float sum[own] = {};
    float of_span[own] = {};
    for (std::int32_t start = 0; start < tokens; start += static_cast<int>(split_tokens)) {
      std::uint32_t const left = static_cast<std::uint32_t>(tokens - start);
      std::uint32_t const count = left < split_tokens ? left : split_tokens;
      score(t, p, q, run.row, head, start, count);
      t.sync();
      Softmax const next = exponentiate(t, p, count);
      bool const begins = static_cast<std::uint32_t>(start) % span_tokens == 0;
      Rescale by{};
      if (begins)
        span = next;
      else
        by = join(span, next);
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < own; ++i) {
        float const weighed = weigh(t, p, run.row, head, start, count, i * threads + t.thread());
        of_span[i] = begins ? weighed : numeric::fused(of_span[i], by.keep, weighed * by.take);
      }
      t.sync();
      std::uint32_t const done = static_cast<std::uint32_t>(start) + count;
      if (left > count && done % span_tokens != 0) continue;
      bool const first = done <= span_tokens;
      if (first)
        total = span;
      else
        by = join(total, span);
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < own; ++i)
        sum[i] = first ? of_span[i] : numeric::fused(sum[i], by.keep, of_span[i] * by.take);
    }
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < own; ++i)
      if (i * threads + t.thread() < head_dim)
        t.store(out + i * threads + t.thread(), sum[i] / total.denominator);
  }

 private:
  static constexpr unsigned own = most_dim / threads;  ///< elements of the output of a thread

  template <class T>
  HYBRIDSTATE_HD static unsigned lane(T& t) {
    return t.thread() % warp_lanes;
  }
  /// Zero past the head's end, and of an absent unit.
  template <class Stored, class T>
  HYBRIDSTATE_HD float element(T& t, const void* row, unsigned e) const {
    if (row == nullptr || e >= head_dim) return 0.0F;
    return to_float(t.template load<Stored>(static_cast<const Stored*>(row) + e));
  }
  /// A warp a token.
  template <class T>
  HYBRIDSTATE_HD void score(T& t, float* p, const float (&q)[most_dim / warp_lanes],
                            std::int32_t row, std::int32_t head, std::int32_t start,
                            std::uint32_t count) const {
    for (unsigned i = t.thread() / warp_lanes; i < count; i += threads / warp_lanes) {
      const void* const key = in.blocks.addr_key(row, head, start + static_cast<std::int32_t>(i));
      float k[most_dim / warp_lanes];
      HYBRIDSTATE_UNROLL
      for (unsigned e = 0; e < most_dim / warp_lanes; ++e)
        k[e] = element<E>(t, key, e * warp_lanes + lane(t));
      float const dot = strided_dot(t, head_dim, q, k);
      if (lane(t) == 0) p[i] = dot * in.scale;
    }
  }
  /// Scores to exponentials; a NaN is the largest where it comes first.
  template <class T>
  HYBRIDSTATE_HD Softmax exponentiate(T& t, float* p, std::uint32_t count) const {
    float largest = p[0];
    for (unsigned i = 1; i < count; ++i) largest = largest < p[i] ? p[i] : largest;
    t.sync();
    for (unsigned i = t.thread(); i < split_tokens; i += threads)
      p[i] = i < count ? numeric::exp(p[i] - largest) : 0.0F;
    t.sync();
    float chain[split_tokens / warp_lanes];
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < split_tokens / warp_lanes; ++i) chain[i] = p[i * warp_lanes + lane(t)];
    return {largest, halve<split_tokens / warp_lanes, warp_lanes, 1>(t, chain)};
  }
  /// One element of the split's output: chains of every fourth token.
  template <class T>
  HYBRIDSTATE_HD float weigh(T& t, const float* p, std::int32_t row, std::int32_t head,
                             std::int32_t start, std::uint32_t count, unsigned e) const {
    float chain[4] = {};
    if (e >= head_dim) return 0.0F;
    for (unsigned base = 0; base < count; base += 4) {
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        if (base + i >= count) break;
        const void* const value =
            in.blocks.addr_value(row, head, start + static_cast<std::int32_t>(base + i));
        chain[i] = numeric::fused(p[base + i], element<E>(t, value, e), chain[i]);
      }
    }
    return (chain[0] + chain[2]) + (chain[1] + chain[3]);
  }
};

/// Attention whose head width and storage type are known at run time only.
struct AttentionJob {
  AttentionBatch batch{};
  ElementType type = ElementType::bf16;  ///< of keys and values
  std::uint32_t head_dim = 0;            ///< up to 512; 64, 80, 128 and 256 in vector accesses
  std::uint32_t most_queries = 1;        ///< of any sequence; further ones are left out
  /// Where the results of pieces go that are computed side by side, by CTAs of their own; one query
  /// per sequence then, and a head_dim in vector accesses. Null: all tokens in turn. The same bits.
  ///
  /// A GPU is busy with some CTAs on every multiprocessor: take the first of in turn, spans and
  /// splits that gives sequences * kv_heads * pieces of them. Few long sequences want splits, from
  /// 8 on spans, many sequences no pieces. Pieces write and read their results besides keys and
  /// values: for 6 query heads of 128 on a KV head, 1.2 % with whole spans, 4.8 % with splits.
  PieceResults results{};
};

/// Bytes of the memory that piece_results() lays out. `most_tokens`: of any sequence, the query's
/// own included. piece_tokens: split_tokens or span_tokens.
constexpr std::size_t piece_results_bytes(std::uint32_t sequences, std::uint32_t query_heads,
                                          std::uint32_t head_dim, std::uint32_t most_tokens,
                                          std::uint32_t piece_tokens) noexcept {
  return std::size_t{sequences} * query_heads * quotient_up(most_tokens, piece_tokens) *
         (sizeof(Softmax) + head_dim * sizeof(float));
}
/// In memory at a multiple of 16 bytes.
inline PieceResults piece_results(void* memory, std::uint32_t sequences, std::uint32_t query_heads,
                                  std::uint32_t head_dim, std::uint32_t most_tokens,
                                  std::uint32_t piece_tokens) noexcept {
  auto* const output = static_cast<float*>(memory);
  std::uint32_t const pieces = quotient_up(most_tokens, piece_tokens);
  std::size_t const floats = std::size_t{sequences} * query_heads * pieces * head_dim;
  return {reinterpret_cast<Softmax*>(output + floats), output, pieces, piece_tokens};
}

namespace detail {
inline bool vector_attention(const AttentionJob& job) noexcept {
  const AttentionBatch& b = job.batch;
  KvStrides const s = b.blocks.strides;
  return (job.head_dim == 64 || job.head_dim == 80 || job.head_dim == 128 || job.head_dim == 256) &&
         s.token == std::int64_t{job.head_dim} * bytes_of(job.type) &&
         vectors(s.head, s.value, b.blocks.unit_stride, b.q_stride * 4, b.out_stride * 4,
                 b.blocks.base, b.q, b.out, job.results.output);
}

template <class E, unsigned D, unsigned R, class Run>
bool attention_rows(const AttentionJob& job, Run& run) {
  if (job.results.softmax == nullptr) {
    constexpr unsigned rows = D > 128 ? R / 2 : R;  // for want of shared memory
    run(Attention<E, D, rows, Pieces::in_turn>{job.batch, {}, job.most_queries});
    return true;
  }
  run(Attention<E, D, R, Pieces::side_by_side>{job.batch, job.results, 1});
  run(JoinPieces{job.batch, job.results, job.head_dim});
  return true;
}
/// With the R that leaves the fewest rows of the last CTA unused; the largest of several.
template <class E, unsigned D, unsigned R, unsigned... Less, class Run>
bool attention_best(const AttentionJob& job, Run& run) {
  if constexpr (sizeof...(Less) > 0) {
    std::uint32_t const rows = job.most_queries * job.batch.group;
    auto const computed = [&](unsigned r) { return quotient_up(rows, r) * r; };
    if (((computed(Less) < computed(R)) || ...)) return attention_best<E, D, Less...>(job, run);
  }
  return attention_rows<E, D, R>(job, run);
}
}  // namespace detail

template <class Run>
bool with_kernel(const AttentionJob& job, Run&& run) {
  const AttentionBatch& b = job.batch;
  bool const side_by_side = job.results.softmax != nullptr;
  if (b.group == 0 || b.kv_heads == 0 || b.blocks.strides.block_tokens <= 0 ||
      b.sequences > detail::most_grid_y || job.most_queries > detail::most_grid_y ||
      std::uint64_t{job.most_queries} * b.group > detail::most_grid_x / b.kv_heads ||
      job.results.pieces > detail::most_grid_y ||
      (side_by_side &&
       (b.first != nullptr || job.most_queries != 1 ||
        (job.results.piece_tokens != split_tokens && job.results.piece_tokens != span_tokens))))
    return false;
  bool const bf16 = job.type == ElementType::bf16;
  if (detail::vector_attention(job)) switch (job.head_dim) {
      case 64:
        return bf16 ? detail::attention_best<Bf16, 64, 8, 4>(job, run)
                    : detail::attention_rows<float, 64, 8>(job, run);
      case 80:
        return bf16 ? detail::attention_rows<Bf16, 80, 8>(job, run)
                    : detail::attention_rows<float, 80, 8>(job, run);
      case 128:
        return bf16 ? detail::attention_best<Bf16, 128, 8, 6, 4>(job, run)
                    : detail::attention_rows<float, 128, 8>(job, run);
      default:
        return bf16 ? detail::attention_rows<Bf16, 256, 8>(job, run)
                    : detail::attention_rows<float, 256, 8>(job, run);
    }
  if (side_by_side || job.head_dim == 0 || job.head_dim > AttentionAny<float>::most_dim)
    return false;
  return detail::with_element(job.type, [&]<class E>() {
    run(AttentionAny<E>{b, job.head_dim, job.most_queries});
    return true;
  });
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
