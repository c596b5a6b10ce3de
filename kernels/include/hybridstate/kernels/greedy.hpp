// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/kernels/job.hpp>

// The largest logit of each row, the lowest id among equals, exactly as the CPU sampler finds it: a
// NaN never wins, unless it stands first.

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {

/// A token that may be the choice.
struct Candidate {
  float logit;
  std::int32_t id;
};

inline constexpr std::uint32_t greedy_chunk = 8192;  ///< logits of one candidate

/// Candidates of a row of `n` logits.
HYBRIDSTATE_HD constexpr std::uint32_t greedy_candidates(std::uint32_t n) noexcept {
  return quotient_up(n, greedy_chunk);
}

/// ids[r] is the choice from row rows_of[r] of the logits (null: r); negative: ids[r] is -1 too.
struct GreedyRows {
  Rows<const float> logits{};  ///< [row][n]
  const std::int32_t* rows_of = nullptr;
  std::int32_t* ids = nullptr;      ///< [rows]
  Candidate* candidates = nullptr;  ///< scratch: [rows][greedy_candidates(n)]
  std::uint32_t rows = 0;
  std::uint32_t n = 0;  ///< at least 1

  /// The row of logits of this CTA.
  template <class T>
  HYBRIDSTATE_HD std::int64_t row_of(T& t, std::uint32_t r) const {
    return rows_of == nullptr ? r : std::int64_t{t.template load<std::int32_t>(rows_of + r)};
  }
};

namespace detail {
HYBRIDSTATE_HD constexpr Candidate better(Candidate a, Candidate b) noexcept {
  return b.logit > a.logit || (b.logit == a.logit && b.id < a.id) ? b : a;
}
/// The best of a warp, in every lane.
template <class T>
HYBRIDSTATE_HD Candidate best_of_warp(T& t, Candidate mine) {
  for (unsigned bit = warp_lanes / 2; bit > 0; bit /= 2) {
    float const logit = t.shuffle_xor(mine.logit, bit);
    float const id = t.shuffle_xor(numeric::float_of(static_cast<std::uint32_t>(mine.id)), bit);
    mine = better(mine, {logit, static_cast<std::int32_t>(numeric::bits_of(id))});
  }
  return mine;
}
/// The same of a CTA; `of` is shared memory, of[Threads / 32].
template <unsigned Threads, class T>
HYBRIDSTATE_HD Candidate best_of_cta(T& t, Candidate* of, Candidate mine) {
  mine = best_of_warp(t, mine);
  if (t.thread() % warp_lanes == 0) of[t.thread() / warp_lanes] = mine;
  t.sync();
  for (unsigned i = 0; i < Threads / warp_lanes; ++i) mine = better(mine, of[i]);
  return mine;
}
}  // namespace detail

/// The first of two launches: the best of each chunk, or the row's first token if none is better.
template <bool Vectors>
struct GreedyChunks : GreedyRows {
  static constexpr unsigned threads = 256;
  static constexpr unsigned unroll = greedy_chunk / (4 * threads);

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {greedy_candidates(n), rows, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    std::int64_t const row = this->row_of(t, t.block_y());
    if (row < 0) return;
    const float* const from = logits.row(row);
    float loaded[unroll][4];
    std::uint32_t const first = t.block_x() * greedy_chunk + 4 * t.thread();
    HYBRIDSTATE_UNROLL
    for (unsigned u = 0; u < unroll; ++u)
      load_four<float, Vectors>(t, from, first + u * 4 * threads, n, loaded[u]);
    Candidate best{t.template load<float>(from), 0};
    HYBRIDSTATE_UNROLL
    for (unsigned u = 0; u < unroll; ++u)
      for (unsigned i = 0; i < 4; ++i) {
        std::uint32_t const id = first + u * 4 * threads + i;
        if (id < n && loaded[u][i] > best.logit)
          best = {loaded[u][i], static_cast<std::int32_t>(id)};
      }

    struct Shared {
      Candidate of[threads / warp_lanes];
    };
    best = detail::best_of_cta<threads>(t, t.template shared<Shared>().of, best);
    if (t.thread() != 0) return;
    Candidate* const to =
        candidates + std::int64_t{t.block_y()} * greedy_candidates(n) + t.block_x();
    t.store(&to->logit, best.logit);
    t.store(&to->id, best.id);
  }
};

/// The second: a warp takes the best candidate of each row.
struct GreedyChoice : GreedyRows {
  static constexpr unsigned threads = warp_lanes;

  HYBRIDSTATE_HD constexpr Grid grid() const noexcept { return {rows, 1, 1}; }

  template <cta_thread T>
  HYBRIDSTATE_HD void operator()(T& t) const {
    Candidate best{0, -1};
    if (row_of(t, t.block_x()) >= 0) {
      std::uint32_t const count = greedy_candidates(n);
      const Candidate* const from = candidates + std::int64_t{t.block_x()} * count;
      auto const at = [&](std::uint32_t i) {
        return Candidate{t.template load<float>(&from[i].logit),
                         t.template load<std::int32_t>(&from[i].id)};
      };
      best = at(0);
      for (std::uint32_t i = t.thread(); i < count; i += threads)
        best = detail::better(best, at(i));
      best = detail::best_of_warp(t, best);
    }
    if (t.thread() == 0) t.store(ids + t.block_x(), best.id);
  }
};

/// Two kernels. False: no logits, 2^31 of them or more, or more than 65535 rows.
template <class Run>
bool with_kernel(const GreedyRows& job, Run&& run) {
  if (job.n == 0 || job.n > detail::most_grid_x || job.rows > detail::most_grid_y) return false;
  if (job.n % 4 == 0 && detail::row_vectors(job.logits))
    run(GreedyChunks<true>{job});
  else
    run(GreedyChunks<false>{job});
  run(GreedyChoice{job});
  return true;
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
