// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace hybridstate::runtime::cpu {

/// Threads that share the items of one loop at a time: each begins with a range of its own and then
/// helps with what is left of the others'. Loops over the same things therefore find them in the
/// caches of the same core, and cores that lie far apart do not fight for one counter. Which thread
/// runs an item changes nothing: items write disjoint results and no reduction spans two of them.
class Workers {
 public:
  /// `threads` counts the calling one; 0 asks for as many as the machine has.
  explicit Workers(unsigned threads = 0);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned threads() const noexcept { return static_cast<unsigned>(helpers_.size()) + 1; }

  /// Calls item(i) for every i < count and returns when all are done. The calls must not throw.
  template <class Item>
  void run(std::size_t count, Item&& item) {
    if (count == 0) return;
    if (count == 1 || helpers_.empty()) {
      for (std::size_t i = 0; i < count; ++i) item(i);
      return;
    }
    using Plain = std::remove_reference_t<Item>;
    share(count, const_cast<void*>(static_cast<const void*>(&item)),
          [](void* context, std::size_t i) { (*static_cast<Plain*>(context))(i); });
  }

 private:
  using Call = void (*)(void* context, std::size_t item);

  void share(std::size_t count, void* context, Call call);
  void help(std::size_t self);
  void take_items(std::size_t self);

  /// What a thread begins with, on a cache line of its own.
  struct alignas(64) Range {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  std::vector<Range> ranges_;  ///< the calling thread's first
  std::vector<std::thread> helpers_;
  void* context_ = nullptr;
  Call call_ = nullptr;
  std::atomic<std::uint32_t> loop_{0};  ///< the number of loops begun
  std::atomic<std::uint32_t> busy_{0};  ///< helpers that have not left the current loop
  std::atomic<bool> stop_{false};
};

}  // namespace hybridstate::runtime::cpu
