// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/contract.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A binary min-heap over the indices [0, capacity), each at most once, with removal and re-keying
/// of any member in O(log n). Ties are broken by the smaller index, so that order is reproducible.
template <class Key>
class IndexedHeap {
 public:
  IndexedHeap() = default;
  explicit IndexedHeap(std::uint32_t capacity)
      : heap_(FixedArray<std::int32_t>(capacity)),
        place_(FixedArray<std::int32_t>(capacity)),
        key_(FixedArray<Key>(capacity)) {
    for (std::uint32_t i = 0; i < capacity; ++i) place_[i] = -1;
  }

  std::uint32_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  bool contains(std::int32_t i) const noexcept { return place_[i] >= 0; }
  std::int32_t top() const noexcept { return heap_[0]; }
  Key top_key() const noexcept { return key_[heap_[0]]; }
  Key key(std::int32_t i) const noexcept { return key_[i]; }

  void insert(std::int32_t i, Key key) noexcept {
    HYBRIDSTATE_EXPECT(!contains(i), "an index enters a heap once", i, size_);
    key_[i] = key;
    place(size_, i);
    rise(size_++);
  }

  void erase(std::int32_t i) noexcept {
    HYBRIDSTATE_EXPECT(contains(i), "only a member can leave a heap", i, size_);
    auto const hole = static_cast<std::uint32_t>(place_[i]);
    std::int32_t const last = heap_[--size_];
    place_[i] = -1;
    if (last == i) return;
    place(hole, last);
    rise(hole);
    sink(static_cast<std::uint32_t>(place_[last]));
  }

 private:
  bool before(std::int32_t a, std::int32_t b) const noexcept {
    return key_[a] < key_[b] || (!(key_[b] < key_[a]) && a < b);
  }
  void place(std::uint32_t where, std::int32_t i) noexcept {
    heap_[where] = i;
    place_[i] = static_cast<std::int32_t>(where);
  }
  void rise(std::uint32_t at) noexcept {
    std::int32_t const i = heap_[at];
    while (at > 0) {
      std::uint32_t const up = (at - 1) / 2;
      if (!before(i, heap_[up])) break;
      place(at, heap_[up]);
      at = up;
    }
    place(at, i);
  }
  void sink(std::uint32_t at) noexcept {
    std::int32_t const i = heap_[at];
    for (;;) {
      std::uint32_t child = 2 * at + 1;
      if (child >= size_) break;
      if (child + 1 < size_ && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], i)) break;
      place(at, heap_[child]);
      at = child;
    }
    place(at, i);
  }

  FixedArray<std::int32_t> heap_;
  FixedArray<std::int32_t> place_;
  FixedArray<Key> key_;
  std::uint32_t size_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
