// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/greedy.hpp>

// Tokens drawn with a temperature, top-k and top-p. Likelihoods are integers, whose sums are the
// same in any order: one definition for this kernel and for the CPU's sampler, to the token.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// How a row's token is drawn.
struct SamplingRow {
  float temperature = 0;     ///< not above 0: the greedy choice
  std::uint32_t top_k = 0;   ///< the likeliest tokens only; 0: all
  double top_p = 1;          ///< the fewest likeliest that have this share of what top_k leaves
  std::uint64_t random = 0;  ///< 64 random bits
};

/// 2^39: e to the power 0.
inline constexpr float full_likelihood = 549755813888.0F;
inline constexpr unsigned likelihood_bits = 40;
/// So that a row's sum fits.
inline constexpr std::uint32_t most_sampled = 1U << 24;

/// e^((logit - largest) / temperature); 0 for a NaN, which is never drawn.
HYBRIDSTATE_HD inline float relative_likelihood(float logit, float largest,
                                                float temperature) noexcept {
  float const e = numeric::exp((logit - largest) / temperature);
  return e >= 0 ? e : 0.0F;
}
/// The same as an integer. 0, so never drawn, below 2^-39.
HYBRIDSTATE_HD inline std::uint64_t likelihood(float relative) noexcept {
  return static_cast<std::uint64_t>(relative * full_likelihood);
}
/// What top_p has to reach of a sum of likelihoods: at least 1.
HYBRIDSTATE_HD inline std::uint64_t share_of(std::uint64_t sum, double top_p) noexcept {
  if (!(top_p < 1)) return sum;
  double const share = static_cast<double>(sum) * (top_p > 0 ? top_p : 0.0);
  auto const least = static_cast<std::uint64_t>(share);
  return least == 0 ? 1 : least < sum ? least : sum;
}
/// Upper half of a product: `random` in [0, 2^64) becomes a number in [0, below).
HYBRIDSTATE_HD inline std::uint64_t scaled_random(std::uint64_t random,
                                                  std::uint64_t below) noexcept {
  constexpr std::uint64_t low = 0xffffffff;
  std::uint64_t const middle =
      (random >> 32) * (below & low) + ((random & low) * (below & low) >> 32);
  std::uint64_t const other = (random & low) * (below >> 32) + (middle & low);
  return (random >> 32) * (below >> 32) + (middle >> 32) + (other >> 32);
}

/// ids[r] is drawn from row rows_of[r] of the logits (null: r) as options[r] says; negative: ids[r]
/// is -1. Likelier tokens come before less likely ones, equal ones in order of their ids; those
/// that top_k and top_p leave are drawn by likelihood.
struct SampleRows {
  Rows<const float> logits{};             ///< [row][n]
  const std::int32_t* rows_of = nullptr;  ///< [rows]
  const SamplingRow* options = nullptr;   ///< [rows]
  std::int32_t* ids = nullptr;            ///< [rows]
  Rows<float> scratch{};                  ///< [rows][n]; may be a row's logits, then lost
  std::uint32_t rows = 0;
  std::uint32_t n = 0;  ///< 1 to most_sampled
};

/// A CTA draws from one row.
template <bool Vectors>
struct Sample : SampleRows {
  static constexpr unsigned threads = 256;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {rows, 1, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::uint32_t const r = t.block_x();
    std::int64_t const row =
        rows_of == nullptr ? r : std::int64_t{t.template load<std::int32_t>(rows_of + r)};
    if (row < 0) {
      if (t.thread() == 0) t.store(ids + r, std::int32_t{-1});
      return;
    }
    Shared& m = t.template shared<Shared>();
    Candidate const best = greedy(t, m, logits.row(row));
    auto const temperature = t.template load<float>(&options[r].temperature);
    std::uint64_t const all = temperature > 0 ? weigh(t, m, row, best.logit, temperature) : 0;
    if (all == 0) {
      if (t.thread() == 0) t.store(ids + r, best.id);
      return;
    }
    draw(t, m, kept(t, m, all), best.id);
  }

 private:
  static constexpr unsigned digit_bits = 4;
  static constexpr unsigned digits = 1U << digit_bits;
  static constexpr unsigned parts = threads / digits;

