// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <hybridstate/core/types.hpp>
#include <hybridstate/pool/unit_pool.hpp>
#include <span>

HYBRIDSTATE_NAMESPACE_BEGIN

/// What a gate sees of the head of the line. It is asked only while other sequences run: with none,
/// a request that fits is admitted.
struct AdmissionView {
  Tokens tokens = 0;          ///< N: prompt plus tokens generated so far
  Tokens joint = 0;           ///< J
  std::uint32_t running = 0;  ///< sequences admitted and not released
  PoolUnits need;       ///< attention, states to keep, and cached units that J would reference
  PoolUnits available;  ///< keyless and cached units
  const UnitPool* pools[max_pools] = {};  ///< the lists themselves, victims first
  std::uint64_t request = 0;              ///< the requester
  std::uint64_t freed = 0;                ///< changes when units become available
  PoolUnits adopting;  ///< of `need`, what the adopted checkpoint and its path hold already
  PoolUnits crossing;  ///< what passing one checkpoint boundary takes, without slots
  PoolUnits guarded;   ///< under cached states that the reclaim order protects
};

/// A cached state that requests have asked for, and what its loss would cost.
struct Offer {
  double units[max_pools] = {0, 0};  ///< it frees, with the attention that only it needs
  double blocks = 0;                 ///< the same bytes in attention blocks
  Tokens replay = 0;                 ///< tokens back to the nearest state above it
  std::uint32_t exits = 0;           ///< PrefixNode::exits, first_seen_ns and last_exit_ns
  std::int64_t first_seen_ns = 0;
  std::int64_t last_exit_ns = 0;
};

/// What an admission could displace, as an order that scores states tells a gate that prices.
struct Market {
  double worthless[max_pools] = {0, 0};  ///< units: keyless, and attention that no state needs
  double unasked[max_pools] = {0, 0};  ///< units under states whose loss costs nothing: duplicates,
                                       ///< and those at which fewer than two requests ended
  std::span<Offer> offers;             ///< the others; the gate may sort them
};

/// Decides whether a request that could be admitted is admitted now: -1 admits, else the pool that
/// is too short.
template <class G>
concept admission_gate = requires(const G& gate, const AdmissionView& view) {
  { gate.refusing_pool(view) } noexcept -> std::same_as<int>;
};

/// need + H <= available in every pool (paper section 4.4). H = floor(f * B) is the caller's: B is
/// the planner's unit count. To it comes, up to `adaptive` units, what the cached states hold that
/// the order protects, so that admissions leave those alone.
struct FixedHeadroom {
  PoolUnits headroom{};
  PoolUnits adaptive{};

  int refusing_pool(const AdmissionView& view) const noexcept {
    for (int pool = 0; pool < max_pools; ++pool)
      if (view.pools[pool] != nullptr && std::uint64_t{view.need[pool]} + headroom[pool] +
                                                 std::min(adaptive[pool], view.guarded[pool]) >
                                             view.available[pool])
        return pool;
    return -1;
  }
};

/// A gate that weighs an admission against what it would displace. It is asked about the market
/// unless it still stands by its last refusal.
template <class G>
concept pricing_gate =
    admission_gate<G> && requires(const G& gate, const AdmissionView& view, Market& market) {
      { gate.stands_by_refusal(view) } noexcept -> std::same_as<bool>;
      { gate.refusing_pool(view, market) } noexcept -> std::same_as<int>;
    };

/// What the last decisions of a PricedGate were about.
struct PriceRecord {
  std::uint64_t weighed = 0;       ///< admissions that had to displace a state
  std::uint64_t blocked = 0;       ///< of them, those refused because the loss exceeded the price
  std::uint64_t unaffordable = 0;  ///< refused for want of a crossing's reserve
  double price = 0;                ///< sums over `weighed`
  double loss = 0;
};

/// The priced gate of the preset `best`: one more running request shares the overhead of every
/// step, and that saving is the most that displacing cached states may cost. No fraction of the
/// memory and no constant of the workload.
///
/// Memory without worth (keyless units, attention that no state needs) is taken freely down to a
/// reserve of a few boundary crossings. What lies below is bought: cached states by rising loss per
/// byte until the reserve is whole, admitted when the sum of their losses is at most the price.
class PricedGate {
 public:
  /// `step_overhead` and `token_seconds`: the step law's intercept and slope per prefill token.
  PricedGate(double step_overhead, double token_seconds) noexcept
      : step_overhead_(step_overhead), token_seconds_(token_seconds) {}

