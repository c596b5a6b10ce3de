// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The body of kernels_*.cpp, compiled once per instruction set in a namespace of its own. No
// include guard and no includes: the including file has set the target before. Scalar tails call
// the functions of device/numeric.hpp, whose operations the vector forms repeat lane by lane.

#include "executor/cpu/lanes_body.hpp"
#include "executor/cpu/linear_body.hpp"

namespace hybridstate::runtime::cpu::HYBRIDSTATE_CPU_ISA {
namespace {
// NOLINTBEGIN(modernize-loop-convert): the unroll pragma wants counted loops

// --- linear -----------------------------------------------------------------------------------

void pack(const float* x, std::size_t n, LinearInput input, void* to) {
  const auto* const from = reinterpret_cast<const unsigned char*>(x);
  auto* const bytes = static_cast<unsigned char*>(to);
  for (std::size_t k = 0; k < n; k += 2 * lanes) {
    alignas(64) unsigned char last[2 * lanes * 4] = {};
    const unsigned char* at = from + k * 4;
    if (n - k < 2 * lanes) at = static_cast<unsigned char*>(std::memcpy(last, at, (n - k) * 4));
    if (input == LinearInput::bf16) {
      store_bf16(bytes + k * 2, load<Dtype::f32>(at));
      store_bf16(bytes + (k + lanes) * 2, load<Dtype::f32>(at + lanes * 4));
    } else {
      Pair const p = load_pair<Dtype::f32>(at);
      auto* const y = reinterpret_cast<float*>(bytes) + k;
      store(y, p.even);
      store(y + lanes, p.odd);
    }
  }
}

void linear(const Linear& j, std::uint32_t tokens, std::uint32_t first, std::uint32_t end) {
  if (tokens == 0) return;
  if (j.input == LinearInput::bf16)
    linear_rows<Dtype::bf16, LinearInput::bf16>(j, tokens, first, end);
  else if (j.dtype == Dtype::bf16)
    linear_rows<Dtype::bf16, LinearInput::fp32>(j, tokens, first, end);
  else if (j.dtype == Dtype::f16)
    linear_rows<Dtype::f16, LinearInput::fp32>(j, tokens, first, end);
  else
    linear_rows<Dtype::f32, LinearInput::fp32>(j, tokens, first, end);
}

// --- wide sums --------------------------------------------------------------------------------

/// The number of 16-lane accumulators of a wide sum over n elements.
constexpr std::size_t accumulators(std::size_t n) {
  std::size_t p = 1;
  while (p < 16 && p * lanes < n) p *= 2;
  return p;
}

template <std::size_t P, Dtype D>
HYBRIDSTATE_CPU_INLINE float wide_dot_p(const float* a, const void* b, std::size_t n) {
  const auto* const bytes = static_cast<const unsigned char*>(b);
  auto const right = [&](std::size_t k) __attribute__((always_inline)) {
    return load<D>(bytes + k * Element<D>::bytes);
  };
  V acc[P];
  if (n % (P * lanes) == 0) {
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t i = 0; i < P; ++i) acc[i] = load(a + i * lanes) * right(i * lanes);
    for (std::size_t k = P * lanes; k < n; k += P * lanes) HYBRIDSTATE_CPU_UNROLL
    for (std::size_t i = 0; i < P; ++i)
      acc[i] = fused(load(a + k + i * lanes), right(k + i * lanes), acc[i]);
    return halve_all(acc);
  }
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < P; ++i) acc[i] = zero();
  for (std::size_t k = 0, i = 0; k < n; k += lanes, i = (i + 1) % P) {
    V const l = n - k >= lanes ? load(a + k) : load_part<Dtype::f32>(a + k, n - k);
    V const r = n - k >= lanes ? right(k) : load_part<D>(bytes + k * Element<D>::bytes, n - k);
    acc[i] = k < P * lanes ? l * r : fused(l, r, acc[i]);
  }
  return halve_all(acc);
}
float wide_dot(const float* a, const float* b, std::size_t n) {
  switch (accumulators(n)) {
    case 1:
      return wide_dot_p<1, Dtype::f32>(a, b, n);
    case 2:
      return wide_dot_p<2, Dtype::f32>(a, b, n);
    case 4:
      return wide_dot_p<4, Dtype::f32>(a, b, n);
    case 8:
      return wide_dot_p<8, Dtype::f32>(a, b, n);
    default:
      return wide_dot_p<16, Dtype::f32>(a, b, n);
  }
}