  /// The run of ids in which the drawn token lies, and what is left to count there.
  struct Drawn {
    std::uint64_t left, ties;
    unsigned run;
  };
  struct Shared {
    Candidate best[threads / warp_lanes];
    std::uint64_t of[digits][threads];  ///< of each thread
    std::uint64_t part[digits][parts];
    std::uint64_t ties[threads];
    Drawn drawn;
  };
  /// Tokens above a likelihood, and the first `ties` of those that have it; their sum.
  struct Kept {
    std::uint64_t threshold, ties, sum;
  };
  /// The likelihood at which a sum from the top reaches what is needed, and the sum above it.
  struct Reached {
    std::uint64_t threshold, above;
  };

  template <class T, class F>
  HYBRIDSTATE_HD void each(T& t, const float* from, F&& f) const {
    for (std::uint32_t k = 4 * t.thread(); k < n; k += 4 * threads) {
      float four[4];
      load_four<float, Vectors>(t, from, k, n, four);
      for (unsigned i = 0; i < 4; ++i)
        if (k + i < n) f(k + i, four[i]);
    }
  }
  template <class T>
  HYBRIDSTATE_HD Candidate greedy(T& t, Shared& m, const float* from) const {
    Candidate best{t.template load<float>(from), 0};
    each(t, from, [&](std::uint32_t id, float logit) {
      if (logit > best.logit) best = {logit, static_cast<std::int32_t>(id)};
    });
    return detail::best_of_cta<threads>(t, m.best, best);
  }
  /// Relative likelihoods into `scratch`; the sum of the likelihoods.
  template <class T>
  HYBRIDSTATE_HD std::uint64_t weigh(T& t, Shared& m, std::int64_t row, float largest,
                                     float temperature) const {
    std::uint64_t sum = 0;
    float* const to = scratch.row(t.block_x());
    const float* const from = logits.row(row);
    for (std::uint32_t k = 4 * t.thread(); k < n; k += 4 * threads) {
      float four[4];
      load_four<float, Vectors>(t, from, k, n, four);
      for (unsigned i = 0; i < 4; ++i) {
        four[i] = relative_likelihood(four[i], largest, temperature);
        if (k + i < n) sum += likelihood(four[i]);
      }
      store_four<float, Vectors>(t, to, k, n, four);
    }
    return total(t, m, sum);
  }

