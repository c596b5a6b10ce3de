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

/// Threads that share the items of one loop at a time. Which thread runs an item changes nothing:
/// items write disjoint results and no reduction spans two of them.
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
  void help();
  void take_items();

  std::vector<std::thread> helpers_;
  void* context_ = nullptr;
  Call call_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint32_t> loop_{0};  ///< the number of loops begun
  std::atomic<std::uint32_t> busy_{0};  ///< helpers that have not left the current loop
  std::atomic<bool> stop_{false};
};

}  // namespace hybridstate::runtime::cpu