// --- norms and elementwise --------------------------------------------------------------------

HYBRIDSTATE_CPU_INLINE float inverse_rms(const float* x, float epsilon, std::size_t n) {
  float const mean = wide_dot(x, x, n) / static_cast<float>(n);
  return 1.0F / std::sqrt(mean + epsilon);
}

void rms_norm(const float* x, const float* weight, float epsilon, std::size_t n, float* y) {
  float const inverse = inverse_rms(x, epsilon, n);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(y + i, load(x + i) * all(inverse) * load(weight + i));
  for (; i < n; ++i) y[i] = x[i] * inverse * weight[i];
}

HYBRIDSTATE_CPU_INLINE void gate(float* y, const float* z, std::size_t n) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(y + i, load(y + i) * silu_v(load(z + i)));
  for (; i < n; ++i) y[i] = y[i] * numeric::silu(z[i]);
}

void gated_norm(const GatedNorm& norm, float* y, const float* z) {
  bool const gate_first = norm.weight == nullptr || !norm.norm_before_gate;
  if (gate_first) gate(y, z, norm.width);
  if (norm.weight != nullptr) {
    std::size_t const n = norm.width / norm.groups;
    for (std::size_t g = 0; g < norm.groups; ++g)
      rms_norm(y + g * n, norm.weight + g * n, norm.epsilon, n, y + g * n);
  }
  if (!gate_first) gate(y, z, norm.width);
}

void silu_product(const float* g, const float* up, std::size_t n, float* y) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(y + i, load(up + i) * silu_v(load(g + i)));
  for (; i < n; ++i) y[i] = up[i] * numeric::silu(g[i]);
}

void multiply(float* x, float factor, std::size_t n) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(x + i, load(x + i) * all(factor));
  for (; i < n; ++i) x[i] = x[i] * factor;
}

void add(float* h, const float* a, const float* b, std::size_t n) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V const sum = b == nullptr ? load(a + i) : load(a + i) + load(b + i);
    store(h + i, load(h + i) + sum);
  }
  for (; i < n; ++i) h[i] = h[i] + (b == nullptr ? a[i] : a[i] + b[i]);
}

void rotate(float* head, const float* cosines, const float* sines, std::size_t half) {
  std::size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    V const a = load(head + i), b = load(head + half + i);
    V const c = load(cosines + i), s = load(sines + i);
    store(head + i, fused(a, c, zero() - b * s));
    store(head + half + i, fused(b, c, a * s));
  }
  for (; i < half; ++i) {
    float const a = head[i], b = head[half + i];
    head[i] = numeric::fused(a, cosines[i], 0.0F - b * sines[i]);
    head[half + i] = numeric::fused(b, cosines[i], a * sines[i]);
  }
}

void exp_of(const float* x, std::size_t n, float* y) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(y + i, exp_v(load(x + i)));
  for (; i < n; ++i) y[i] = numeric::exp(x[i]);
}

void load_row(const void* from, Dtype dtype, std::size_t n, float* to) {
  const auto* const bytes = static_cast<const unsigned char*>(from);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(to + i, load_v(bytes + i * dtype_bytes(dtype), dtype));
  for (; i < n; ++i) to[i] = element_as_float(from, dtype, i);
}

