// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <hybridstate/index/prefix_index.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hs = hybridstate;

namespace {

constexpr hs::Tokens block = 4;
using Ids = std::vector<hs::TokenId>;

Ids piece(hs::TokenId variant) { return {variant, variant + 1, variant * 7, 5}; }

struct Random {
  std::uint64_t state;
  std::uint32_t operator()(std::uint32_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state >> 33) % n);
  }
};

/// A tree of explicit tokens beside the index, with the same nodes.
struct Naive {
  Naive* parent = nullptr;
  std::map<Ids, std::unique_ptr<Naive>> children;
  Ids tokens;
  hs::NodeIndex node;
  std::uint32_t kids = 0;
  std::uint64_t touched = 0;
  bool busy = false;
};

}  // namespace

TEST_CASE("a key only finds a candidate: tokens, parent, salt and extra bytes confirm it") {
  hs::PrefixIndex index(50, block, hs::BlockIdentity::tokens, 8);
  CHECK(index.capacity() == 50);
  CHECK(index.size() == 0);
  hs::NodeIndex const root = index.root(1, {}, 10);
  REQUIRE(root);
  CHECK(root.value == 0);  // node 0 is a node
  CHECK(index.root(1, {}, 11) == root);
  CHECK(index[root].first_seen_ns == 10);
  CHECK_FALSE(index.find_root(2, {}));
  std::byte const bytes[9] = {};
  CHECK_FALSE(index.find_root(1, std::span(bytes).first(1)));
  hs::NodeIndex const extra = index.root(1, std::span(bytes).first(8), 0);
  CHECK(extra != root);
  CHECK(index.find_root(1, std::span(bytes).first(8)) == extra);
  CHECK_FALSE(index.root(1, bytes, 0));  // too many
  Ids const a = piece(1), b = piece(2);
  hs::NodeIndex const one = index.add_child(root, {77, a.data()}, 0);
  CHECK_FALSE(index.find_child(root, {77, b.data()}));  // the key collides
  hs::NodeIndex const two = index.add_child(root, {77, b.data()}, 0);
  CHECK(index.find_child(root, {77, a.data()}) == one);
  CHECK(index.find_child(root, {77, b.data()}) == two);
  CHECK_FALSE(index.find_child(extra, {77, a.data()}));
  CHECK_FALSE(index.find_child(one, {77, a.data()}));
  CHECK(index[root].kids == 2);
  CHECK(index[one].depth == 1);
  CHECK(index[one].salt == 1);
  CHECK_FALSE(index.removable(root));
  CHECK(index.removable(one));
  // Under trusted ids the key is the block.
  hs::PrefixIndex trusted(9, block, hs::BlockIdentity::trusted_id, 0);
  hs::NodeIndex const r = trusted.root(0, {}, 0);
  hs::NodeIndex const child = trusted.add_child(r, {5, nullptr}, 0);
  CHECK(trusted.find_child(r, {5, nullptr}) == child);
  CHECK_FALSE(trusted.find_child(r, {6, nullptr}));
}

TEST_CASE("many salts do not share one bucket") {
  // The hash of a root depends on its salt even without extra bytes.
  CHECK(hs::detail::hash_bytes(nullptr, 0, 1) != hs::detail::hash_bytes(nullptr, 0, 2));
}

TEST_CASE("distinct requesters are counted once, up to the bound") {
  hs::PrefixIndex index(9, block, hs::BlockIdentity::trusted_id, 0);
  hs::NodeIndex const n = index.root(0, {}, 0);
  for (std::uint64_t const r : {5U, 5U, 6U, 5U, 6U}) index.count_requester(n, r);
  CHECK(index[n].distinct == 2);
  for (std::uint64_t r = 0; r < 20; ++r) index.count_requester(n, r);
  CHECK(index[n].distinct == hs::max_counted_requesters + 1);
}

