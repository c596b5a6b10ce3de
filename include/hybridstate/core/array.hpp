// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <hybridstate/core/config.hpp>
#include <memory>

HYBRIDSTATE_NAMESPACE_BEGIN

namespace detail {

/// Asks for the cache line of `p`, which may be any address. Always inlined: as a function without
/// effects a compiler may drop the call.
HYBRIDSTATE_INLINE void prefetch([[maybe_unused]] const void* p) noexcept {
#if defined(__GNUC__)
  __builtin_prefetch(p);
#endif
}

}  // namespace detail

/// A table whose size is fixed at construction, indexed by any integer type: table indices are
/// 32-bit and signed here, because a negative one means absent.
template <class T>
class FixedArray {
 public:
  FixedArray() = default;
  template <class Size>
  explicit FixedArray(Size size) : items_(std::make_unique<T[]>(static_cast<std::size_t>(size))) {}

  template <class Integer>
  T& operator[](Integer i) noexcept {
    return items_.get()[static_cast<std::size_t>(i)];
  }
  template <class Integer>
  const T& operator[](Integer i) const noexcept {
    return items_.get()[static_cast<std::size_t>(i)];
  }
  T* data() noexcept { return items_.get(); }
  const T* data() const noexcept { return items_.get(); }

 private:
  std::unique_ptr<T[]> items_;
};

HYBRIDSTATE_NAMESPACE_END
