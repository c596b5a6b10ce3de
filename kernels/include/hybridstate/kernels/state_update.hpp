// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <hybridstate/device/ssm_pages.hpp>
#include <hybridstate/kernels/job.hpp>
#include <hybridstate/kernels/reduce.hpp>
#include <type_traits>

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

/// Where states lie: the address of a byte of a head of the state in a row, null for an absent one.
template <class S>
concept state_address = requires(const S& states, std::int32_t row, std::int64_t byte) {
  { states.addr_ssm(row, row, byte) } -> std::same_as<std::byte*>;
};

/// States one after another, row r at base + r * stride: no table.
struct ContiguousStates {
  std::byte* base = nullptr;
  std::int64_t stride = 0;  ///< bytes from one state to the next
  std::int64_t head_bytes = 0;

  HYBRIDSTATE_HD constexpr std::byte* addr_ssm(std::int32_t row, std::int32_t head,
                                               std::int64_t byte = 0) const noexcept {
    if (row < 0 || head < 0 || byte < 0) return nullptr;
    return base + row * stride + head * head_bytes + byte;
  }
};

/// States that sequences still write, in FP32 beside units in BF16: the carry bf16-at-grid. They
/// are rounded where a token ends at a multiple of `every`, and nowhere else. A row that is absent
/// here lies in its unit.
template <state_address States = SsmPages<>>
struct WorkingStates {
  States source{};                         ///< of sequences
  States destination{};                    ///< of sequences; in a scan, of kept states
  const std::int32_t* position = nullptr;  ///< [sequences], of the first token
  std::uint32_t every = 0;                 ///< 0: there are none
};
struct NoWorkingStates {};

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

/// How lanes share out a row of N elements: sixteen bytes a lane and access, whole rows a group of
/// lanes. Needs heads that lie within a page, and rows that begin at multiples of sixteen bytes.
template <class E, unsigned N>
struct VectorRow {
  using Element = E;
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
  /// Vector v of a lane of the head at `from`, which is kept as Stored: E, or BF16 for FP32.
  template <class Stored = E, class T>
  HYBRIDSTATE_HD static Vector16 read(T& t, const std::byte* from, std::uint32_t row, unsigned lane,
                                      unsigned v) {
    from += byte<Stored>(row, lane, v);
    if constexpr (std::is_same_v<Stored, E>)
      return t.template load<Vector16>(from);
    else
      return widened(t.template load<Vector8>(from));
  }
  template <class Stored = E, class T>
  HYBRIDSTATE_HD static void write(T& t, std::byte* to, std::uint32_t row, unsigned lane,
                                   unsigned v, const float (&s)[elements]) {
    to += byte<Stored>(row, lane, v);
    if constexpr (std::is_same_v<Stored, E>)
      t.store(to, packed<E>(s + v * in_vector));
    else
      t.store(to, narrowed(s + v * in_vector));
  }
  /// The part of B or C that belongs to a lane.
  template <class T>
  HYBRIDSTATE_HD static void load_factors(T& t, const float* from, unsigned lane, std::uint32_t,
                                          float (&to)[elements]) {
    HYBRIDSTATE_UNROLL
    for (unsigned v = 0; v < vectors; ++v) HYBRIDSTATE_UNROLL
    for (unsigned k = 0; k < in_vector; k += 4)
      unpack<float>(t.template load<Vector16>(from + first(lane, v) + k), to + v * in_vector + k);
  }
  template <class Stored = E, class T, class View>
  HYBRIDSTATE_HD static void load(T& t, const View& view, std::int32_t sequence, std::int32_t head,
                                  std::uint32_t row, unsigned lane, std::uint32_t,
                                  float (&s)[elements]) {
    const std::byte* const from = view.addr_ssm(sequence, head);
    HYBRIDSTATE_UNROLL
    for (unsigned v = 0; v < vectors; ++v)
      unpack<E>(read<Stored>(t, from, row, lane, v), s + v * in_vector);
  }
  template <class Stored = E, class T, class View>
  HYBRIDSTATE_HD static void store(T& t, const View& view, std::int32_t sequence, std::int32_t head,
                                   std::uint32_t row, unsigned lane, std::uint32_t,
                                   const float (&s)[elements]) {
    std::byte* const to = view.addr_ssm(sequence, head);
    HYBRIDSTATE_UNROLL
    for (unsigned v = 0; v < vectors; ++v) write<Stored>(t, to, row, lane, v, s);
  }
  /// s . c, in every lane of the row.
  template <class T>
  HYBRIDSTATE_HD static float dot(T& t, std::uint32_t, const float (&s)[elements],
                                  const float (&c)[elements]) {
    float product[elements];
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < elements; ++i) product[i] = s[i] * c[i];
    return halve<vectors, lanes, in_vector>(t, product);
  }

 private:
  /// Of vector v of a lane, from the head's first byte.
  template <class Stored>
  HYBRIDSTATE_HD static constexpr std::int64_t byte(std::uint32_t row, unsigned lane,
                                                    unsigned v) noexcept {
    return (std::int64_t{row} * N + first(lane, v)) * static_cast<std::int64_t>(sizeof(Stored));
  }
};