void store_row(const float* from, Dtype dtype, std::size_t n, void* to) {
  if (dtype == Dtype::f32) {
    std::memcpy(to, from, n * sizeof(float));
    return;
  }
  auto* const bytes = static_cast<unsigned char*>(to);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store_bf16(bytes + i * 2, load(from + i));
  for (; i < n; ++i) {
    std::uint16_t const h = numeric::to_bf16(from[i]);
    std::memcpy(bytes + i * 2, &h, 2);
  }
}

void round_row(float* x, Dtype dtype, std::size_t n) {
  if (dtype == Dtype::f32) return;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(x + i, rounded_to_bf16(load(x + i)));
  for (; i < n; ++i) x[i] = numeric::round_to_bf16(x[i]);
}

// --- convolution ------------------------------------------------------------------------------

void convolve(const Convolution& j, std::uint32_t first, std::uint32_t end) {
  auto const row = [&](std::size_t t, std::size_t tap) {
    std::size_t const at = t + tap;  // counted from the oldest column of the history
    std::size_t const kept = j.width - 1;
    return at < kept ? j.history + at * j.channels : j.x + (at - kept) * j.x_stride;
  };
  for (std::size_t t = 0; t < j.tokens; ++t) {
    float* const y = j.y + t * j.y_stride;
    std::size_t c = first;
    for (; c + lanes <= end; c += lanes) {
      V acc = j.bias == nullptr ? zero() : load(j.bias + c);
      for (std::size_t i = 0; i < j.width; ++i)
        acc = fused(load(j.weights + i * j.channels + c), load(row(t, i) + c), acc);
      store(y + c, silu_v(acc));
    }
    for (; c < end; ++c) {
      float acc = j.bias == nullptr ? 0.0F : j.bias[c];
      for (std::size_t i = 0; i < j.width; ++i)
        acc = numeric::fused(j.weights[i * j.channels + c], row(t, i)[c], acc);
      y[c] = numeric::silu(acc);
    }
  }
}

// --- recurrence -------------------------------------------------------------------------------

void read_state_row(const SsmPages<>& pages, Dtype dtype, std::int32_t head, std::size_t row,
                    std::size_t n, float* to) {
  std::size_t const size = dtype_bytes(dtype);
  std::size_t const start = row * n * size;
  for (std::size_t done = 0; done < n;) {
    std::size_t const byte = start + done * size;
    std::size_t const count = std::min<std::size_t>(n - done, pages.map.run(byte) / size);
    load_row(pages.addr_ssm(0, head, static_cast<std::int64_t>(byte)), dtype, count, to + done);
    done += count;
  }
}

void write_state_row(const SsmPages<>& pages, Dtype dtype, std::int32_t head, std::size_t row,
                     std::size_t n, const float* from) {
  std::size_t const size = dtype_bytes(dtype);
  std::size_t const start = row * n * size;
  for (std::size_t done = 0; done < n;) {
    std::size_t const byte = start + done * size;
    std::size_t const count = std::min<std::size_t>(n - done, pages.map.run(byte) / size);
    store_row(from + done, dtype, count, pages.addr_ssm(0, head, static_cast<std::int64_t>(byte)));
    done += count;
  }
}

/// The row that an update begins with: zeros without a source.
void read_source_row(const StateUpdate& j, std::size_t row, float* to) {
  if (j.source != nullptr)
    read_state_row(*j.source, j.source_dtype, static_cast<std::int32_t>(j.head), row, j.state, to);
  else
    std::fill(to, to + j.state, 0.0F);
}

/// The bytes of a head's state where they lie together, else null.
HYBRIDSTATE_CPU_INLINE std::byte* whole_head(const SsmPages<>& pages, Dtype dtype,
                                             const StateUpdate& j) {
  Bytes const bytes = Bytes{j.rows} * j.state * dtype_bytes(dtype);
  return pages.map.run(0) >= bytes ? pages.addr_ssm(0, static_cast<std::int32_t>(j.head), 0)
                                   : nullptr;
}

