// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
//
// What the clairvoyant order is told: each request's one boundary, and who comes next for it.
#include "scheduler/future_uses.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <hybridstate/index/prefix_index.hpp>
#include <map>
#include <random>
#include <vector>

using namespace hybridstate;
using namespace hybridstate::runtime;

namespace {

constexpr Tokens block = 4;

Request of_tokens(std::vector<TokenId> tokens, std::uint64_t salt = 0) {
  Request r;
  r.prompt_tokens = static_cast<Tokens>(tokens.size());
  r.output_tokens = 1;
  r.salt = salt;
  r.tokens = std::move(tokens);
  return r;
}
Workload of(std::vector<Request> requests) {
  Workload w;
  w.requests = std::move(requests);
  return w;
}
/// Of the request's first so many blocks.
std::uint64_t path(const Workload& w, const BlockIds& ids, std::size_t request,
                   std::size_t blocks) {
  std::uint64_t at = PrefixIndex::path_of_root(w.requests[request].salt, {});
  for (std::size_t i = 0; i < blocks; ++i)
    at = PrefixIndex::path_to(at, ids.prompt_blocks(request)[i]);
  return at;
}

}  // namespace

TEST_CASE("the next user by hand") {
  std::vector<TokenId> const ten = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9};
  std::vector<TokenId> const eight(ten.begin(), ten.begin() + 8);
  std::vector<TokenId> branch = ten;
  branch[5] = 0;
  Workload const w =
      of({of_tokens(ten), of_tokens(eight), of_tokens(ten), of_tokens(branch), of_tokens(ten, 7)});
  BlockIds const ids(w, block);
  FutureUses const uses(w, ids, block);
  // Request 1 repeats two blocks, of which the last token is computed again; 2 both; 3 one.
  std::uint64_t const one = path(w, ids, 0, 1);
  std::uint64_t const two = path(w, ids, 0, 2);
  CHECK(uses.next(one, 0) == 1);
  CHECK(uses.next(one, 1) == 1);
  CHECK(uses.next(one, 2) == 3);
  CHECK(uses.next(one, 4) == NextUses::never);
  CHECK(uses.next(two, 0) == 2);
  CHECK(uses.next(two, 3) == NextUses::never);
  CHECK(uses.next(path(w, ids, 3, 2), 0) == NextUses::never);
  CHECK(uses.next(path(w, ids, 4, 1), 0) == NextUses::never);  // of another salt
  FutureUses const coarse(w, ids, 2 * block);
  CHECK(coarse.next(one, 0) == NextUses::never);  // no boundary there
  CHECK(coarse.next(two, 0) == 2);
}

TEST_CASE("random prompts: as comparing every request with all before it tells") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 bits(static_cast<std::uint32_t>(seed));
    auto const below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(bits()) % n; };
    std::vector<Request> requests;
    for (int i = 0; i < 60; ++i) {
      std::vector<TokenId> tokens(1 + below(30));
      for (std::size_t t = 0; t < tokens.size(); ++t)
        tokens[t] = t % 3 == 0 && below(4) == 0 ? below(3) : 5;
      requests.push_back(of_tokens(std::move(tokens), below(2)));
    }
    Workload const w = of(std::move(requests));
    BlockIds const ids(w, block);
    Tokens const stride = 1 + below(3);
    FutureUses const uses(w, ids, stride * block);
    std::map<std::uint64_t, std::vector<std::uint64_t>> expected;
    for (std::size_t r = 0; r < w.requests.size(); ++r) {
      std::size_t shared = 0;
      for (std::size_t before = 0; before < r; ++before) {
        if (w.requests[before].salt != w.requests[r].salt) continue;
        auto const& a = w.requests[before].tokens;
        auto const& b = w.requests[r].tokens;
        auto const same = static_cast<std::size_t>(
            std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
        shared = std::max(shared, std::min(same, b.size() - 1) / block);
      }
      shared = shared / stride * stride;
      if (shared > 0) expected[path(w, ids, r, shared)].push_back(r);
    }
    for (std::size_t r = 0; r < w.requests.size(); ++r)
      for (std::size_t blocks = 1; blocks <= ids.prompt_blocks(r).size(); ++blocks) {
        std::uint64_t const at = path(w, ids, r, blocks);
        std::uint64_t const from = below(61);
        auto const& users = expected[at];
        auto const user = std::lower_bound(users.begin(), users.end(), from);
        CHECK(uses.next(at, from) == (user == users.end() ? NextUses::never : *user));
      }
  }
}