/// The same for rows of any length up to Most elements, wherever pages cut them: a warp takes a
/// row, a lane every 32nd element.
template <class E, unsigned Most>
struct StridedRow {
  using Element = E;
  static constexpr unsigned lanes = warp_lanes;
  static constexpr unsigned elements = Most / warp_lanes;
  static constexpr unsigned rows = 1;

  template <class T>
  HYBRIDSTATE_HD static void load_factors(T& t, const float* from, unsigned lane, std::uint32_t n,
                                          float (&to)[elements]) {
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < elements; ++i) {
      std::uint32_t const k = i * warp_lanes + lane;
      to[i] = k < n ? t.template load<float>(from + k) : 0.0F;
    }
  }
  template <class Stored = E, class T, class View>
  HYBRIDSTATE_HD static void load(T& t, const View& view, std::int32_t sequence, std::int32_t head,
                                  std::uint32_t row, unsigned lane, std::uint32_t n,
                                  float (&s)[elements]) {
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < elements; ++i) {
      std::uint32_t const k = i * warp_lanes + lane;
      s[i] = k < n ? to_float(t.template load<Stored>(
                         view.addr_ssm(sequence, head, byte<Stored>(row, n, k))))
                   : 0.0F;
    }
  }
  template <class Stored = E, class T, class View>
  HYBRIDSTATE_HD static void store(T& t, const View& view, std::int32_t sequence, std::int32_t head,
                                   std::uint32_t row, unsigned lane, std::uint32_t n,
                                   const float (&s)[elements]) {
    HYBRIDSTATE_UNROLL
    for (unsigned i = 0; i < elements; ++i) {
      std::uint32_t const k = i * warp_lanes + lane;
      if (k < n)
        t.store(view.addr_ssm(sequence, head, byte<Stored>(row, n, k)), from_float<Stored>(s[i]));
    }
  }
  template <class T>
  HYBRIDSTATE_HD static float dot(T& t, std::uint32_t n, const float (&s)[elements],
                                  const float (&c)[elements]) {
    return strided_dot(t, n, s, c);
  }

 private:
  template <class Stored>
  HYBRIDSTATE_HD static constexpr std::int64_t byte(std::uint32_t row, std::uint32_t n,
                                                    std::uint32_t k) noexcept {
    return (std::int64_t{row} * n + k) * static_cast<std::int64_t>(sizeof(Stored));
  }
};

/// One token of the part of a row that a lane holds; the output in lane 0 of the row.
template <class Row, class T>
HYBRIDSTATE_HD float advance_row(T& t, TokenFactors factors, float x, float d, std::uint32_t n,
                                 const float (&b)[Row::elements], const float (&c)[Row::elements],
                                 float (&s)[Row::elements]) {
  float const input = factors.dt * x;
  HYBRIDSTATE_UNROLL
  for (unsigned i = 0; i < Row::elements; ++i)
    s[i] = numeric::fused(factors.decay, s[i], input * b[i]);
  return numeric::fused(d, x, Row::dot(t, n, s, c));
}

/// The decode step of selective state spaces: one token of each sequence, states read from the
/// source and written to the destination, each byte once. Row `s` of the maps and token row `s` of
/// the inputs belong to sequence s.
///
/// E: Bf16 (stored after every token, the output from the state before its rounding) or float.
/// N: elements of a row; heads must lie within a page (StateScan takes all other shapes).
/// Addresses of states and inputs are multiples of 16 bytes. A CTA takes `tile_rows` rows of one
/// head; results do not depend on it. Stored: of source, destination and checkpoint; BF16 where E
/// is that of working states in FP32.
template <class E, unsigned N, state_address States = SsmPages<>, class Stored = E>
struct StateUpdate {
  using Row = VectorRow<E, N>;
  static constexpr bool has_working = !std::is_same_v<Stored, E>;
  static constexpr unsigned threads = 128;
  static constexpr unsigned unroll = 4;  ///< accesses of a lane in flight
  static constexpr unsigned step = threads / warp_lanes * Row::rows;

