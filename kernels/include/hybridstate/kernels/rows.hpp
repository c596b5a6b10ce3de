// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/job.hpp>
#include <hybridstate/kernels/reduce.hpp>

// What a layer does to each token's row by itself: norms and steps element by element, to the bits
// of the CPU executor. E: the type of an output that a linear reads, float or rounded to Bf16.
// Vectors: rows begin at multiples of 16 bytes and have whole groups of four elements. FP32 rows
// may be written where they were read. Padded rows hold zeros from the embedding on.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

// --- norms ------------------------------------------------------------------------------------

/// A CTA takes one row in the 256 chains of a wide sum, four neighbours a thread.
struct RowOfChains {
  static constexpr unsigned threads = 64;
  static constexpr unsigned chains = 4 * threads;
  static constexpr unsigned unroll = 4;  ///< groups of four in flight

  /// Calls use(k, x) for this thread's groups of four, which values(k, x) loads.
  template <class T, class Values, class Use>
  HYBRIDSTATE_HD static void each_four(T& t, std::uint32_t n, const Values& values,
                                       const Use& use) {
    for (std::uint32_t base = 4 * t.thread(); base < n; base += unroll * chains) {
      float x[unroll][4];
      HYBRIDSTATE_UNROLL
      for (unsigned u = 0; u < unroll; ++u) values(base + u * chains, x[u]);
      HYBRIDSTATE_UNROLL
      for (unsigned u = 0; u < unroll; ++u) use(base + u * chains, x[u]);
    }
  }

  /// 1 / sqrt(mean of squares + epsilon), in every thread; once a kernel. values(k, x) gives zeros
  /// past the end. Rows with fewer chains are as good: squares and +0 add to the same bits.
  template <class T, class Values>
  HYBRIDSTATE_HD static float inverse_rms(T& t, std::uint32_t n, float epsilon,
                                          const Values& values) {
    float chain[4] = {};
    each_four(t, n, values, [&](std::uint32_t, const float(&x)[4]) {
      for (unsigned i = 0; i < 4; ++i) chain[i] = numeric::fused(x[i], x[i], chain[i]);
    });
    struct Shared {
      Vector16 of[threads];
    };
    auto& shared = t.template shared<Shared>();
    shared.of[t.thread()] = packed<float>(chain);
    t.sync();
    float other[4];
    unpack<float>(shared.of[t.thread() ^ warp_lanes], other);
    for (unsigned i = 0; i < 4; ++i) chain[i] = chain[i] + other[i];
    float const mean = halve<1, warp_lanes, 4>(t, chain) / static_cast<float>(n);
    return 1.0F / numeric::sqrt(mean + epsilon);
  }
};

/// out = weight * x / sqrt(mean(x^2) + epsilon), where x = h, h + a or h + (a + b): the residual
/// connection and the norm behind it. Row r of out comes from row rows_of[r] (null: r) of the
/// others; negative: it is zero and nothing else is touched.
struct RmsNormRows {
  Rows<const float> h{};
  Rows<const float> a{}, b{};  ///< null: none
  Rows<float> sum{};           ///< gets x; may be h. Null: none
  const float* weight = nullptr;
  float epsilon = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;            ///< elements
  const std::int32_t* rows_of = nullptr;  ///< no row twice where there is a sum
  std::uint32_t rows = 0;
  std::uint32_t n = 0;
};
template <class E, bool Vectors>
struct RmsNorm : RmsNormRows {
  static constexpr unsigned threads = RowOfChains::threads;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {rows, 1, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    E* const to = static_cast<E*>(out) + std::int64_t{t.block_x()} * out_stride;
    std::int64_t row = t.block_x();
    if (rows_of != nullptr) row = t.template load<std::int32_t>(rows_of + row);
    auto const zeros = [](std::uint32_t, float(&x)[4]) {
      for (float& f : x) f = 0.0F;
    };
    auto const plain = [&](std::uint32_t k, const float(&x)[4]) {
      store_four<E, Vectors>(t, to, k, n, x);
    };
    if (row < 0) return RowOfChains::each_four(t, n, zeros, plain);

    auto const values = [&](std::uint32_t k, float(&x)[4]) {
      load_four<float, Vectors>(t, h.row(row), k, n, x);
      if (!a) return;
      float added[4];
      load_four<float, Vectors>(t, a.row(row), k, n, added);
      if (b) {
        float second[4];
        load_four<float, Vectors>(t, b.row(row), k, n, second);
        for (unsigned i = 0; i < 4; ++i) added[i] = added[i] + second[i];
      }
      for (unsigned i = 0; i < 4; ++i) x[i] = x[i] + added[i];
    };
    float const inverse = RowOfChains::inverse_rms(t, n, epsilon, values);
    RowOfChains::each_four(t, n, values, [&](std::uint32_t k, const float(&x)[4]) {
      float w[4];
      load_four<float, Vectors>(t, weight, k, n, w);
      if (sum) store_four<float, Vectors>(t, sum.row(row), k, n, x);
      for (unsigned i = 0; i < 4; ++i) w[i] = x[i] * inverse * w[i];
      store_four<E, Vectors>(t, to, k, n, w);
    });
  }
};

