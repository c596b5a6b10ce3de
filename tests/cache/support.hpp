// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <hybridstate/hybridstate.hpp>
#include <span>
#include <string>
#include <vector>

namespace cache_test {

namespace hs = hybridstate;
using Ids = std::vector<hs::TokenId>;

/// A state takes 3 SSM members and one of 4 slots, or a convolution page; 64 B a token.
inline hs::ModelGeometry falcon_like() {
  hs::ModelGeometry m;
  m.attention_layers = m.recurrent_layers = 2;
  m.kv_heads = 1;
  m.head_dim = 16;
  m.ssm_heads = 6;
  m.ssm_head_dim = 4;
  m.ssm_state = 16;
  m.d_conv = 2;
  return m;
}
/// One attention layer, nine recurrent ones: nine groups of one member and one of 16 slots.
inline hs::ModelGeometry granite_like() {
  hs::ModelGeometry m = falcon_like();
  m.attention_layers = 1;
  m.recurrent_layers = 9;
  m.ssm_heads = 2;
  return m;
}

inline hs::StateLayout small_layout(const hs::ModelGeometry& m = falcon_like(),
                                    hs::Tokens block = 4, hs::Tokens grid = 4) {
  hs::LayoutOptions o;
  o.block_tokens = block;
  o.checkpoint_tokens = grid;
  o.native_block_tokens = block;
  o.native_checkpoint_tokens = grid;
  return hs::make_layout(m, o);
}

/// Tokens `from`, `from` + 1, …
inline Ids ids(hs::Tokens count, hs::TokenId from = 0) {
  Ids t(count);
  for (hs::Tokens i = 0; i < count; ++i) t[i] = from + i;
  return t;
}
inline hs::Prompt prompt(const Ids& t, std::uint64_t salt = 0) {
  return hs::Prompt::of_tokens(t, salt);
}

/// Keeps every event.
struct Recorder {
  static constexpr bool enabled = true;
  std::vector<hs::Event>* log = nullptr;
  void on_event(const hs::Event& e) noexcept {
    if (log != nullptr) log->push_back(e);
  }
};

/// Computes tokens [position, position + n) of `t`; true when the reserve was granted.
template <class Cache>
bool advance(Cache& cache, hs::SequenceHandle s, const Ids& t, hs::Tokens n) {
  hs::Tokens const at = cache.position(s);
  if (!cache.reserve(s, n)) return false;
  cache.commit(s, hs::Committed::of_tokens(std::span(t).subspan(at, n)));
  return true;
}

/// Admits a prompt and computes it in one chunk (or in chunks of `chunk`).
template <class Cache>
hs::SequenceHandle start(Cache& cache, const Ids& t, std::uint64_t salt = 0,
                         hs::Tokens chunk = 0xffffffffU, std::uint64_t requester = 1) {
  cache.begin_step();
  hs::Admission const a = cache.admit(prompt(t, salt), {requester, 0});
  REQUIRE(a);
  while (cache.position(a.sequence) < t.size()) {
    hs::Tokens const left = static_cast<hs::Tokens>(t.size()) - cache.position(a.sequence);
    REQUIRE(advance(cache, a.sequence, t, std::min(chunk, left)));
    cache.begin_step();
  }
  return a.sequence;
}
/// The same, released at the end: its blocks and checkpoints are cached.
template <class Cache>
void serve(Cache& cache, const Ids& t, std::uint64_t salt = 0, hs::Tokens chunk = 0xffffffffU,
           std::uint64_t requester = 1) {
  cache.release(start(cache, t, salt, chunk, requester));
  cache.begin_step();
  REQUIRE(cache.check_invariants() == "");
}

}  // namespace cache_test