  RecurrenceInputs in{};
  States source{};       ///< absent: the state begins at zero
  States destination{};  ///< may equal the source: in place. Absent: padding, the output is zero
  States checkpoint{};   ///< a second destination, read if has_checkpoint; absent: none
  bool has_checkpoint = false;
  std::uint32_t sequences = 0;
  std::uint32_t tile_rows = 32;  ///< a multiple of `step`
  [[no_unique_address]] std::conditional_t<has_working, WorkingStates<States>, NoWorkingStates>
      working{};

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
    std::int64_t const of_head = std::int64_t{head} * in.rows;  // in x and y
    float* const y = in.y + sequence * in.y_stride + of_head;

    const std::byte* from = source.addr_ssm(sequence, at);
    std::byte* to = destination.addr_ssm(sequence, at);
    bool rounds = false;
    bool reads_working = false, writes_working = false;
    if constexpr (has_working) {
      if (const std::byte* const w = working.source.addr_ssm(sequence, at)) {
        from = w;
        reads_working = true;
      }
      if (std::byte* const w = working.destination.addr_ssm(sequence, at)) {
        to = w;
        writes_working = true;
      }
      auto const position = t.template load<std::int32_t>(working.position + sequence);
      rounds = (static_cast<std::uint32_t>(position) + 1) % working.every == 0;
    }
    if (to == nullptr) {
      for (std::uint32_t row = begin + t.thread(); row < end; row += threads)
        t.store(y + row, 0.0F);
      return;
    }
    std::byte* const copy = has_checkpoint ? checkpoint.addr_ssm(sequence, at) : nullptr;

    unsigned const lane = t.thread() % Row::lanes;
    const float* const x = in.x + sequence * in.stride + of_head;
    std::int64_t const factors_at =
        sequence * in.stride + std::int64_t{head / (in.heads / in.groups)} * N;
    float b[Row::elements];
    float c[Row::elements];
    Row::load_factors(t, in.b + factors_at, lane, N, b);
    Row::load_factors(t, in.c + factors_at, lane, N, c);
    TokenFactors const factors = token_factors(t, in, head, sequence);
    float const d = t.template load<float>(in.d + head);

    std::uint32_t const first = begin + t.thread() / Row::lanes;
    for (std::uint32_t base = begin; base < end; base += unroll * step) {
      Vector16 loaded[unroll][Row::vectors];
      float xs[unroll];
      HYBRIDSTATE_UNROLL
      for (unsigned u = 0; u < unroll; ++u) {
        std::uint32_t const row = first + (base - begin) + u * step;
        HYBRIDSTATE_UNROLL
        for (unsigned v = 0; v < Row::vectors; ++v)
          loaded[u][v] = from == nullptr || row >= end ? Vector16{}
                         : reads_working               ? Row::read(t, from, row, lane, v)
                                         : Row::template read<Stored>(t, from, row, lane, v);
        xs[u] = row < end ? t.template load<float>(x + row) : 0.0F;
      }
      HYBRIDSTATE_UNROLL
      for (unsigned u = 0; u < unroll; ++u) {
        if (base + u * step >= end) break;  // the same for the whole CTA
        std::uint32_t const row = first + (base - begin) + u * step;
        float s[Row::elements];
        HYBRIDSTATE_UNROLL
        for (unsigned v = 0; v < Row::vectors; ++v) unpack<E>(loaded[u][v], s + v * Row::in_vector);
        float const out = advance_row<Row>(t, factors, xs[u], d, N, b, c, s);
        if (row >= end) continue;
        if (rounds) HYBRIDSTATE_UNROLL
        for (unsigned i = 0; i < Row::elements; ++i) s[i] = numeric::round_to_bf16(s[i]);
        HYBRIDSTATE_UNROLL
        for (unsigned v = 0; v < Row::vectors; ++v) {
          if (writes_working)
            Row::write(t, to, row, lane, v, s);
          else
            Row::template write<Stored>(t, to, row, lane, v, s);
          if (copy != nullptr) Row::template write<Stored>(t, copy, row, lane, v, s);
        }
        if (lane == 0) t.store(y + row, out);
      }
    }
  }
};