  static constexpr Units reserve_crossings = 4;

  /// The time of the decisions that follow.
  void set_time(std::int64_t now_ns) noexcept { now_ns_ = now_ns; }
  /// A step took that long.
  void observe_step(std::int64_t ns) noexcept {
    step_seconds_ += (static_cast<double>(ns) * 1e-9 - step_seconds_) / 32;
  }

  /// Seconds saved per second by one more running request beside `running` others.
  double price(std::uint32_t running) const noexcept {
    return step_overhead_ / (running * step_seconds_);
  }
  /// Seconds of replay per second that the loss of a state would cost: the rate of the requests
  /// that ended at its node, none before the second, times the tokens they would compute again.
  double loss(const Offer& o) const noexcept {
    if (o.exits < 2) return 0;
    auto const seconds = [this](std::int64_t since) {
      return static_cast<double>(std::max<std::int64_t>(now_ns_ - since, 1'000'000)) * 1e-9;
    };
    double const rate =
        std::min((o.exits - 1) / seconds(o.first_seen_ns), 1 / seconds(o.last_exit_ns));
    return rate * o.replay * token_seconds_;
  }

  /// Between two refusals of one request nothing improves until a unit is freed or somebody leaves.
  bool stands_by_refusal(const AdmissionView& view) const noexcept {
    return refused_.pool >= 0 && refused_.request == view.request &&
           refused_.running == view.running && refused_.freed == view.freed;
  }
  int refusing_pool(const AdmissionView& view) const noexcept {
    if (stands_by_refusal(view)) return refused_.pool;
    Market market;
    for (int pool = 0; pool < max_pools; ++pool)
      if (view.pools[pool] != nullptr) market.worthless[pool] = view.pools[pool]->keyless();
    return refusing_pool(view, market);
  }
  int refusing_pool(const AdmissionView& view, Market& market) const noexcept {
    int const pool = decide(view, market);
    refused_ = {view.request, view.freed, view.running, pool};
    return pool;
  }

  const PriceRecord& record() const noexcept { return record_; }

 private:
  int decide(const AdmissionView& view, Market& market) const noexcept {
    double have[max_pools], want[max_pools];
    for (int pool = 0; pool < max_pools; ++pool) {
      have[pool] = market.worthless[pool];
      want[pool] = view.need[pool] - view.adopting[pool] + reserve_crossings * view.crossing[pool];
      if (view.need[pool] + view.crossing[pool] > view.available[pool]) {
        ++record_.unaffordable;
        return pool;
      }
    }
    auto const short_of = [&] {
      int pool = 0;
      while (pool < max_pools && have[pool] >= want[pool]) ++pool;
      return pool < max_pools ? pool : -1;
    };
    int const pool = short_of();
    if (pool < 0) return -1;
    for (int p = 0; p < max_pools; ++p) have[p] += market.unasked[p];
    std::sort(market.offers.begin(), market.offers.end(), [this](const Offer& a, const Offer& b) {
      return loss(a) * b.blocks < loss(b) * a.blocks;
    });
    double lost = 0;
    for (auto o = market.offers.begin(); o != market.offers.end() && short_of() >= 0; ++o) {
      lost += loss(*o);
      for (int p = 0; p < max_pools; ++p) have[p] += o->units[p];
    }
    double const most = price(view.running);
    ++record_.weighed;
    record_.price += most;
    record_.loss += lost;
    if (lost <= most) return -1;
    ++record_.blocked;
    return pool;
  }

  double step_overhead_, token_seconds_;
  double step_seconds_ = 0.05;
  std::int64_t now_ns_ = 0;
  struct Refused {
    std::uint64_t request = 0, freed = 0;
    std::uint32_t running = 0;
    int pool = -1;
  };
  mutable Refused refused_;  ///< a memo of the last decision
  mutable PriceRecord record_;
};

static_assert(admission_gate<FixedHeadroom>);
static_assert(pricing_gate<PricedGate>);

HYBRIDSTATE_NAMESPACE_END
