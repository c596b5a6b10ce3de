// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/contract.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A doubly linked list over the indices [0, capacity), each at most once; links live in one array
/// that is allocated at construction. An element that is in no list links to itself ("unlinked").
class IndexLinks {
 public:
  static constexpr std::int32_t end = -1;
  static constexpr std::int32_t unlinked = -2;

  IndexLinks() = default;
  explicit IndexLinks(std::uint32_t capacity)
      : links_(FixedArray<Link>(capacity)), capacity_(capacity) {}

  std::uint32_t capacity() const noexcept { return capacity_; }
  bool linked(std::int32_t i) const noexcept { return links_[i].next != unlinked; }
  std::int32_t next(std::int32_t i) const noexcept { return links_[i].next; }
  std::int32_t previous(std::int32_t i) const noexcept { return links_[i].previous; }

  /// Head, tail and length of one list; several lists may share one IndexLinks as long as an index
  /// is in one of them at a time.
  struct List {
    std::int32_t head = end;
    std::int32_t tail = end;
    std::uint32_t size = 0;
  };

  void push_front(List& list, std::int32_t i) noexcept { insert_after(list, end, i); }
  HYBRIDSTATE_INLINE void push_back(List& list, std::int32_t i) noexcept {
    HYBRIDSTATE_EXPECT(!linked(i), "an index enters a list once", i, links_[i].next);
    std::int32_t const tail = list.tail;
    links_[i] = {end, tail};
    (tail == end ? list.head : links_[tail].next) = i;
    list.tail = i;
    ++list.size;
  }

  /// Inserts i after `where`; `where == end` inserts at the front.
  void insert_after(List& list, std::int32_t where, std::int32_t i) noexcept {
    HYBRIDSTATE_EXPECT(!linked(i), "an index enters a list once", i, links_[i].next);
    std::int32_t const next = where == end ? list.head : links_[where].next;
    links_[i] = {next, where};
    (where == end ? list.head : links_[where].next) = i;
    (next == end ? list.tail : links_[next].previous) = i;
    ++list.size;
  }

  HYBRIDSTATE_INLINE void unlink(List& list, std::int32_t i) noexcept {
    HYBRIDSTATE_EXPECT(linked(i), "only a linked index can be unlinked", i, list.size);
    // Two loads, not one of a whole Link: when neighbours leave one after the other, one half of it
    // was just written, and a load wider than the store before it would stall.
    std::int32_t const next = links_[i].next;
    std::int32_t const previous = links_[i].previous;
    (previous == end ? list.head : links_[previous].next) = next;
    (next == end ? list.tail : links_[next].previous) = previous;
    links_[i].next = unlinked;
    --list.size;
  }

 private:
  struct Link {
    std::int32_t next = unlinked;
    std::int32_t previous = unlinked;
  };
  FixedArray<Link> links_;
  std::uint32_t capacity_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