/// Addresses that are the same for all rows of a head.
struct HeadBytes {
  static constexpr std::size_t most_stores = 8;  // those of more boundaries are found row by row
  const std::byte* source = nullptr;
  std::byte* stores[most_stores] = {};
};
HYBRIDSTATE_CPU_INLINE HeadBytes head_bytes(const StateUpdate& j) {
  HeadBytes h;
  if (j.source != nullptr) h.source = whole_head(*j.source, j.source_dtype, j);
  for (std::size_t i = 0; i < std::min(j.store_count, HeadBytes::most_stores); ++i)
    h.stores[i] = whole_head(j.stores[i].pages, j.stores[i].dtype, j);
  return h;
}

HYBRIDSTATE_CPU_INLINE bool rounds_after(const StateUpdate& j, std::size_t token) {
  if (j.carry == Carry::bf16_per_token) return true;
  return j.carry == Carry::bf16_at_grid && (j.begin + token + 1) % grid_tokens == 0;
}

constexpr std::size_t rows_ahead = 16;

/// One token of one row in registers; returns S . C before it is halved. A NaN in S leaves one
/// there.
template <std::size_t P>
HYBRIDSTATE_CPU_INLINE V advance(const StateUpdate& j, std::size_t t, std::size_t row, V (&s)[P]) {
  float const x = j.x[t * j.stride + row];
  V const decay = all(j.decay[t * j.dt_stride]);
  V const input = all(j.dt[t * j.dt_stride] * x);
  const float* const b = j.b + t * j.stride;
  const float* const c = j.c + t * j.stride;
  V product[P];
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < P; ++i) {
    s[i] = fused(decay, s[i], input * load(b + i * lanes));
    product[i] = s[i] * load(c + i * lanes);
  }
  return joined(product);
}

/// What advance() returned for 16 tokens of a row or 16 rows of a token.
struct alignas(64) Sums {
  float of[lanes][lanes] = {};

  HYBRIDSTATE_CPU_INLINE V halved() const {
    V v[lanes];
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t i = 0; i < lanes; ++i) v[i] = load(of[i]);
    return halve_each(v);
  }
};

template <bool MayBeNan, std::size_t P>
HYBRIDSTATE_CPU_INLINE void round_all(V (&s)[P]) {
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < P; ++i) s[i] = rounded_to_bf16<MayBeNan>(s[i]);
}

/// One row of P x 16 elements in registers over all tokens.
template <std::size_t P>
void update_row(const StateUpdate& j, std::size_t row, const HeadBytes& head, float* buffer,
                Sums& sums) {
  V s[P];
  std::size_t const first = row * P * lanes;
  if (head.source == nullptr) {
    read_source_row(j, row, buffer);
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t i = 0; i < P; ++i) s[i] = load(buffer + i * lanes);
  } else if (j.source_dtype == Dtype::bf16) {
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t i = 0; i < P; ++i)
      s[i] = load<Dtype::bf16>(head.source + (first + i * lanes) * 2);
  } else {
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t i = 0; i < P; ++i)
      s[i] = load<Dtype::f32>(head.source + (first + i * lanes) * 4);
  }
  std::size_t next = 0;
  for (std::size_t t = 0; t < j.tokens; ++t) {
    V const sum = advance(j, t, row, s);
    store(sums.of[t % lanes], sum);
    if (rounds_after(j, t)) {
      if (has_nan(sum))
        round_all<true>(s);
      else
        round_all<false>(s);
    }
    while (next < j.store_count && j.stores[next].after == t + 1) {
      std::byte* const at = next < HeadBytes::most_stores ? head.stores[next] : nullptr;
      const StateStore& to = j.stores[next++];
      if (at != nullptr && to.dtype == Dtype::bf16) {
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t i = 0; i < P; ++i) store_bf16(at + (first + i * lanes) * 2, s[i]);
        continue;
      }
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t i = 0; i < P; ++i) store(buffer + i * lanes, s[i]);
      write_state_row(to.pages, to.dtype, static_cast<std::int32_t>(j.head), row, P * lanes,
                      buffer);
    }
    if ((t + 1) % lanes != 0 && t + 1 < j.tokens) continue;
    alignas(64) float y[lanes];
    store(y, sums.halved());
    for (std::size_t i = t / lanes * lanes; i <= t; ++i)
      j.y[i * j.y_stride + row] = numeric::fused(j.d, j.x[i * j.stride + row], y[i % lanes]);
  }
}