/// y gated by silu(z) and normed by groups of width / groups elements, in either order; without
/// weights only gated.
struct GatedNormRows {
  Rows<const float> y{}, z{};
  const float* weight = nullptr;  ///< [width]
  bool norm_before_gate = false;
  float epsilon = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;  ///< elements
  std::uint32_t rows = 0;
  std::uint32_t width = 0;
  std::uint32_t groups = 1;
};
template <class E, bool Vectors>
struct GatedNorm : GatedNormRows {
  static constexpr unsigned threads = RowOfChains::threads;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {rows, groups, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::int64_t const row = t.block_x();
    std::uint32_t const n = width / groups;
    std::uint32_t const begin = t.block_y() * n;
    E* const to = static_cast<E*>(out) + row * out_stride + begin;
    auto const gate = [&](std::uint32_t k, float(&x)[4]) {
      float g[4];
      load_four<float, Vectors>(t, z.row(row) + begin, k, n, g);
      for (unsigned i = 0; i < 4; ++i) x[i] = x[i] * numeric::silu(g[i]);
    };
    bool const gate_first = weight == nullptr || !norm_before_gate;
    auto const values = [&](std::uint32_t k, float(&x)[4]) {
      load_four<float, Vectors>(t, y.row(row) + begin, k, n, x);
      if (gate_first) gate(k, x);
    };
    float inverse = 0;
    if (weight != nullptr) inverse = RowOfChains::inverse_rms(t, n, epsilon, values);
    RowOfChains::each_four(t, n, values, [&](std::uint32_t k, const float(&x)[4]) {
      float normed[4] = {x[0], x[1], x[2], x[3]};
      if (weight != nullptr) {
        float w[4];
        load_four<float, Vectors>(t, weight + begin, k, n, w);
        for (unsigned i = 0; i < 4; ++i) normed[i] = x[i] * inverse * w[i];
      }
      if (!gate_first) gate(k, normed);
      store_four<E, Vectors>(t, to, k, n, normed);
    });
  }
};

// --- element by element -----------------------------------------------------------------------

inline constexpr unsigned four_threads = 128;  ///< of a CTA of EachFour

/// A kernel that calls Step::four(t, row, k) for every group of four elements [k, k + 4) of rows of
/// n; the last group of a row may reach past its end.
template <class Step>
struct EachFour : Step {
  static constexpr unsigned threads = four_threads;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {this->rows * blocks(), 1, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const k = 4 * (t.block_x() % blocks() * threads + t.thread());
    if (k < this->n) this->four(t, std::int64_t{t.block_x() / blocks()}, k);
  }

 private:
  HYBRIDSTATE_HD constexpr std::uint32_t blocks() const noexcept {
    return quotient_up(this->n, 4 * threads);
  }
};

/// out = multiplier * the embedding of token ids[row]; zero where that is negative.
struct EmbeddingRows {
  const void* table = nullptr;  ///< [id][n]
  const std::int32_t* ids = nullptr;
  float multiplier = 1;
  Rows<float> out{};
  std::uint32_t rows = 0;
  std::uint32_t n = 0;
};
/// E: of the table.
template <class E, bool Vectors>
struct Embedding : EmbeddingRows {
  template <class T>
  HYBRIDSTATE_HD void four(T& t, std::int64_t row, std::uint32_t k) const {
    std::int64_t const id = t.template load<std::int32_t>(ids + row);
    float x[4] = {};
    if (id >= 0) {
      load_four<E, Vectors>(t, static_cast<const E*>(table) + id * n, k, n, x);
      for (float& f : x) f = f * multiplier;
    }
    store_four<float, Vectors>(t, out.row(row), k, n, x);
  }
};

