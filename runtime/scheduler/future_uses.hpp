// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/policy/greedy_dual.hpp>
#include <unordered_map>
#include <vector>

#include "workload/block_ids.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime {

/// Which request will next start from a boundary: a simulation has all of its requests before it
/// starts. A request is taken to use one boundary, the deepest of the checkpoint grid up to which
/// the prompt of an earlier request agrees with its own: where it would start if nothing were ever
/// lost. What requests generate is not followed, nor what becomes useful because that boundary is
/// not there.
class FutureUses : public NextUses {
 public:
  FutureUses(const Workload& workload, const BlockIds& ids, Tokens grid);
  std::uint64_t next(std::uint64_t path, std::uint64_t from) const noexcept override;

 private:
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> users_;  ///< by path, ascending
};

}  // namespace hybridstate::runtime
