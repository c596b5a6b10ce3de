// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <hybridstate/cache/types.hpp>
#include <span>
#include <vector>

#include "workload/block_ids.hpp"
#include "workload/request.hpp"

namespace hybridstate::runtime {

/// Where a scheduler gets what the cache must see of a request: its known tokens (prompt, then
/// generated) as a Prompt, and a computed stretch of them as Committed. Returned views live until
/// the next call.
template <class C>
concept request_content = requires(C& content, std::uint32_t request, Tokens at) {
  { content.known(request, at) } -> std::same_as<Prompt>;
  { content.computed(request, at, at) } -> std::same_as<Committed>;
};

/// Trusted block ids: nobody needs tokens to simulate.
class TrustedContent {
 public:
  TrustedContent(const Workload& workload, const BlockIds& ids) : workload_(workload), ids_(ids) {}

  /// The first `tokens` tokens of the request; past the prompt they are generated ones.
  Prompt known(std::uint32_t request, Tokens tokens) {
    return Prompt::of_blocks(tokens, blocks(request, 0, tokens / ids_.block_tokens()),
                             workload_.requests[request].salt);
  }
  /// Tokens [begin, end).
  Committed computed(std::uint32_t request, Tokens begin, Tokens end) {
    Tokens const size = ids_.block_tokens();
    return Committed::of_blocks(end - begin, blocks(request, begin / size, end / size));
  }

 private:
  std::span<const BlockKey> blocks(std::uint32_t request, std::uint32_t first, std::uint32_t last) {
    std::span<const std::uint64_t> const prompt = ids_.prompt_blocks(request);
    if (first >= last) return {};
    if (last <= prompt.size()) return prompt.subspan(first, last - first);
    scratch_.clear();
    for (std::uint32_t i = first; i < last; ++i)
      scratch_.push_back(i < prompt.size() ? prompt[i] : ids_.generated_block(request, i));
    return scratch_;
  }

  const Workload& workload_;
  const BlockIds& ids_;
  std::vector<BlockKey> scratch_;
};

static_assert(request_content<TrustedContent>);

/// Real tokens, for executors that compute with them; the executor appends what it samples.
class TokenContent {
 public:
  /// Prompts without tokens of their own get tokens drawn from their content runs.
  TokenContent(const Workload& workload, std::uint32_t vocabulary) : workload_(workload) {
    tokens_.resize(workload.requests.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      prompt_tokens(workload.requests[i], vocabulary, tokens_[i]);
      tokens_[i].reserve(tokens_[i].size() + workload.requests[i].output_tokens);
    }
  }

  Prompt known(std::uint32_t request, Tokens tokens) const {
    return Prompt::of_tokens(this->tokens(request).first(tokens), workload_.requests[request].salt);
  }
  Committed computed(std::uint32_t request, Tokens begin, Tokens end) const {
    return Committed::of_tokens(tokens(request).subspan(begin, end - begin));
  }
  std::span<const TokenId> tokens(std::uint32_t request) const { return tokens_[request]; }
  void append(std::uint32_t request, TokenId token) { tokens_[request].push_back(token); }

 private:
  const Workload& workload_;
  std::vector<std::vector<TokenId>> tokens_;
};

static_assert(request_content<TokenContent>);

}  // namespace hybridstate::runtime