/// out = up * silu(gate).
struct SiluProductRows {
  Rows<const float> gate{}, up{};
  void* out = nullptr;
  std::int64_t out_stride = 0;  ///< elements
  std::uint32_t rows = 0;
  std::uint32_t n = 0;
};
template <class E, bool Vectors>
struct SiluProduct : SiluProductRows {
  template <class T>
  HYBRIDSTATE_HD void four(T& t, std::int64_t row, std::uint32_t k) const {
    float g[4];
    float x[4];
    load_four<float, Vectors>(t, gate.row(row), k, n, g);
    load_four<float, Vectors>(t, up.row(row), k, n, x);
    for (unsigned i = 0; i < 4; ++i) x[i] = x[i] * numeric::silu(g[i]);
    store_four<E, Vectors>(t, static_cast<E*>(out) + row * out_stride, k, n, x);
  }
};

/// x = (scale * x + bias[k]) * post * factors[k], each operation rounded: what follows the sums of
/// a linear, and the multipliers of the parts of its output.
struct ScaleRows {
  Rows<float> x{};
  float scale = 1;
  const float* bias = nullptr;  ///< null: none
  float post = 1;
  const float* factors = nullptr;  ///< null: none
  std::uint32_t rows = 0;
  std::uint32_t n = 0;
};
template <bool Vectors>
struct Scale : ScaleRows {
  template <class T>
  HYBRIDSTATE_HD void four(T& t, std::int64_t row, std::uint32_t k) const {
    float v[4];
    float column[4];
    load_four<float, Vectors>(t, x.row(row), k, n, v);
    for (float& f : v) f = f * scale;
    if (bias != nullptr) {
      load_four<float, Vectors>(t, bias, k, n, column);
      for (unsigned i = 0; i < 4; ++i) v[i] = v[i] + column[i];
    }
    for (float& f : v) f = f * post;
    if (factors != nullptr) {
      load_four<float, Vectors>(t, factors, k, n, column);
      for (unsigned i = 0; i < 4; ++i) v[i] = v[i] * column[i];
    }
    store_four<float, Vectors>(t, x.row(row), k, n, v);
  }
};

/// out = x, rounded to BF16.
struct RoundRows {
  Rows<const float> x{};
  Bf16* out = nullptr;
  std::int64_t out_stride = 0;  ///< elements
  std::uint32_t rows = 0;
  std::uint32_t n = 0;
};
template <bool Vectors>
struct Round : RoundRows {
  template <class T>
  HYBRIDSTATE_HD void four(T& t, std::int64_t row, std::uint32_t k) const {
    float v[4];
    load_four<float, Vectors>(t, x.row(row), k, n, v);
    store_four<Bf16, Vectors>(t, out + row * out_stride, k, n, v);
  }
};

/// h += a, or h += a + b.
struct AddRows {
  Rows<float> h{};
  Rows<const float> a{}, b{};  ///< b null: none
  std::uint32_t rows = 0;
  std::uint32_t n = 0;
};
template <bool Vectors>
struct Add : AddRows {
  template <class T>
  HYBRIDSTATE_HD void four(T& t, std::int64_t row, std::uint32_t k) const {
    float sum[4];
    float other[4];
    load_four<float, Vectors>(t, a.row(row), k, n, sum);
    if (b) {
      load_four<float, Vectors>(t, b.row(row), k, n, other);
      for (unsigned i = 0; i < 4; ++i) sum[i] = sum[i] + other[i];
    }
    load_four<float, Vectors>(t, h.row(row), k, n, other);
    for (unsigned i = 0; i < 4; ++i) sum[i] = other[i] + sum[i];
    store_four<float, Vectors>(t, h.row(row), k, n, sum);
  }
};

// --- jobs -------------------------------------------------------------------------------------