/// Whether a head takes one token from BF16 to BF16: what decode does.
HYBRIDSTATE_CPU_INLINE bool is_decode(const StateUpdate& j, const HeadBytes& head) {
  return j.tokens == 1 && j.carry == Carry::bf16_per_token && head.source != nullptr &&
         j.source_dtype == Dtype::bf16 && j.store_count == 1 && head.stores[0] != nullptr &&
         j.stores[0].dtype == Dtype::bf16 && j.stores[0].after == 1;
}

/// update_row() of a decode for up to 16 rows, rounded once on the way to memory.
template <std::size_t P>
void decode_rows(const StateUpdate& j, std::size_t begin, std::size_t count, const HeadBytes& head,
                 float* buffer, Sums& sums) {
  for (std::size_t r = 0; r < count; ++r) {
    std::size_t const first = (begin + r) * P * lanes * 2;
    V s[P];
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t i = 0; i < P; ++i) {
      // States are read once a step: the prefetcher would begin anew on every page of memory.
      const std::byte* const at = head.source + first + i * lanes * 2;
      if (i % 2 == 0) __builtin_prefetch(at + rows_ahead * P * lanes * 2);
      s[i] = load<Dtype::bf16>(at);
    }
    V const sum = advance(j, 0, begin + r, s);
    if (has_nan(sum)) {
      Sums own;
      update_row<P>(j, begin + r, head, buffer, own);
    } else {
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t i = 0; i < P; ++i)
        store_bf16<false>(head.stores[0] + first + i * lanes * 2, s[i]);
    }
    store(sums.of[r], sum);
  }
  alignas(64) float y[lanes];
  store(y, sums.halved());
  for (std::size_t r = 0; r < count; ++r)
    j.y[begin + r] = numeric::fused(j.d, j.x[begin + r], y[r]);
}

/// Any number of elements, in memory; the same operations in the same order.
void update_any_row(const StateUpdate& j, std::size_t row, float* s) {
  std::size_t const n = j.state;
  std::size_t next = 0;
  for (std::size_t t = 0; t < j.tokens; ++t) {
    float const x = j.x[t * j.stride + row];
    float const decay = j.decay[t * j.dt_stride];
    float const input = j.dt[t * j.dt_stride] * x;
    const float* const b = j.b + t * j.stride;
    const float* const c = j.c + t * j.stride;
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes)
      store(s + i, fused(all(decay), load(s + i), all(input) * load(b + i)));
    for (; i < n; ++i) s[i] = numeric::fused(decay, s[i], input * b[i]);
    j.y[t * j.y_stride + row] = numeric::fused(j.d, x, wide_dot(s, c, n));
    if (rounds_after(j, t)) round_row(s, Dtype::bf16, n);
    while (next < j.store_count && j.stores[next].after == t + 1) {
      const StateStore& to = j.stores[next++];
      write_state_row(to.pages, to.dtype, static_cast<std::int32_t>(j.head), row, n, s);
    }
  }
}

template <std::size_t P>
void update_rows(const StateUpdate& j, std::size_t first, std::size_t end) {
  alignas(64) float buffer[P * lanes];
  Sums sums;
  HeadBytes const head = head_bytes(j);
  if (is_decode(j, head))
    for (std::size_t row = first; row < end; row += lanes)
      decode_rows<P>(j, row, std::min(lanes, end - row), head, buffer, sums);
  else
    for (std::size_t row = first; row < end; ++row) update_row<P>(j, row, head, buffer, sums);
}

