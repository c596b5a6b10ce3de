// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <thread>

namespace hybridstate::runtime {

/// Integer nanoseconds since the start of the run.
template <class C>
concept scheduler_clock = requires(C& clock, const C& seen, std::int64_t ns) {
  { seen.now() } -> std::same_as<std::int64_t>;
  { clock.advance(ns) };     // a step took that long (virtual clocks)
  { clock.wait_until(ns) };  // nothing to do before then
};

/// Moves only when told to: equal inputs give equal times on every machine.
class VirtualClock {
 public:
  std::int64_t now() const noexcept { return now_; }
  void advance(std::int64_t ns) noexcept { now_ += ns; }
  void wait_until(std::int64_t ns) noexcept { now_ = std::max(now_, ns); }

 private:
  std::int64_t now_ = 0;
};

/// The machine's monotonic clock; steps advance it by taking their time.
class RealClock {
 public:
  std::int64_t now() const noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start_)
        .count();
  }
  void advance(std::int64_t) noexcept {}
  void wait_until(std::int64_t ns) const {
    std::this_thread::sleep_until(start_ + std::chrono::nanoseconds(ns));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

static_assert(scheduler_clock<VirtualClock> && scheduler_clock<RealClock>);

}  // namespace hybridstate::runtime