/// With an output, or a table, of a type that is known at run time only.
struct RmsNormJob : RmsNormRows {
  ElementType type = ElementType::f32;
};
struct GatedNormJob : GatedNormRows {
  ElementType type = ElementType::f32;
};
struct EmbeddingJob : EmbeddingRows {
  ElementType type = ElementType::bf16;
};
struct SiluProductJob : SiluProductRows {
  ElementType type = ElementType::f32;
};

namespace detail {
template <class E, bool Vectors>
using EachEmbedding = EachFour<Embedding<E, Vectors>>;
template <class E, bool Vectors>
using EachSiluProduct = EachFour<SiluProduct<E, Vectors>>;

template <template <class, bool> class Kernel, class Job, class Run>
bool with_rows(const Job& job, bool in_vectors, Run&& run) {
  return with_element(job.type, [&]<class E>() {
    if (in_vectors)
      run(Kernel<E, true>{job});
    else
      run(Kernel<E, false>{job});
    return true;
  });
}
template <class Job>
bool too_many_fours(const Job& job) noexcept {
  return job.n > most_elements ||
         std::uint64_t{job.rows} * quotient_up(job.n, 4 * four_threads) > most_grid_x;
}
}  // namespace detail

// False: a width that is not a multiple of its groups, rows of 2^31 elements or more, or more CTAs
// than a launch takes (2^31 - 1; 65535 groups).

template <class Run>
bool with_kernel(const RmsNormJob& job, Run&& run) {
  if (job.rows > detail::most_grid_x || job.n > detail::most_elements) return false;
  bool const in_vectors = job.n % 4 == 0 && detail::row_vectors(job.h, job.a, job.b, job.sum) &&
                          detail::row_vectors(job.out, job.out_stride, job.type) &&
                          detail::vectors(job.weight);
  return detail::with_rows<RmsNorm>(job, in_vectors, run);
}
template <class Run>
bool with_kernel(const GatedNormJob& job, Run&& run) {
  if (job.rows > detail::most_grid_x || job.groups == 0 || job.groups > detail::most_grid_y ||
      job.width > detail::most_elements || job.width % job.groups != 0)
    return false;
  bool const in_vectors = job.width / job.groups % 4 == 0 && detail::row_vectors(job.y, job.z) &&
                          detail::row_vectors(job.out, job.out_stride, job.type) &&
                          detail::vectors(job.weight);
  return detail::with_rows<GatedNorm>(job, in_vectors, run);
}
template <class Run>
bool with_kernel(const EmbeddingJob& job, Run&& run) {
  if (detail::too_many_fours(job)) return false;
  bool const in_vectors =
      job.n % 4 == 0 && detail::row_vectors(job.out) && detail::vectors(job.table);
  return detail::with_rows<detail::EachEmbedding>(job, in_vectors, run);
}
template <class Run>
bool with_kernel(const SiluProductJob& job, Run&& run) {
  if (detail::too_many_fours(job)) return false;
  bool const in_vectors = job.n % 4 == 0 && detail::row_vectors(job.gate, job.up) &&
                          detail::row_vectors(job.out, job.out_stride, job.type);
  return detail::with_rows<detail::EachSiluProduct>(job, in_vectors, run);
}
template <class Run>
bool with_kernel(const ScaleRows& job, Run&& run) {
  if (detail::too_many_fours(job)) return false;
  if (job.n % 4 == 0 && detail::row_vectors(job.x) && detail::vectors(job.bias, job.factors))
    run(EachFour<Scale<true>>{job});
  else
    run(EachFour<Scale<false>>{job});
  return true;
}
template <class Run>
bool with_kernel(const RoundRows& job, Run&& run) {
  if (detail::too_many_fours(job)) return false;
  if (job.n % 4 == 0 && detail::row_vectors(job.x) &&
      detail::row_vectors(job.out, job.out_stride, ElementType::bf16))
    run(EachFour<Round<true>>{job});
  else
    run(EachFour<Round<false>>{job});
  return true;
}
template <class Run>
bool with_kernel(const AddRows& job, Run&& run) {
  if (detail::too_many_fours(job)) return false;
  if (job.n % 4 == 0 && detail::row_vectors(job.h, job.a, job.b))
    run(EachFour<Add<true>>{job});
  else
    run(EachFour<Add<false>>{job});
  return true;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