/// Tokens of the sequences of a batch: run s is rows [first[s], first[s + 1]) of the inputs.
struct TokenRuns {
  const std::int32_t* first = nullptr;  ///< [sequences + 1]
  std::uint32_t sequences = 0;
};

/// States to leave behind: those of sequence s are rows [first[s], first[s + 1]) of `states`, kept
/// once after[row] tokens of the run have been processed, ascending from 1. The last row of a
/// sequence usually is its working state. A row may lie in the sequence's own source.
template <state_address States = SsmPages<>>
struct KeptStates {
  States states{};                      ///< absent rows are skipped
  const std::int32_t* first = nullptr;  ///< [sequences + 1]
  const std::int32_t* after = nullptr;
};

/// Runs of tokens in the recurrent form: the state of a row stays in registers from the source to
/// the last token and is stored where it is to be kept. A run may be cut anywhere, and gives the
/// bits of as many decode steps, when `round` says what the store would do: true for BF16 states
/// that are rounded after every token, false for FP32 ones.
///
/// Row: VectorRow, or StridedRow for any other shape; E as its elements. A sequence without source
/// begins at zero. A sequence that keeps no state is padding: its outputs are zero. Stored: as of
/// StateUpdate; working states are rounded as they say.
template <class Row, state_address States = SsmPages<>, class Stored = typename Row::Element>
struct StateScan {
  static constexpr bool has_working = !std::is_same_v<Stored, typename Row::Element>;
  static constexpr unsigned threads = 128;
  static constexpr unsigned held = Row::elements > 16 ? 1 : 2;  ///< rows of a lane
  static constexpr unsigned step = threads / warp_lanes * Row::rows;
  static constexpr unsigned tile_rows = held * step;

  RecurrenceInputs in{};
  TokenRuns runs{};
  States source{};
  KeptStates<States> kept{};
  std::uint32_t state = 0;  ///< elements of a row
  bool round = true;        ///< to BF16 after every token
  [[no_unique_address]] std::conditional_t<has_working, WorkingStates<States>, NoWorkingStates>
      working{};

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept {
    return {in.heads * quotient_up<std::uint32_t>(in.rows, tile_rows), runs.sequences, 1};
  }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const tiles = quotient_up<std::uint32_t>(in.rows, tile_rows);
    std::uint32_t const head = t.block_x() / tiles;
    auto const at = static_cast<std::int32_t>(head);
    auto const sequence = static_cast<std::int32_t>(t.block_y());
    std::int32_t const begin = t.template load<std::int32_t>(runs.first + sequence);
    std::int32_t const end = t.template load<std::int32_t>(runs.first + sequence + 1);
    std::int32_t next = t.template load<std::int32_t>(kept.first + sequence);
    std::int32_t const last = t.template load<std::int32_t>(kept.first + sequence + 1);
    unsigned const lane = t.thread() % Row::lanes;
    std::uint32_t const first_row = t.block_x() % tiles * tile_rows + t.thread() / Row::lanes;
    bool const padding = next == last;

