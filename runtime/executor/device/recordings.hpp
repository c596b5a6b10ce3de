// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace hybridstate::runtime::device {

/// Everything that the arguments of recorded kernels depend on.
using RecordingKey = std::array<std::uint64_t, 3>;

struct RecordingCounts {
  std::uint64_t recorded = 0;
  std::uint64_t replayed = 0;
};

/// Recordings by key, few: a new one takes the place of the one that was used longest ago.
template <class Recording>
class Recordings {
 public:
  static constexpr std::size_t most = 64;

  /// Null: there is none. Valid until the next add().
  Recording* find(const RecordingKey& key) {
    for (Entry& e : entries_)
      if (e.key == key) {
        e.used = ++uses_;
        return &e.recording;
      }
    return nullptr;
  }
  void add(const RecordingKey& key, Recording recording) {
    if (entries_.size() == most)
      entries_.erase(
          std::min_element(entries_.begin(), entries_.end(),
                           [](const Entry& a, const Entry& b) { return a.used < b.used; }));
    entries_.push_back({key, ++uses_, std::move(recording)});
  }

 private:
  struct Entry {
    RecordingKey key;
    std::uint64_t used;
    Recording recording;
  };

  std::vector<Entry> entries_;
  std::uint64_t uses_ = 0;
};

}  // namespace hybridstate::runtime::device