void update_state(const StateUpdate& j, std::uint32_t first, std::uint32_t end) {
  switch (j.state) {
    case 16:
      return update_rows<1>(j, first, end);
    case 32:
      return update_rows<2>(j, first, end);
    case 64:
      return update_rows<4>(j, first, end);
    case 128:
      return update_rows<8>(j, first, end);
    case 256:
      return update_rows<16>(j, first, end);
    default:
      alignas(64) float buffer[max_state];
      for (std::size_t row = first; row < end; ++row) {
        read_source_row(j, row, buffer);
        update_any_row(j, row, buffer);
      }
  }
}

// --- attention --------------------------------------------------------------------------------

constexpr std::size_t head_block = 4;
constexpr std::size_t keys_ahead = 32;

/// Sums over the tokens of a split for one 16-element step of the output, up to `head_block` heads.
template <Dtype D, std::size_t N>
HYBRIDSTATE_CPU_INLINE void weigh_values(const unsigned char* const* values, std::size_t at,
                                         std::size_t elements, std::size_t count,
                                         const float (*p)[split_tokens], V* out) {
  V acc[N][4];
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t h = 0; h < N; ++h) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < 4; ++i) acc[h][i] = zero();
  auto const value = [&](std::size_t t) __attribute__((always_inline)) {
    const unsigned char* const from = values[t] + at * Element<D>::bytes;
    return elements >= lanes ? load<D>(from) : load_part<D>(from, elements);
  };
  std::size_t t = 0;
  for (; t + 4 <= count; t += 4) HYBRIDSTATE_CPU_UNROLL
  for (std::size_t i = 0; i < 4; ++i) {
    V const v = value(t + i);
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t h = 0; h < N; ++h) acc[h][i] = fused(all(p[h][t + i]), v, acc[h][i]);
  }
  for (std::size_t i = 0; t < count; ++t, ++i) {
    V const v = value(t);
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t h = 0; h < N; ++h) acc[h][i] = fused(all(p[h][t]), v, acc[h][i]);
  }
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t h = 0; h < N; ++h) out[h] = (acc[h][0] + acc[h][2]) + (acc[h][1] + acc[h][3]);
}

/// p[h][t]: the products of N heads of the query, `dim` elements apart, with `count` keys.
/// Meanwhile the values are fetched.
template <Dtype D, std::size_t N, std::size_t P>
void score_keys_p(const float* q, const unsigned char* const* keys,
                  const unsigned char* const* values, std::size_t count, std::size_t dim,
                  float scale, float (*p)[split_tokens]) {
  constexpr std::size_t group = lanes / N;  // keys that fill a register with their sums
  std::size_t t = 0;
  if constexpr (P <= 8)
    if (dim == P * lanes)
      for (; t + group <= count; t += group) {
        V sums[lanes];
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t i = N * group; i < lanes; ++i) sums[i] = zero();
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t i = 0; i < group; ++i) {
          const unsigned char* const ahead = keys[std::min(t + i + keys_ahead, count - 1)];
          V key[P];
          HYBRIDSTATE_CPU_UNROLL
          for (std::size_t k = 0; k < P; ++k) {
            std::size_t const at = k * lanes * Element<D>::bytes;
            if (at % 64 == 0) __builtin_prefetch(ahead + at);
            if (at % 64 == 0) __builtin_prefetch(values[t + i] + at, 0, 2);
            key[k] = load<D>(keys[t + i] + at);
          }
          HYBRIDSTATE_CPU_UNROLL
          for (std::size_t h = 0; h < N; ++h) {
            V product[P];
            HYBRIDSTATE_CPU_UNROLL
            for (std::size_t k = 0; k < P; ++k) product[k] = load(q + h * dim + k * lanes) * key[k];
            sums[h * group + i] = joined(product);
          }
        }
        alignas(64) float scores[lanes];
        store(scores, halve_each(sums) * all(scale));
        HYBRIDSTATE_CPU_UNROLL
        for (std::size_t h = 0; h < N; ++h)
          std::memcpy(p[h] + t, scores + h * group, group * sizeof(float));
      }
  for (; t < count; ++t)
    for (std::size_t h = 0; h < N; ++h)
      p[h][t] = wide_dot_p<P, D>(q + h * dim, keys[t], dim) * scale;
}
template <Dtype D, std::size_t N>
void score_keys(const float* q, const unsigned char* const* keys,
                const unsigned char* const* values, std::size_t count, std::size_t dim, float scale,
                float (*p)[split_tokens]) {
  switch (accumulators(dim)) {
    case 1:
      return score_keys_p<D, N, 1>(q, keys, values, count, dim, scale, p);
    case 2:
      return score_keys_p<D, N, 2>(q, keys, values, count, dim, scale, p);
    case 4:
      return score_keys_p<D, N, 4>(q, keys, values, count, dim, scale, p);
    case 8:
      return score_keys_p<D, N, 8>(q, keys, values, count, dim, scale, p);
    default:
      return score_keys_p<D, N, 16>(q, keys, values, count, dim, scale, p);
  }
}