    float s[held][Row::elements];
    bool const fresh = padding || source.addr_ssm(sequence, at) == nullptr;
    bool reads_working = false;
    std::uint32_t rounds_in = 0;  // tokens
    if constexpr (has_working) {
      reads_working = !padding && working.source.addr_ssm(sequence, at) != nullptr;
      auto const position = t.template load<std::int32_t>(working.position + sequence);
      rounds_in = working.every - static_cast<std::uint32_t>(position) % working.every;
    }
    HYBRIDSTATE_UNROLL
    for (unsigned h = 0; h < held; ++h) {
      HYBRIDSTATE_UNROLL
      for (unsigned i = 0; i < Row::elements; ++i) s[h][i] = 0;
      std::uint32_t const row = row_of(first_row, h);
      if (row >= in.rows) continue;
      if constexpr (has_working)
        if (reads_working) Row::load(t, working.source, sequence, at, row, lane, state, s[h]);
      if (!fresh && !reads_working)
        Row::template load<Stored>(t, source, sequence, at, row, lane, state, s[h]);
    }
    float const d = t.template load<float>(in.d + head);
    std::int64_t const of_head = std::int64_t{head} * in.rows;  // in x and y
    for (std::int32_t token = begin; token < end; ++token) {
      float* const y = in.y + token * in.y_stride + of_head;
      if (padding) {
        HYBRIDSTATE_UNROLL
        for (unsigned h = 0; h < held; ++h)
          if (lane == 0 && row_of(first_row, h) < in.rows) t.store(y + row_of(first_row, h), 0.0F);
        continue;
      }
      const float* const x = in.x + token * in.stride + of_head;
      std::int64_t const factors_at =
          token * in.stride + std::int64_t{head / (in.heads / in.groups)} * state;
      float b[Row::elements];
      float c[Row::elements];
      Row::load_factors(t, in.b + factors_at, lane, state, b);
      Row::load_factors(t, in.c + factors_at, lane, state, c);
      TokenFactors const factors = token_factors(t, in, head, token);
      bool rounds = round;
      if constexpr (has_working) {
        rounds = --rounds_in == 0;
        if (rounds) rounds_in = working.every;
      }
      HYBRIDSTATE_UNROLL
      for (unsigned h = 0; h < held; ++h) {
        std::uint32_t const row = row_of(first_row, h);
        float const value = row < in.rows ? t.template load<float>(x + row) : 0.0F;
        float const out = advance_row<Row>(t, factors, value, d, state, b, c, s[h]);
        if (lane == 0 && row < in.rows) t.store(y + row, out);
        if (rounds) HYBRIDSTATE_UNROLL
        for (unsigned i = 0; i < Row::elements; ++i) s[h][i] = numeric::round_to_bf16(s[h][i]);
      }
      while (next < last && t.template load<std::int32_t>(kept.after + next) == token - begin + 1) {
        bool writes_working = false;
        if constexpr (has_working)
          writes_working = working.destination.addr_ssm(next, at) != nullptr;
        bool const writes = !writes_working && kept.states.addr_ssm(next, at) != nullptr;
        HYBRIDSTATE_UNROLL
        for (unsigned h = 0; h < held; ++h) {
          std::uint32_t const row = row_of(first_row, h);
          if (row >= in.rows) continue;
          if constexpr (has_working)
            if (writes_working)
              Row::store(t, working.destination, next, at, row, lane, state, s[h]);
          if (writes) Row::template store<Stored>(t, kept.states, next, at, row, lane, state, s[h]);
        }
        ++next;
      }
    }
  }

 private:
  HYBRIDSTATE_HD static constexpr std::uint32_t row_of(std::uint32_t first_row,
                                                       unsigned h) noexcept {
    return first_row + h * step;
  }
};

/// A decode step over member pages whose shape is known at run time only. Maps have heads of
/// rows * state elements; a sequence that begins has a source of -1, not a null table.
struct StateUpdateJob {
  RecurrenceInputs in{};
  SsmPages<> source{}, destination{};
  SsmPages<> checkpoint{};  ///< null pages: none
  std::uint32_t sequences = 0;
  std::uint32_t state = 0;               ///< elements of a row
  ElementType type = ElementType::bf16;  ///< of the states
  WorkingStates<> working{};             ///< with BF16 states only
};
/// Runs of tokens over member pages whose shape is known at run time only.
struct StateScanJob {
  RecurrenceInputs in{};
  TokenRuns runs{};
  SsmPages<> source{};
  KeptStates<> kept{};
  std::uint32_t state = 0;
  ElementType type = ElementType::bf16;  ///< BF16: rounded after every token
  WorkingStates<> working{};             ///< with BF16 states only: rounded as they say
};