TEST_CASE("the index equals a tree of tokens under random operations, collisions and evictions") {
  for (std::uint32_t const distinct_keys : {1U, 3U, 1000000U}) {
    constexpr std::uint32_t capacity = 40;
    hs::PrefixIndex index(capacity, block, hs::BlockIdentity::tokens, 4);
    std::map<std::pair<std::uint64_t, std::string>, std::unique_ptr<Naive>> roots;
    std::uint32_t size = 0;
    std::uint64_t stamp = 0;
    Random random{distinct_keys};
    auto key = [&](const Ids& t) { return hs::block_key(t) % distinct_keys; };
    std::vector<Naive*> all;
    auto collect = [&](auto& self, Naive& n) -> void {
      all.push_back(&n);
      for (auto& [t, c] : n.children) self(self, *c);
    };
    auto nodes = [&] {
      all.clear();
      for (auto& [k, r] : roots) collect(collect, *r);
    };
    auto removable = [](const Naive* n) { return n->children.empty() && !n->busy; };
    /// What a full index removes for a node below `keep`; the naive tree loses it too.
    auto expect_removal = [&](const Naive* keep) {
      if (size < capacity) return true;
      nodes();
      std::uint64_t least = ~std::uint64_t{0};
      for (Naive* n : all)
        if (removable(n) && n != keep) least = std::min(least, n->touched);
      if (least == ~std::uint64_t{0}) return false;
      return true;
    };
    auto forget_removed = [&](const Naive* keep, std::uint64_t least_before) {
      // Exactly one node went: removable, and no older one stayed.
      nodes();
      int gone = 0;
      for (Naive* n : all) {
        if (n == keep || !removable(n)) continue;
        bool const there =
            n->parent == nullptr
                ? false
                : index.find_child(n->parent->node, {key(n->tokens), n->tokens.data()}) == n->node;
        bool const root_there = [&] {
          if (n->parent != nullptr) return false;
          for (auto const& [k, r] : roots)
            if (r.get() == n)
              return index.find_root(k.first, std::as_bytes(std::span<const char>(k.second))) ==
                     n->node;
          return false;
        }();
        if (there || root_there) continue;
        ++gone;
        REQUIRE(n->touched == least_before);
        if (n->parent == nullptr) {
          for (auto it = roots.begin(); it != roots.end(); ++it)
            if (it->second.get() == n) {
              roots.erase(it);
              break;
            }
        } else {
          --n->parent->kids;
          Ids const t = n->tokens;
          n->parent->children.erase(t);
        }
        --size;
        break;
      }
      REQUIRE(gone == 1);
    };
    auto least_touched = [&](const Naive* keep) {
      nodes();
      std::uint64_t least = ~std::uint64_t{0};
      for (Naive* n : all)
        if (removable(n) && n != keep) least = std::min(least, n->touched);
      return least;
    };
    for (int i = 0; i < 4000; ++i) {
      // Walk a random path and make what is missing, as enter() does.
      std::pair<std::uint64_t, std::string> const name{random(2), random(3) == 0 ? "x" : ""};
      auto const extra = std::as_bytes(std::span<const char>(name.second));
      ++stamp;
      auto it = roots.find(name);
      REQUIRE(static_cast<bool>(index.find_root(name.first, extra)) == (it != roots.end()));
      if (it == roots.end()) {
        bool const room = expect_removal(nullptr);
        bool const full = size == capacity;
        std::uint64_t const least = full ? least_touched(nullptr) : 0;
        hs::NodeIndex const n = index.root(name.first, extra, 0);
        REQUIRE(static_cast<bool>(n) == room);
        if (!n) continue;
        if (full) forget_removed(nullptr, least);
        it = roots.emplace(name, std::make_unique<Naive>()).first;
        it->second->node = n;
        ++size;
      }
      Naive* at = it->second.get();
      index.touch(at->node, stamp);
      at->touched = stamp;
      for (std::uint32_t depth = random(6); depth > 0; --depth) {
        Ids const t = piece(random(3));
        auto const child = at->children.find(t);
        hs::NodeIndex const found = index.find_child(at->node, {key(t), t.data()});
        REQUIRE(static_cast<bool>(found) == (child != at->children.end()));
        if (found) {
          REQUIRE(found == child->second->node);
          at = child->second.get();
        } else {
          bool const room = expect_removal(at);
          bool const full = size == capacity;
          std::uint64_t const least = full ? least_touched(at) : 0;
          hs::NodeIndex const n = index.add_child(at->node, {key(t), t.data()}, 0);
          REQUIRE(static_cast<bool>(n) == room);
          if (!n) break;
          if (full) forget_removed(at, least);
          auto fresh = std::make_unique<Naive>();
          fresh->parent = at;
          fresh->tokens = t;
          fresh->node = n;
          ++at->kids;
          Naive* const raw = fresh.get();
          at->children.emplace(t, std::move(fresh));
          at = raw;
          ++size;
        }
        index.touch(at->node, stamp);
        at->touched = stamp;
        REQUIRE(index[at->node].kids == at->kids);
      }
      // Something hangs on it, or leaves it.
      if (random(3) == 0) {
        index[at->node].holds += at->busy ? 0U : 1U;
        at->busy = true;
      }
      nodes();
      Naive* const other = all[random(static_cast<std::uint32_t>(all.size()))];
      if (other->busy && random(2) == 0) {
        other->busy = false;
        --index[other->node].holds;
        index.loosened(other->node);
      }
      REQUIRE(index.size() == size);
    }
    CHECK(size == capacity);
  }
}

TEST_CASE("descend visits the nodes that exist, with keys and without") {
  hs::PrefixIndex index(200, block, hs::BlockIdentity::tokens, 0);
  hs::NodeIndex const root = index.root(0, {}, 0);
  Ids tokens;
  std::vector<hs::BlockKey> keys;
  std::vector<hs::NodeIndex> nodes;
  hs::NodeIndex at = root;
  for (hs::TokenId i = 0; i < 100; ++i) {
    Ids const t = piece(i % 7);
    tokens.insert(tokens.end(), t.begin(), t.end());
    keys.push_back(hs::block_key(t));
    if (i >= 90) continue;  // the last ten are unknown
    at = index.add_child(at, {keys.back(), t.data()}, 0);
    nodes.push_back(at);
    // A sibling with the same key and other tokens.
    if (i % 5 == 0) {
      Ids const other = piece(50 + i);
      index.add_child(hs::NodeIndex{index[at].parent}, {keys.back(), other.data()}, 0);
    }
  }
  for (std::uint32_t const n : {0U, 1U, 7U, 8U, 9U, 40U, 90U, 91U, 100U})
    for (bool const with_keys : {false, true}) {
      std::vector<hs::NodeIndex> seen;
      index.descend(root, n, with_keys ? keys.data() : nullptr, tokens.data(),
                    [&](hs::NodeIndex x) noexcept { seen.push_back(x); });
      REQUIRE(seen.size() == std::min<std::size_t>(n, 90));
      CHECK(std::equal(seen.begin(), seen.end(), nodes.begin()));
    }
}
