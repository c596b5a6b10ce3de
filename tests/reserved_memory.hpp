// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstddef>

/// Zeros that take memory only where they are touched: room for a pool of any size.
class ReservedMemory {
 public:
  explicit ReservedMemory(std::size_t bytes)
      : data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        bytes_(bytes) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~ReservedMemory() { munmap(data_, bytes_); }
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};