/// Joins another maximum and sum of exponentials; keep and take: the factors of both outputs.
HYBRIDSTATE_CPU_INLINE void join(float& largest, float& denominator, float next_largest,
                                 float next_denominator, float& keep, float& take) {
  float const m = largest < next_largest ? next_largest : largest;
  keep = numeric::exp(largest - m);
  take = numeric::exp(next_largest - m);
  denominator = numeric::fused(denominator, keep, next_denominator * take);
  largest = m;
}

/// The largest of n > 0 numbers; NaNs behind the first are passed over.
HYBRIDSTATE_CPU_INLINE float largest_of(const float* x, std::size_t n) {
  V m = all(x[0]);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) m = at_least(m, load(x + i));
  alignas(64) float each[lanes];
  store(each, m);
  float largest = each[0];
  for (float const f : each) largest = largest < f ? f : largest;
  for (; i < n; ++i) largest = largest < x[i] ? x[i] : largest;
  return largest;
}

template <Dtype D, std::size_t N>
void attend_heads(const Attention& j, std::size_t first_head) {
  std::size_t const dim = j.head_dim;
  std::size_t const steps = (dim + lanes - 1) / lanes;
  alignas(64) float p[N][split_tokens];
  // [0]: all spans before the one at hand, or the first span itself; [1]: a later span.
  alignas(64) float o[2][N][max_head_dim];
  const unsigned char* keys[split_tokens];
  const unsigned char* values[split_tokens];
  float largest[2][N] = {};
  float denominator[2][N] = {};
  float keep[N] = {};
  float take[N] = {};
  const float* const q = j.q + first_head * dim;
  auto const head = static_cast<std::int32_t>(j.kv_head);
  std::size_t const tokens = std::size_t{j.position} + 1;

  for (std::size_t start = 0; start < tokens; start += split_tokens) {
    std::size_t const count = std::min<std::size_t>(split_tokens, tokens - start);
    for (std::size_t t = 0; t < count;) {  // the tokens of one block lie a stride apart
      auto const token = static_cast<std::int32_t>(start + t);
      const std::byte* key = j.blocks.addr_key(0, head, token);
      std::int32_t const block = j.blocks.strides.block_tokens;
      for (std::int32_t i = token % block; i < block && t < count; ++i, ++t) {
        keys[t] = reinterpret_cast<const unsigned char*>(key);
        values[t] = keys[t] + j.blocks.strides.value;
        key += j.blocks.strides.token;
      }
    }
    score_keys<D, N>(q, keys, values, count, dim, j.scale, p);
    float split_largest[N];
    float split_sum[N];
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t h = 0; h < N; ++h) {
      float const m = largest_of(p[h], count);
      std::fill(p[h] + count, p[h] + (count + lanes - 1) / lanes * lanes, m);
      for (std::size_t t = 0; t < count; t += lanes)
        store(p[h] + t, exp_v(load(p[h] + t) - all(m)));
      std::fill(p[h] + count, p[h] + split_tokens, 0.0F);
      V acc[16];
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t i = 0; i < 16; ++i) acc[i] = load(p[h] + i * lanes);
      split_largest[h] = m;
      split_sum[h] = halve_all(acc);
    }
    bool const begins = start % span_tokens == 0;
    std::size_t const level = start < span_tokens ? 0 : 1;
    HYBRIDSTATE_CPU_UNROLL
    for (std::size_t h = 0; h < N; ++h) {
      float& m = largest[level][h];
      float& sum = denominator[level][h];
      if (begins) {
        m = split_largest[h];
        sum = split_sum[h];
      } else {
        join(m, sum, split_largest[h], split_sum[h], keep[h], take[h]);
      }
    }
    for (std::size_t step = 0; step < steps; ++step) {
      V sum[N];
      weigh_values<D, N>(values, step * lanes, dim - step * lanes, count, p, sum);
      HYBRIDSTATE_CPU_UNROLL
      for (std::size_t h = 0; h < N; ++h) {
        float* const to = o[level][h] + step * lanes;
        store(to, begins ? sum[h] : fused(load(to), all(keep[h]), sum[h] * all(take[h])));
      }
    }
    if (level == 0 || ((start + count) % span_tokens != 0 && start + count < tokens)) continue;
    for (std::size_t h = 0; h < N; ++h) {
      join(largest[0][h], denominator[0][h], largest[1][h], denominator[1][h], keep[h], take[h]);
      for (std::size_t i = 0; i < steps * lanes; i += lanes)
        store(o[0][h] + i,
              fused(load(o[0][h] + i), all(keep[h]), load(o[1][h] + i) * all(take[h])));
    }
  }
  HYBRIDSTATE_CPU_UNROLL
  for (std::size_t h = 0; h < N; ++h) {
    float* const out = j.out + (first_head + h) * dim;
    for (std::size_t i = 0; i < dim; ++i) out[i] = o[0][h][i] / denominator[0][h];
  }
}

