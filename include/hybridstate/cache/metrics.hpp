// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <hybridstate/cache/types.hpp>
#include <hybridstate/core/types.hpp>
#include <memory>

HYBRIDSTATE_NAMESPACE_BEGIN

/// Counters as they stood when a step began.
struct MetricsSnapshot {
  Step step = 0;
  CacheCounters counters;
};

/// One writer, any number of readers: a sequence lock over relaxed atomic words, so that a reader
/// sees one consistent snapshot and never delays the writer.
class MetricsBoard {
 public:
  MetricsBoard() : words_(std::make_unique<Words>()) {}

  void store(Step step, const CacheCounters& counters) noexcept {
    MetricsSnapshot const now{step, counters};
    std::uint64_t plain[count];
    std::memcpy(plain, &now, sizeof now);
    std::uint64_t const turn = words_->turn.load(std::memory_order_relaxed);
    // A reader that sees one of the words below (release, acquire) also sees the odd turn.
    words_->turn.store(turn + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < count; ++i)
      words_->word[i].store(plain[i], std::memory_order_release);
    words_->turn.store(turn + 2, std::memory_order_release);
  }

  MetricsSnapshot load() const noexcept {
    std::uint64_t plain[count];
    for (;;) {
      std::uint64_t const before = words_->turn.load(std::memory_order_acquire);
      if ((before & 1U) != 0) continue;
      for (std::size_t i = 0; i < count; ++i)
        plain[i] = words_->word[i].load(std::memory_order_acquire);
      if (words_->turn.load(std::memory_order_relaxed) == before) break;
    }
    MetricsSnapshot snapshot;
    std::memcpy(static_cast<void*>(&snapshot), plain, sizeof snapshot);
    return snapshot;
  }

 private:
  static_assert(sizeof(MetricsSnapshot) % sizeof(std::uint64_t) == 0);
  static constexpr std::size_t count = sizeof(MetricsSnapshot) / sizeof(std::uint64_t);
  struct Words {
    std::atomic<std::uint64_t> turn{0};
    std::atomic<std::uint64_t> word[count] = {};
  };
  std::unique_ptr<Words> words_;
};

HYBRIDSTATE_NAMESPACE_END
