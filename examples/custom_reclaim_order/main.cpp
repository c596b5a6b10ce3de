// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// A reclaim order of one's own: what only one requester ever asked for goes first. A system prompt
// that many share then survives a stream of one-off prompts, which pushes it out of the paper's
// first-released, first-reclaimed list.
#include <cstdio>
#include <hybridstate/hybridstate.hpp>
#include <vector>

using namespace hybridstate;

/// Takes everything from the paper's order but the choice of victims.
struct OneOffFirst : PaperOrder {
  template <class View>
  void make_keyless(View& view, int pool, Units k) noexcept {
    while (view.pool(pool).keyless() < k) view.reclaim_owner(pool, victim(view, pool));
  }

  ListEnd idle_carrier_end(bool) const noexcept { return ListEnd::back; }

 private:
  template <class View>
  static UnitIndex victim(const View& view, int pool) noexcept {
    UnitPool const& units = view.pool(pool);
    UnitIndex first_cached;
    for (UnitIndex u = units.front(); u; u = units.next(u)) {
      if (units.owner(u) == UnitOwner::none) continue;
      if (!first_cached) first_cached = u;
      ObjectKind kind = ObjectKind::none;
      if (units.owner(u) == UnitOwner::attention) kind = ObjectKind::attention;
      if (units.owner(u) == UnitOwner::state) kind = ObjectKind::checkpoint;
      if (kind == ObjectKind::none) continue;  // a slab page goes when its states are gone
      NodeIndex const node = view.node_of({kind, units.owner_handle(u)});
      if (view.node(node).distinct < 2) return u;
    }
    return first_cached;
  }
};

namespace {

/// Serves a prompt and says where it could start.
template <class Cache>
Tokens serve(Cache& cache, const std::vector<TokenId>& tokens, std::uint64_t requester) {
  cache.begin_step();
  Prompt const prompt = Prompt::of_tokens(tokens);
  cache.enter(prompt, requester);
  SequenceHandle const seq = cache.admit(prompt, {requester}).sequence;
  Tokens const start = cache.position(seq);
  auto const rest = std::span(tokens).subspan(start);
  if (!cache.reserve(seq, static_cast<Tokens>(rest.size()))) return 0;
  cache.commit(seq, Committed::of_tokens(rest));
  cache.release(seq);
  return start;
}

/// Tokens reused by the last of three requests that share a system prompt, after many one-off ones.
template <class Order>
Tokens reused_after_a_flood(Order order) {
  StateLayout const layout = make_layout(find_preset("falcon-h1-7b")->geometry);
  JointCache cache(ConvSlabPacked(layout, 60), {}, order);
  auto const prompt = [](TokenId head, TokenId tail) {
    std::vector<TokenId> tokens(1600, head);
    tokens.back() = tail;
    return tokens;
  };
  serve(cache, prompt(1, 1), 1);
  serve(cache, prompt(1, 2), 2);
  for (TokenId other = 100; other < 120; ++other) serve(cache, prompt(other, 0), other);
  return serve(cache, prompt(1, 3), 3);
}

}  // namespace

int main() {
  Tokens const paper = reused_after_a_flood(PaperOrder{});
  Tokens const own = reused_after_a_flood(OneOffFirst{});
  std::printf("tokens reused: %u in the paper's order, %u when one-off prompts go first\n", paper,
              own);
  return own == 1536 && paper < own ? 0 : 1;
}