template <Dtype D>
void attend_group(const Attention& j) {
  std::size_t h = 0;
  for (; h + head_block <= j.heads; h += head_block) attend_heads<D, head_block>(j, h);
  switch (j.heads - h) {
    case 3:
      return attend_heads<D, 3>(j, h);
    case 2:
      return attend_heads<D, 2>(j, h);
    case 1:
      return attend_heads<D, 1>(j, h);
    default:
      return;
  }
}

void attend(const Attention& j) {
  if (j.kv_dtype == Dtype::bf16)
    attend_group<Dtype::bf16>(j);
  else
    attend_group<Dtype::f32>(j);
}

constexpr Kernels table(const char* name) {
  Kernels k;
  k.name = name;
  k.pack = pack;
  k.linear = linear;
  k.rms_norm = rms_norm;
  k.gated_norm = gated_norm;
  k.silu_product = silu_product;
  k.multiply = multiply;
  k.add = add;
  k.rotate = rotate;
  k.convolve = convolve;
  k.update_state = update_state;
  k.attend = attend;
  k.load = load_row;
  k.store = store_row;
  k.round = round_row;
  k.exp = exp_of;
  return k;
}

}  // namespace
// NOLINTEND(modernize-loop-convert)
}  // namespace hybridstate::runtime::cpu::HYBRIDSTATE_CPU_ISA

#undef HYBRIDSTATE_CPU_INLINE
#undef HYBRIDSTATE_CPU_UNROLL