  /// The sum of what the threads give, in every thread.
  template <class T>
  HYBRIDSTATE_HD std::uint64_t total(T& t, Shared& m, std::uint64_t mine) const {
    m.of[0][t.thread()] = mine;
    add_up(t, m, 1);
    return digit_sum(m, 0);
  }
  /// Sums of m.of[d] over the threads, for d < count.
  template <class T>
  HYBRIDSTATE_HD void add_up(T& t, Shared& m, unsigned count) const {
    t.sync();
    unsigned const d = t.thread() / parts;
    if (d < count) {
      std::uint64_t sum = 0;
      for (unsigned i = 0; i < digits; ++i) sum += m.of[d][t.thread() % parts * digits + i];
      m.part[d][t.thread() % parts] = sum;
    }
    t.sync();
  }
  HYBRIDSTATE_HD std::uint64_t digit_sum(const Shared& m, unsigned d) const {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < parts; ++i) sum += m.part[d][i];
    return sum;
  }

  /// From the top, digit by digit: of likelihoods, or (Count) of their number. `need` is reached.
  template <bool Count, class T>
  HYBRIDSTATE_HD Reached reach(T& t, Shared& m, std::uint64_t need) const {
    Reached to{0, 0};
    for (unsigned shift = likelihood_bits; shift > 0;) {
      shift -= digit_bits;
      for (auto& of : m.of) of[t.thread()] = 0;
      each(t, scratch.row(t.block_x()), [&](std::uint32_t, float relative) {
        std::uint64_t const w = likelihood(relative);
        if (w >> shift >> digit_bits == to.threshold)
          m.of[w >> shift & (digits - 1)][t.thread()] += Count ? 1 : w;
      });
      add_up(t, m, digits);
      unsigned d = digits - 1;
      for (std::uint64_t sum = digit_sum(m, d); to.above + sum < need; sum = digit_sum(m, --d))
        to.above += sum;
      to.threshold = to.threshold << digit_bits | d;
    }
    return to;
  }

  template <class T>
  HYBRIDSTATE_HD Kept kept(T& t, Shared& m, std::uint64_t all) const {
    const SamplingRow* const o = options + t.block_x();
    Kept k{0, 0, all};
    std::uint64_t above = all;  // of likelihoods above the threshold
    std::uint64_t const top_k = t.template load<std::uint32_t>(&o->top_k);
    if (top_k > 0) {
      std::uint64_t positive = 0;
      each(t, scratch.row(t.block_x()),
           [&](std::uint32_t, float relative) { positive += likelihood(relative) > 0 ? 1 : 0; });
      if (top_k < total(t, m, positive)) {
        Reached const at = reach<true>(t, m, top_k);
        std::uint64_t mine = 0;
        each(t, scratch.row(t.block_x()), [&](std::uint32_t, float relative) {
          std::uint64_t const w = likelihood(relative);
          if (w > at.threshold) mine += w;
        });
        above = total(t, m, mine);
        k = {at.threshold, top_k - at.above, above + (top_k - at.above) * at.threshold};
      }
    }
    std::uint64_t const need = share_of(k.sum, t.template load<double>(&o->top_p));
    if (need == k.sum) return k;
    if (need <= above) {
      Reached const at = reach<false>(t, m, need);
      k.threshold = at.threshold;
      above = at.above;
    }
    k.ties = (need - above + k.threshold - 1) / k.threshold;
    k.sum = above + k.ties * k.threshold;
    return k;
  }

  /// Each thread has a run of ids; first the run is found, then the token in it.
  template <class T>
  HYBRIDSTATE_HD void draw(T& t, Shared& m, const Kept& k, std::int32_t id) const {
    const float* const from = scratch.row(t.block_x());
    std::uint32_t const run = quotient_up(n, 4 * threads) * 4;
    std::uint32_t const begin = t.thread() * run;
    std::uint32_t const end = begin + run < n ? begin + run : n;
    auto const walk = [&](auto&& f) {
      for (std::uint32_t i = begin; i < end; i += 4) {
        float four[4];
        load_four<float, Vectors>(t, from, i, n, four);
        for (unsigned j = 0; j < 4; ++j)
          if (i + j < end) f(i + j, likelihood(four[j]));
      }
    };
    std::uint64_t above = 0;
    std::uint64_t ties = 0;
    t.sync();
    walk([&](std::uint32_t, std::uint64_t w) {
      above += w > k.threshold ? w : 0;
      ties += w == k.threshold ? 1 : 0;
    });
    m.of[0][t.thread()] = above;
    m.ties[t.thread()] = ties;
    t.sync();
    if (t.thread() == 0) {
      std::uint64_t left =
          scaled_random(t.template load<std::uint64_t>(&options[t.block_x()].random), k.sum);
      std::uint64_t ties_left = k.ties;
      for (unsigned i = 0;; ++i) {
        std::uint64_t const counted = m.ties[i] < ties_left ? m.ties[i] : ties_left;
        std::uint64_t const sum = m.of[0][i] + counted * k.threshold;
        if (left < sum) {
          m.drawn = {left, ties_left, i};
          break;
        }
        left -= sum;
        ties_left -= counted;
      }
    }
    t.sync();
    if (t.thread() != m.drawn.run) return;
    std::uint64_t left = m.drawn.left;
    std::uint64_t ties_left = m.drawn.ties;
    bool found = false;
    walk([&](std::uint32_t i, std::uint64_t w) {
      if (found || w == 0 || w < k.threshold || (w == k.threshold && ties_left == 0)) return;
      if (w == k.threshold) --ties_left;
      found = left < w;
      if (found) id = static_cast<std::int32_t>(i);
      left -= w;
    });
    t.store(ids + t.block_x(), id);
  }
};

/// False: no logits or more than most_sampled, or 2^31 rows.
template <class Run>
bool with_kernel(const SampleRows& job, Run&& run) {
  if (job.n == 0 || job.n > most_sampled || job.rows > detail::most_grid_x) return false;
  if (job.n % 4 == 0 && detail::row_vectors(job.logits, job.scratch))
    run(Sample<true>{job});
  else
    run(Sample<false>{job});
  return true;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
