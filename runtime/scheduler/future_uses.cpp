// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "scheduler/future_uses.hpp"

#include <algorithm>
#include <hybridstate/index/prefix_index.hpp>
#include <unordered_set>

namespace hybridstate::runtime {

FutureUses::FutureUses(const Workload& workload, const BlockIds& ids, Tokens grid) {
  Units const stride = grid / ids.block_tokens();
  std::unordered_set<std::uint64_t> known;
  for (std::uint32_t r = 0; r < workload.requests.size(); ++r) {
    Request const& request = workload.requests[r];
    auto const blocks = ids.prompt_blocks(r);
    // The last token is always computed.
    std::size_t const most = (request.prompt_tokens - 1) / ids.block_tokens();
    std::uint64_t path = PrefixIndex::path_of_root(request.salt, {});
    std::uint64_t deepest = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      path = PrefixIndex::path_to(path, blocks[i]);
      if (known.insert(path).second) continue;
      if (i < most && (i + 1) % stride == 0) deepest = path;
    }
    if (deepest != 0) users_[deepest].push_back(r);
  }
}

std::uint64_t FutureUses::next(std::uint64_t path, std::uint64_t from) const noexcept {
  auto const found = users_.find(path);
  if (found == users_.end()) return never;
  auto const& users = found->second;
  auto const user = std::lower_bound(users.begin(), users.end(), from);
  return user == users.end() ? never : *user;
}

}  // namespace hybridstate::runtime
