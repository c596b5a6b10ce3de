// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// Two requests with the same prompt: the second starts at the first one's joint boundary.
#include <cstdio>
#include <hybridstate/hybridstate.hpp>
#include <vector>

using namespace hybridstate;

int main() {
  StateLayout const layout = make_layout(find_preset("falcon-h1-7b")->geometry);
  JointCache cache(ConvSlabPacked(layout, 253));  // 253 pages of 512 KiB per layer
  std::vector<TokenId> const prompt(1500, 7);
  Tokens started_at[2];
  for (Tokens& start : started_at) {
    cache.begin_step();
    SequenceHandle const seq = cache.admit(Prompt::of_tokens(prompt), {}).sequence;
    start = cache.position(seq);  // J: attention and recurrent state are valid up to here
    cache.reserve(seq, 1500 - start);
    cache.commit(seq, Committed::of_tokens(std::span(prompt).subspan(start)));
    cache.release(seq);
  }
  std::printf("first request from token %u, second from token %u\n", started_at[0], started_at[1]);
  return started_at[0] == 0 && started_at[1] == 1024 ? 0 : 1;
}
