// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/core/error.hpp>
#include <hybridstate/core/types.hpp>
#include <hybridstate/pool/unit_pool.hpp>
#include <string>
#include <vector>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace detail {

/// A sentence when a pool cannot be built, else empty. `lines_per_unit` bounds the kernel-facing
/// line index, which is 32 bits wide.
inline std::string pool_problem(const char* organization, const char* pool, Units units,
                                std::uint64_t lines_per_unit) {
  std::uint64_t const most = 0x7fffffffULL / (lines_per_unit == 0 ? 1 : lines_per_unit);
  if (units == 0)
    return std::string(organization) + ": the " + pool + " pool has 0 units; give it at least 1";
  if (units > most)
    return std::string(organization) + ": the " + pool + " pool has " + std::to_string(units) +
           " units, but a 32-bit line index reaches only " + std::to_string(most);
  return {};
}

/// The units of blocks or states that take several from one pool: a row of fixed width per handle,
/// and the handle is the row's first unit. Width 1 needs no memory.
class UnitRows {
 public:
  UnitRows() = default;
  UnitRows(Units units, std::uint32_t width)
      : width_(width), rows_(width > 1 ? std::size_t{units} * width : 0) {}

  std::uint32_t width() const noexcept { return width_; }
  UnitIndex at(std::int32_t handle, std::uint32_t i) const noexcept {
    return width_ == 1 ? UnitIndex{handle} : rows_[row(handle) + i];
  }

  /// Takes a whole row or, when the pool is too short, nothing (-1).
  template <class BeforeReassign>
  std::int32_t take(UnitPool& pool, int pool_index, UnitOwner owner,
                    BeforeReassign& before_reassign) noexcept {
    if (pool.available() < width_) return -1;
    std::int32_t handle = -1;
    for (std::uint32_t i = 0; i < width_; ++i) {
      UnitIndex const u = pool.take_front();
      if (pool.owner(u) != UnitOwner::none) before_reassign(pool_index, u);
      if (i == 0) handle = u.value;
      pool.assign(u, owner, handle);
      if (width_ > 1) rows_[row(handle) + i] = u;
    }
    return handle;
  }

  void give_back(UnitPool& pool, std::int32_t handle) noexcept {
    for (std::uint32_t i = 0; i < width_; ++i) pool.release_keyless(at(handle, i));
  }

 private:
  std::size_t row(std::int32_t handle) const noexcept {
    return static_cast<std::size_t>(handle) * width_;
  }
  std::uint32_t width_ = 1;
  std::vector<UnitIndex> rows_;
};

}  // namespace detail
HYBRIDSTATE_NAMESPACE_END
