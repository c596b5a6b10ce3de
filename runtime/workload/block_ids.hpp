// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "workload/request.hpp"

namespace hybridstate::runtime {

/// Trusted 64-bit ids of the full blocks of a workload's prompts: two blocks have the same id if
/// and only if they hold the same tokens, as far as the workload tells (equal positions of equal
/// streams, or equal token ids). Nothing rests on hashes. Salts play no part.
///
/// A block inside one stretch of a stream packs (stream, offset) into its id; a block that spans
/// several stretches, or holds token ids, is numbered in a table while the ids are built.
class BlockIds {
 public:
  /// Throws WorkloadError when the blocks are too many to hold (over 2^30), a prompt's content does
  /// not add up to its length, or a limit of the packing (2^30 requests or streams) is exceeded.
  BlockIds(const Workload& workload, Tokens block_tokens);

  Tokens block_tokens() const noexcept { return block_tokens_; }
  std::size_t requests() const noexcept { return first_.size() - 1; }

  /// One id for each full block of the request's prompt.
  std::span<const std::uint64_t> prompt_blocks(std::size_t request) const noexcept {
    return {ids_.get() + first_[request], first_[request + 1] - first_[request]};
  }

  /// The id of a block that holds a generated token; `block_index` counts the request's blocks from
  /// its first prompt block. Equal to no other block of the workload, and the same at every call.
  std::uint64_t generated_block(std::size_t request, std::uint32_t block_index) const noexcept {
    return generated_tag | (std::uint64_t{request} << 32) | block_index;
  }

 private:
  // The two upper bits tell the kinds of ids apart: 00 packed, 01 numbered, 1x generated.
  static constexpr std::uint64_t numbered_tag = 1ULL << 62;
  static constexpr std::uint64_t generated_tag = 1ULL << 63;

  Tokens block_tokens_ = 0;
  std::vector<std::size_t> first_;  ///< position in ids_ of each request's first block, and the end
  std::unique_ptr<std::uint64_t[]> ids_;
};

/// Fills `tokens` with the prompt of a request: its token ids if it has them (modulo the vocabulary
/// size), else ids that depend only on stream and position, so that equal content gets equal ids.
/// Unequal content may collide, as chance would have it in so small a vocabulary.
void prompt_tokens(const Request& request, std::uint32_t vocab, std::vector<TokenId>& tokens);

}  // namespace hybridstate::runtime