namespace detail {
inline bool vector_states(const SsmPages<>& s) noexcept {
  return s.map.heads_per_page != 0 && vectors(s.map.head_bytes, s.page_stride, s.base);
}
/// No page cuts an element.
inline bool whole_elements(const SsmPages<>& s, ElementType type) noexcept {
  return multiples_of(bytes_of(type), s.base, s.page_stride, s.map.head_bytes, s.map.split_bytes) &&
         (s.map.heads_per_page != 0 || s.map.split_bytes != 0);
}
inline bool vector_working(const WorkingStates<>& w) noexcept {
  return w.every == 0 || (vector_states(w.source) && vector_states(w.destination));
}
/// None, or those of a job with states of that type.
inline bool takes_working(const WorkingStates<>& w, ElementType type) noexcept {
  return w.every == 0 ||
         (type == ElementType::bf16 && w.position != nullptr && w.source.pages != nullptr &&
          w.destination.pages != nullptr && whole_elements(w.source, ElementType::f32) &&
          whole_elements(w.destination, ElementType::f32));
}
inline bool vector_inputs(const RecurrenceInputs& in) noexcept {
  return vectors(in.b, in.c) && in.stride % 4 == 0;
}
/// Groups divide the heads, and a launch takes the CTAs, which have four rows at least.
inline bool launchable(const RecurrenceInputs& in, std::uint32_t sequences) noexcept {
  return in.groups != 0 && in.heads % in.groups == 0 && sequences <= most_grid_y &&
         std::uint64_t{in.heads} * quotient_up(in.rows, 4U) <= most_grid_x;
}
}  // namespace detail

inline constexpr std::uint32_t max_state_elements = 1024;

/// False: a row of no or more than max_state_elements elements, elements that pages cut, groups
/// that do not divide the heads, more CTAs than a launch takes (65535 sequences), or working states
/// beside other than BF16 ones.
template <class Run>
bool with_kernel(const StateScanJob& job, Run&& run) {
  bool const whole = detail::whole_elements(job.source, job.type) &&
                     detail::whole_elements(job.kept.states, job.type);
  if (job.state == 0 || job.state > max_state_elements ||
      !detail::launchable(job.in, job.runs.sequences) || (job.runs.sequences != 0 && !whole) ||
      !detail::takes_working(job.working, job.type))
    return false;
  auto const as = [&]<class Row, class Stored>() {
    StateScan<Row, SsmPages<>, Stored> scan{job.in,   job.runs,  job.source,
                                            job.kept, job.state, job.type == ElementType::bf16};
    if constexpr (scan.has_working) scan.working = job.working;
    run(scan);
    return true;
  };
  auto const with_elements = [&]<class E, class Stored = E>() {
    if (detail::vector_states(job.source) && detail::vector_states(job.kept.states) &&
        detail::vector_working(job.working) && detail::vector_inputs(job.in)) {
      if (job.state == 64) return as.template operator()<VectorRow<E, 64>, Stored>();
      if (job.state == 128) return as.template operator()<VectorRow<E, 128>, Stored>();
      if (job.state == 256) return as.template operator()<VectorRow<E, 256>, Stored>();
    }
    if (job.state <= 256) return as.template operator()<StridedRow<E, 256>, Stored>();
    return as.template operator()<StridedRow<E, max_state_elements>, Stored>();
  };
  if (job.working.every != 0) return with_elements.template operator()<float, Bf16>();
  return detail::with_element(job.type, with_elements);
}
/// False also for shapes that StateUpdate does not take, which StateScanJob does: rows of other
/// than 64, 128 or 256 elements, heads over several pages, addresses of states, B or C that are no
/// multiples of 16 bytes.
template <class Run>
bool with_kernel(const StateUpdateJob& job, Run&& run) {
  bool const with_checkpoint = job.checkpoint.pages != nullptr;
  if (!detail::launchable(job.in, job.sequences) || !detail::vector_states(job.source) ||
      !detail::vector_states(job.destination) ||
      (with_checkpoint && !detail::vector_states(job.checkpoint)) ||
      !detail::takes_working(job.working, job.type) || !detail::vector_working(job.working) ||
      !detail::vector_inputs(job.in))
    return false;
  auto const as = [&]<class E, unsigned N, class Stored>() {
    using Kernel = StateUpdate<E, N, SsmPages<>, Stored>;
    // Small batches need more CTAs to fill a GPU.
    std::uint32_t const tile = Kernel::unroll * Kernel::step * (job.sequences < 4 ? 1 : 2);
    Kernel kernel{job.in,        job.source, job.destination, job.checkpoint, with_checkpoint,
                  job.sequences, tile};
    if constexpr (Kernel::has_working) kernel.working = job.working;
    run(kernel);
    return true;
  };
  auto const with_elements = [&]<class E, class Stored = E>() {
    if (job.state == 64) return as.template operator()<E, 64, Stored>();
    if (job.state == 128) return as.template operator()<E, 128, Stored>();
    return job.state == 256 && as.template operator()<E, 256, Stored>();
  };
  if (job.working.every != 0) return with_elements.template operator()<float, Bf16>();
  return detail::with_element(job.type, with_elements);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
