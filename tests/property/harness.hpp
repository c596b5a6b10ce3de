// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random operations on a JointCache and on the naive model, compared after each one; and a memory
// of tags behind the units, so that aliasing shows as wrong data.

#include <cstddef>
#include <hybridstate/cache/joint_cache.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/organization/coarse_page.hpp>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <hybridstate/organization/native_dual_pool.hpp>
#include <hybridstate/organization/recurrent_paged.hpp>
#include <hybridstate/policy/greedy_dual.hpp>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "model.hpp"
#include "test_scale.hpp"

namespace naive {

/// Small and reproducible everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  std::uint64_t next() {
    std::uint64_t x = (state_ += 0x9e3779b97f4a7c15ULL);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  Units below(Units n) { return static_cast<Units>(next() % n); }
  bool chance(Units percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

enum class Keys { real, colliding, trusted };

struct Setup {
  hs::ModelGeometry geometry;
  Tokens block = 4, grid = 4;
  hs::PoolUnits units;
  hs::CacheOptions options;
  hs::SlabPosition slab_position = hs::SlabPosition::by_last_state;
  Keys keys = Keys::real;
  hs::BranchPoints branch_points;
  hs::ScoreRule score;
  std::uint32_t gate_percent = 20;  ///< admissions that ask for headroom
  bool forks = true;
  bool invalidations = true;
};

/// Counts what the writes of this harness did, to show that a test tested something.
struct Seen {
  std::uint64_t operations = 0, adopted_tokens = 0, reused_tokens = 0, writes = 0, copies = 0,
                cross = 0, in_place = 0, lost = 0, full_index = 0, protected_reclaims = 0,
                runs_with_reuse = 0, offers = 0, guarded = 0, retained = 0, retained_yielded = 0,
                pins = 0, pins_over_budget = 0, pins_yielded = 0, tails_grown = 0, tails_filled = 0,
                tail_copies = 0;
  void add(const Seen& o) {
    operations += o.operations;
    adopted_tokens += o.adopted_tokens;
    reused_tokens += o.reused_tokens;
    writes += o.writes;
    copies += o.copies;
    cross += o.cross;
    in_place += o.in_place;
    lost += o.lost;
    full_index += o.full_index;
    protected_reclaims += o.protected_reclaims;
    retained += o.retained;
    retained_yielded += o.retained_yielded;
    pins += o.pins;
    pins_over_budget += o.pins_over_budget;
    pins_yielded += o.pins_yielded;
    tails_grown += o.tails_grown;
    tails_filled += o.tails_filled;
    tail_copies += o.tail_copies;
    offers += o.offers;
    guarded += o.guarded;
    runs_with_reuse += o.reused_tokens > 0 ? 1 : 0;
  }
};

/// Any function of the path will do.
struct PathUses : hs::NextUses {
  std::uint64_t next(std::uint64_t path, std::uint64_t) const noexcept override {
    return path % 3 == 0 ? never : path % 1000;
  }
};
inline const PathUses path_uses;

/// Fixed headroom, and a record of what a pricing gate is told.
struct WitnessGate : hs::FixedHeadroom {
  static constexpr bool stands_by_refusal(const hs::AdmissionView&) noexcept { return false; }
  int refusing_pool(const hs::AdmissionView& view) const noexcept {
    guarded = view.guarded[0] + view.guarded[1] > 0;
    return hs::FixedHeadroom::refusing_pool(view);
  }
  int refusing_pool(const hs::AdmissionView& view, hs::Market& told) const noexcept {
    seen = told;
    asked = true;
    return refusing_pool(view);
  }
  mutable hs::Market seen;
  mutable bool asked = false;
  mutable bool guarded = false;
};

inline hs::StateLayout layout_of(const Setup& s) {
  hs::LayoutOptions options;
  options.block_tokens = s.block;
  options.checkpoint_tokens = s.grid;
  options.native_block_tokens = s.block;
  options.native_checkpoint_tokens = s.grid;
  return hs::make_layout(s.geometry, options);
}

template <class Organization>
Organization make_organization(const Setup& s) {
  if constexpr (Organization::pools == 2)
    return Organization(layout_of(s), s.units, {s.block, s.grid});
  else
    return Organization(layout_of(s), s.units[0]);
}

template <class Organization, class Order>
class Harness {
 public:
  using Cache = hs::JointCache<Organization, Order>;

  Harness(const Setup& setup, std::uint64_t seed)
      : setup_(setup),
        random_(seed),
        cache_(make_organization<Organization>(setup), setup.options, order(setup)),
        model_(shape()) {
    Organization const& o = cache_.organization();
    for (int p = 0; p < Organization::pools; ++p)
      memory_[p].assign(o.pool(p).capacity(), std::vector<std::uint64_t>(setup.block));
    lines_.assign(std::size_t{o.pool(Organization::state_pool).capacity()} * slots(), 0);
    live_.resize(setup.options.max_sequences);
    model_.vanished = [this](const Node& n) { return !find(n); };
    model_.next_use = [this](const Node& n) {
      return path_uses.next(cache_.index()[find(n)].path, 0);
    };
  }

  /// Empty when all went well, else what went wrong and where.
  std::string run(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations && wrong_.empty(); ++i) {
      operate();
      ++seen_.operations;
      if (wrong_.empty()) compare();
      if (wrong_.empty() && i % 16 == 15) check(cache_.check_invariants());
      if (wrong_.empty()) check(model_.complaint);
      if (!wrong_.empty())
        wrong_ = "operation " + std::to_string(i) + ", " + doing_ + ": " + wrong_;
    }
    seen_.cross = cache_.counters().cross_invalidations;
    seen_.lost = cache_.counters().lost_blocks + cache_.counters().lost_checkpoints;
    seen_.protected_reclaims = model_.protected_reclaims;
    hs::CacheCounters const& c = cache_.counters();
    seen_.retained = c.retained;
    seen_.retained_yielded = c.retained_yielded;
    seen_.pins = c.pins;
    seen_.pins_over_budget = c.pins_over_budget;
    seen_.pins_yielded = c.pins_yielded;
    seen_.tails_grown = c.tails_grown;
    seen_.tails_filled = c.tails_filled;
    seen_.tail_copies = c.tail_copies;
    seen_.full_index = model_.node_count() == cache_.index().capacity() ? 1 : 0;
    return wrong_;
  }
  const Seen& seen() const { return seen_; }

 private:
  struct Live {
    Status status = Status::free;
    Request request;  ///< all its tokens, the future ones too
    std::vector<std::uint64_t> hash;
    std::uint64_t requester = 0;
    Tokens max_tokens = 0;
    Tokens junction = 0;
    Tokens reserved = 0;
    std::vector<hs::BlockCopy> copies;
  };

  static Order order(const Setup& s) {
    Order o;
    if constexpr (std::is_same_v<Order, hs::PaperOrder>) o.slab_position = s.slab_position;
    if constexpr (std::is_same_v<Order, hs::PathSafeLru>) o = Order(s.branch_points);
    if constexpr (std::is_same_v<Order, hs::GreedyDual>) o = Order(s.score);
    return o;
  }

  Units slots() const {
    if constexpr (std::is_same_v<Organization, hs::ConvSlabPacked<>>)
      return std::max(1U, layout_of(setup_).slots_per_slab());
    else
      return 1;
  }

  /// The same facts again, from the layout and the paper's definitions.
  Shape shape() const {
    hs::StateLayout const l = layout_of(setup_);
    Shape s;
    s.pools = Organization::pools;
    s.state_pool = Organization::pools - 1;
    s.units[0] = setup_.units[0];
    s.units[1] = setup_.units[1];
    s.block = setup_.block;
    s.grid = setup_.grid;
    s.attention_units = l.attention_groups();
    if constexpr (std::is_same_v<Organization, hs::RecurrentPaged<>>) {
      s.state_units = l.recurrent_groups() * (l.members() + l.conv_pages());
    } else if constexpr (std::is_same_v<Organization, hs::ConvSlabPacked<>>) {
      bool const packed = l.slots_per_slab() > 0;
      s.state_units = l.recurrent_groups() * (l.members() + (packed ? 0 : l.conv_pages()));
      s.slots_per_state = packed ? l.recurrent_groups() : 0;
      s.slots = l.slots_per_slab();
    } else {
      s.state_units = l.recurrent_groups();
    }
    s.row_blocks = setup_.units[0];
    if (setup_.options.max_sequence_tokens > 0)
      s.row_blocks = std::min(
          s.row_blocks, (setup_.options.max_sequence_tokens + setup_.block - 1) / setup_.block);
    s.order = std::is_same_v<Order, hs::PaperOrder>    ? OrderKind::paper
              : std::is_same_v<Order, hs::PathSafeLru> ? OrderKind::path_safe
                                                       : OrderKind::greedy_dual;
    Organization const& o = cache_.organization();
    auto const state_bytes =
        static_cast<double>(s.state_units * o.unit_bytes(s.state_pool) +
                            (s.slots > 0 ? s.slots_per_state * o.unit_bytes(0) / s.slots : 0));
    s.state_blocks = state_bytes / static_cast<double>(s.attention_units * o.unit_bytes(0));
    s.age_of_use = 1 / std::max(1.0, std::min<double>(o.max_states(),
                                                      o.max_attention_blocks() / s.state_blocks));
    if (s.order == OrderKind::path_safe) s.branch_points = setup_.branch_points;
    s.score = setup_.score;
    s.slab_position = setup_.slab_position;
    s.placement = setup_.options.placement.kind;
    s.every = setup_.options.placement.every;
    s.fences = setup_.options.fences;
    s.tail = setup_.options.tail_tokens;
    s.reuse = setup_.options.reuse_beyond_joint;
    s.retention = setup_.options.retention;
    s.pinning = setup_.options.pinning;
    s.max_sequences = setup_.options.max_sequences;
    Units const units = setup_.units[0] + (s.pools == 2 ? setup_.units[1] : 0);
    s.nodes = (s.pools == 2 ? units : 2 * units) + setup_.options.bare_nodes_per_unit * units + 1;
    return s;
  }

  // --- requests ----------------------------------------------------------------------------------

  Tokens longest() const { return setup_.block * std::min(18U, setup_.units[0] + 2); }

  void random_tokens(std::vector<TokenId>& t, Tokens from) {
    Units variant = 0;
    for (Tokens i = from; i < longest(); ++i) {
      if (i == from || i % setup_.block == 0) variant = random_.chance(75) ? 0 : random_.below(3);
      t.push_back(variant * 1000 + i % setup_.block);
    }
  }
  Live random_request() {
    Live live;
    random_tokens(live.request.tokens, 0);
    live.request.length = 1 + random_.below(longest() - 2);
    if (random_.chance(60)) live.request.length = std::max(1U, live.request.length / 2);
    if (random_.chance(20)) live.request.length = grid_multiple(live.request.length);
    live.request.salt = random_.chance(85) ? 0 : 1;
    if (random_.chance(10)) live.request.extra = random_.chance(50) ? "a" : "adapter-b";
    live.requester = 1 + random_.below(6);
    live.max_tokens = random_.chance(50) ? 0 : std::min(longest(), live.request.length + 5);
    rehash(live);
    return live;
  }
  Tokens grid_multiple(Tokens n) const { return std::max(1U, n / setup_.grid) * setup_.grid; }
  void rehash(Live& live) {
    std::uint64_t h = live.request.salt * 31 + live.request.extra.size() * 17 + 5;
    live.hash.assign(1, h);
    for (TokenId t : live.request.tokens) {
      h = (h ^ t) * 0x9e3779b97f4a7c15ULL;
      h ^= h >> 29;
      live.hash.push_back(h);
    }
  }

  hs::BlockKey key_of(const TokenId* t) const {
    if (setup_.keys == Keys::colliding) return 7;
    if (setup_.keys == Keys::real) return hs::block_key({t, setup_.block});
    std::uint64_t h = 1469598103934665603ULL;
    for (Tokens i = 0; i < setup_.block; ++i) h = (h ^ t[i]) * 1099511628211ULL;
    return h;
  }
  hs::Prompt prompt_of(const Request& r) {
    keys_.clear();
    for (Tokens b = 0; b + setup_.block <= r.length; b += setup_.block)
      keys_.push_back(key_of(&r.tokens[b]));
    hs::Prompt p;
    p.length = r.length;
    if (setup_.keys != Keys::trusted) p.tokens = {r.tokens.data(), r.length};
    if (setup_.keys != Keys::real || r.salt == 1) p.keys = keys_;
    p.salt = r.salt;
    p.extra = std::as_bytes(std::span<const char>(r.extra));
    return p;
  }
  hs::NodeIndex find(const Node& n) {
    std::vector<const Node*> path;
    for (Node const* at = &n; at->parent != nullptr; at = at->parent) path.push_back(at);
    auto const& index = cache_.index();
    hs::NodeIndex at =
        index.find_root(n.root.first, std::as_bytes(std::span<const char>(n.root.second)));
    for (std::size_t i = path.size(); at && i-- > 0;)
      at = index.find_child(at, {key_of(path[i]->tokens.data()), path[i]->tokens.data()});
    return at;
  }

  // --- operations --------------------------------------------------------------------------------

  int pick(Status status) {
    std::vector<int> all;
    for (std::size_t i = 0; i < live_.size(); ++i)
      if (live_[i].status == status) all.push_back(static_cast<int>(i));
    return all.empty() ? -1 : all[random_.below(static_cast<Units>(all.size()))];
  }
  static hs::SequenceHandle handle(int s) { return {s}; }

  void operate() {
    Units const dice = random_.below(1000);
    if (dice < 180)
      step();
    else if (dice < 350)
      admit();
    else if (dice < 770)
      advance();
    else if (dice < 820)
      stop(true);
    else if (dice < 855)
      stop(false);
    else if (dice < 895)
      resume();
    else if (dice < 955)
      fork();
    else if (dice < 985)
      invalidate();
    else
      rare();
  }

  void step() {
    doing_ = "begin_step";
    check(cache_.begin_step() == model_.step() + 1, "steps count up");
    model_.begin_step();
    if (!setup_.options.fences || random_.chance(30)) return;
    doing_ = "complete";
    Step const n = model_.step() - std::min<Step>(model_.step(), random_.below(3));
    cache_.complete(n);
    model_.complete(n);
  }

  void admit() {
    Live live = random_request();
    hs::Prompt const p = prompt_of(live.request);
    doing_ = "enter";
    if (random_.chance(90)) {
      hs::Entry const e = cache_.enter(p, live.requester);
      auto const m = model_.enter(live.request, live.requester);
      check(e.known == m.known && e.split == m.split, "demand at enter agrees");
      if (e.split) live.junction = e.known;
      check_demand(live.request);
    }
    doing_ = "lookup";
    hs::Match const match = cache_.lookup(p);
    check_match(match, model_.lookup(live.request));
    if (random_.chance(15)) return;
    doing_ = "admit";
    if (random_.chance(10)) live.junction = random_.below(longest());
    WitnessGate gate;
    if (random_.chance(setup_.gate_percent)) {
      gate.headroom = {{random_.below(6), random_.below(3)}};
      gate.adaptive = {{random_.below(12), random_.below(6)}};
    }
    hs::AdmitRequest const request{live.requester, live.max_tokens, live.junction};
    auto const market = model_.market(model_.lookup(live.request));
    hs::Admission const a = cache_.admit(p, request, gate, random_.chance(50) ? &match : nullptr);
    if (gate.asked) check_market(gate.seen, market);
    seen_.guarded += gate.guarded ? 1 : 0;
    Answer const m = model_.admit(-1, live.request, live.max_tokens, gate, live.junction);
    check_answer(a, m);
    check(a.sequence.value == m.sequence, "the same sequence handle");
    if (a.sequence && wrong_.empty()) begin(a, live);
  }
  void begin(const hs::Admission& a, const Live& live) {
    Live& l = live_[a.sequence.at()];
    l = live;
    l.status = Status::active;
    l.reserved = 0;
    l.copies.clear();
    check(a.match.joint < live.request.length, "at least one token is computed");
    seen_.adopted_tokens += cache_.position(a.sequence);
    seen_.reused_tokens += cache_.kv_valid_until(a.sequence) - a.match.joint;
    verify(a.sequence);
  }

  void resume() {
    int const s = pick(Status::preempted);
    if (s < 0) return;
    doing_ = "resume";
    Live& l = live_[z(s)];
    hs::Prompt const p = prompt_of(l.request);
    hs::Admission const a = cache_.resume(handle(s), p, {l.requester, l.max_tokens, l.junction});
    Answer const m = model_.admit(s, l.request, l.max_tokens, {}, l.junction);
    check_answer(a, m);
    if (!a && wrong_.empty()) return;
    check(a.sequence.value == s, "a resumed sequence keeps its handle");
    if (wrong_.empty()) begin(a, Live(l));
  }

  void advance() {
    int const s = pick(Status::active);
    if (s < 0) return;
    Live& l = live_[z(s)];
    if (l.reserved == 0 && random_.chance(10)) {
      doing_ = "retire";
      cache_.retire(handle(s));
      model_.retire(s);
      verify(handle(s));
      return;
    }
    if (l.reserved == 0) reserve(s);
    if (!wrong_.empty() || l.reserved == 0) return;
    Units const dice = random_.below(100);
    if (dice < 75) {
      commit(s);
    } else if (dice < 85) {
      doing_ = "abort";
      cache_.abort(handle(s));
      model_.abort(s);
      l.reserved = 0;
      l.copies.clear();
    }
  }

  void reserve(int s) {
    doing_ = "reserve";
    Live& l = live_[z(s)];
    Tokens const at = cache_.position(handle(s));
    Tokens const left = longest() - at;
    if (left == 0) {
      finish(s, false);
      return;
    }
    Tokens n = random_.chance(40) ? 1 : 1 + random_.below(2 * setup_.grid + 3);
    if (random_.chance(15)) n = setup_.grid;
    if (at < l.request.length && random_.chance(40)) n = l.request.length - at;
    n = std::min(n, left);
    std::size_t const copies_before = cache_.copies().size();
    hs::Shortage const a = cache_.reserve(handle(s), n);
    Answer const m = model_.reserve(s, n);
    check_answer(a, m);
    check(cache_.copies().size() == model_.copies(), "as many copies");
    if (!a) {
      // Never stuck: the scheduler preempts someone, at times the sequence itself.
      if (wrong_.empty() && random_.chance(50)) finish(pick(Status::active), true);
      return;
    }
    l.reserved = n;
    for (std::size_t i = copies_before; i < cache_.copies().size(); ++i) {
      hs::BlockCopy const c = cache_.copies()[i];
      l.copies.push_back(c);
      check(c.tokens == at % setup_.block && c.tokens > 0, "a copy has the tokens of the block");
      check(c.bytes == c.tokens * cache_.organization().attention_payload_bytes_per_token(),
            "a copy has the bytes of its tokens");
      ++seen_.copies;
    }
  }

  void commit(int s) {
    doing_ = "commit";
    Live& l = live_[z(s)];
    hs::SequenceHandle const seq = handle(s);
    Tokens const begin = cache_.position(seq), end = begin + l.reserved;
    // The device: copies, then reads of everything before, then writes.
    for (hs::BlockCopy const& c : l.copies)
      for (int g = 0; g < groups(true); ++g)
        for (Tokens t = 0; t < c.tokens; ++t) token_cell(c.to, t, g) = token_cell(c.from, t, g);
    l.copies.clear();
    verify(seq);
    auto const blocks = cache_.blocks(seq);
    for (Tokens t = std::max(begin, cache_.kv_valid_until(seq)); t < end; ++t) {
      hs::AttentionHandle const a = blocks[t / setup_.block];
      check(!cache_.published(a), "no write to published attention");
      check(t >= cache_.kv_valid_until(seq), "no write below kv_valid_until");
      for (int g = 0; g < groups(true); ++g) token_cell(a, t % setup_.block, g) = tag(l, t + 1, g);
      ++seen_.writes;
    }
    auto const states = cache_.states(seq);
    for (std::size_t i = cache_.first_target(seq); i < states.size(); ++i) {
      check(!cache_.published(states[i].state), "no write to a published state");
      check(cache_.references(states[i].state) == 1, "no write to a shared state");
      if (states[i].state == cache_.source(seq)) ++seen_.in_place;
      for_each_state_cell(states[i].state, [&, i](std::uint64_t& c, int j) {
        c = tag(l, states[i].boundary, 100 + j);
      });
      ++seen_.writes;
    }
    check(states.back().boundary == end, "the working state is at the end of the chunk");

    hs::Committed done;
    done.count = l.reserved;
    if (setup_.keys != Keys::trusted) done.tokens = {&l.request.tokens[begin], l.reserved};
    keys_.clear();
    for (Tokens b = begin / setup_.block * setup_.block; b + setup_.block <= end; b += setup_.block)
      keys_.push_back(key_of(&l.request.tokens[b]));
    if (setup_.keys != Keys::real) done.keys = keys_;
    cache_.commit(seq, done);
    model_.commit(s, l.request.tokens);
    l.reserved = 0;
    // A request that goes on is what its prompt and its output are so far.
    if (end > l.request.length) l.request.length = end;
    l.max_tokens = std::max(l.max_tokens, l.request.length);
  }

  void stop(bool for_good) {
    int s = pick(Status::active);
    if (for_good && random_.chance(20)) {
      int const p = pick(Status::preempted);
      if (p >= 0) s = p;
    }
    if (s >= 0) finish(s, !for_good);
  }
  void finish(int s, bool again) {
    doing_ = again ? "preempt" : "release";
    Live& l = live_[z(s)];
    l.reserved = 0;
    l.copies.clear();
    if (again && l.request.length >= longest()) again = false;
    if (again) {
      cache_.preempt(handle(s));
      model_.preempt(s);
      l.status = Status::preempted;
    } else {
      cache_.release(handle(s));
      model_.release(s);
      l.status = Status::free;
    }
  }

  void fork() {
    int const s = pick(Status::active);
    if (s < 0 || live_[z(s)].reserved > 0 || !setup_.forks) return;
    doing_ = "fork";
    hs::Admission const a = cache_.fork(handle(s), 9);
    int const m = model_.fork(s);
    check(a.sequence.value == m, "the same child");
    check(static_cast<bool>(a) == (m >= 0), "a fork works where it should");
    if (!a) return;
    Live& l = live_[a.sequence.at()];
    l = live_[z(s)];
    l.requester = 9;
    Tokens const at = cache_.position(a.sequence);
    l.request.tokens.resize(at);
    random_tokens(l.request.tokens, at);
    l.request.length = std::max(1U, at);
    l.max_tokens = l.request.length;
    rehash(l);
    verify(a.sequence);
  }

  void invalidate() {
    if (!setup_.invalidations) return;
    Units const dice = random_.below(3);
    if (dice == 0) {
      doing_ = "invalidate a prefix";
      Live const live = random_request();
      Tokens const from = random_.chance(50) ? 0 : random_.below(live.request.length + 1);
      cache_.invalidate(prompt_of(live.request), from);
      model_.invalidate(live.request, from);
    } else if (dice == 1) {
      doing_ = "invalidate a block";
      auto const it = random_of(model_.blocks());
      if (it == model_.blocks().end()) return;
      int const h = it->first;
      cache_.invalidate(hs::AttentionHandle{h});
      model_.invalidate(true, h);
    } else {
      doing_ = "invalidate a state";
      auto const it = random_of(model_.states());
      if (it == model_.states().end()) return;
      int const h = it->first;
      cache_.invalidate(hs::StateHandle{h});
      model_.invalidate(false, h);
    }
  }
  std::map<int, Object>::const_iterator random_of(const std::map<int, Object>& m) {
    auto it = m.begin();
    if (!m.empty()) std::advance(it, random_.below(static_cast<Units>(m.size())));
    return it;
  }

  void rare() {
    if (!setup_.invalidations) return;
    if (random_.chance(50)) {
      doing_ = "invalidate_since";
      Step const since = model_.step() - std::min<Step>(model_.step(), random_.below(3));
      cache_.invalidate_since(since);
      model_.invalidate_since(since);
      // After a failed launch its sequences are preempted.
      int const s = pick(Status::active);
      if (s >= 0 && random_.chance(50)) finish(s, true);
    } else {
      doing_ = "clear";
      cache_.clear();
      model_.clear();
    }
  }

  // --- the shadow memory -------------------------------------------------------------------------

  static std::uint64_t tag(const Live& l, Tokens prefix, int part) {
    return l.hash[prefix] * 2654435761U + static_cast<std::uint64_t>(part);
  }
  int groups(bool attention) const {
    hs::StateLayout const& l = cache_.organization().layout();
    return static_cast<int>(attention ? l.attention_groups() : l.recurrent_groups());
  }
  std::vector<std::uint64_t>& cell(int pool, std::int64_t unit) {
    if (unit < 0 || z(unit) >= memory_[pool].size()) {
      check("an address of nothing");
      return memory_[pool][0];
    }
    return memory_[pool][z(unit)];
  }
  /// Token t of an attention block, whole or the part of another that a tail is.
  std::uint64_t& token_cell(hs::AttentionHandle a, Tokens t, int group) {
    hs::AttentionPlace const at = cache_.place(a);
    auto& tokens = cell(0, cache_.organization().attention_unit(at.block, group));
    if (at.offset + t >= tokens.size()) check("a tail reaches past its slab");
    return tokens[(at.offset + t) % tokens.size()];
  }
  template <class F>
  void for_each_state_cell(hs::StateHandle s, F&& f) {
    Organization const& o = cache_.organization();
    hs::StateLayout const& l = o.layout();
    int const members =
        Organization::pools == 2 || shape_is_coarse ? 1 : static_cast<int>(l.members());
    for (int g = 0; g < groups(false); ++g) {
      for (int m = 0; m < members; ++m) {
        auto& c = cell(Organization::state_pool, o.ssm_page(s, g, m));
        for (auto& x : c) f(x, g * 10 + m);
      }
      std::int64_t const line = o.conv_line(s, g);
      if constexpr (std::is_same_v<Organization, hs::ConvSlabPacked<>>) {
        if (l.slots_per_slab() > 0) {
          if (line < 0 || z(line) >= lines_.size())
            check("a line of nothing");
          else
            f(lines_[z(line)], g * 10 + 9);
          continue;
        }
      }
      if constexpr (!shape_is_coarse && Organization::pools == 1)
        for (auto& x : cell(0, line)) f(x, g * 10 + 9);
    }
  }
  static constexpr bool shape_is_coarse = std::is_same_v<Organization, hs::CoarsePage<>>;

  /// Reads everything that the sequence may read next.
  void verify(hs::SequenceHandle seq) {
    Live const& l = live_[seq.at()];
    Tokens const end = std::max(cache_.position(seq), cache_.kv_valid_until(seq));
    auto const blocks = cache_.blocks(seq);
    for (Tokens t = 0; t < end && wrong_.empty(); ++t)
      for (int g = 0; g < groups(true); ++g) {
        auto const c = token_cell(blocks[t / setup_.block], t % setup_.block, g);
        if (c != tag(l, t + 1, g)) check("attention of somebody else is read");
      }
    if (hs::StateHandle const source = cache_.source(seq))
      for_each_state_cell(source, [&](std::uint64_t& c, int j) {
        if (c != tag(l, cache_.position(seq), 100 + j)) check("a state of somebody else is read");
      });
    else
      check(cache_.position(seq) == 0, "a started sequence has a source");
  }

  // --- comparison --------------------------------------------------------------------------------

  void check(const std::string& sentence) {
    if (wrong_.empty()) wrong_ = sentence;
  }
  void check(bool holds, const char* sentence) {
    if (!holds && wrong_.empty()) wrong_ = sentence;
  }
  template <class A, class B>
  void same(A a, B b, const char* what) {
    if (static_cast<std::uint64_t>(a) == static_cast<std::uint64_t>(b) || !wrong_.empty()) return;
    wrong_ = std::string(what) + ": " + std::to_string(a) + ", the model says " + std::to_string(b);
  }

  void check_match(const hs::Match& c, const Found& m) {
    same(c.attention, m.attention, "A");
    same(c.recurrent, m.recurrent, "R");
    same(c.joint, m.joint, "J");
    same(c.raw, m.raw, "raw match");
    same(c.settled, m.settled, "settled match");
    same(c.pending, m.pending, "pending");
    hs::MissReason reason = hs::MissReason::none;
    if (m.recurrent > m.joint)
      reason = hs::MissReason::attention;
    else if (m.attention > m.joint || (m.joint == 0 && m.raw > 0))
      reason = hs::MissReason::checkpoint;
    else if (m.joint == 0)
      reason = hs::MissReason::cold;
    same(static_cast<int>(c.reason), static_cast<int>(reason), "miss reason");
    if (c.joint > 0 && !m.joint_node->states.empty())
      same(cache_.checkpoint(c).value, m.joint_node->states.front(), "the checkpoint of J");
  }
  void check_answer(const hs::Shortage& c, const Answer& m) {
    same(static_cast<int>(c.refusal), static_cast<int>(m.refusal), "refusal");
    same(c.pool, m.pool, "short pool");
    if (c || m.refusal == hs::Refusal::none) return;
    for (int p = 0; p < Organization::pools; ++p) {
      same(c.need[p], m.need[p], "need");
      same(c.available[p], m.available[p], "available");
    }
  }
  void check_answer(const hs::Admission& c, const Answer& m) {
    check_answer(static_cast<const hs::Shortage&>(c), m);
    if (!c || !wrong_.empty()) return;
    for (int p = 0; p < Organization::pools; ++p) {
      same(c.need[p], m.need[p], "need of the admitted");
      same(c.available[p], m.available[p], "available after admission");
    }
    same(c.match.joint, m.match.joint, "adopted boundary");
  }
  void check_market(const hs::Market& c, const typename Model::Priced& m) {
    auto const near = [this](double a, double b, const char* what) {
      check(std::abs(a - b) < 1e-9, what);
    };
    for (int p = 0; p < Organization::pools; ++p) {
      near(c.worthless[p], m.worthless[p], "worthless units");
      near(c.unasked[p], m.unasked[p], "units of states that nobody asked for");
    }
    same(c.offers.size(), m.offers.size(), "offers");
    auto sorted = [](std::vector<std::pair<Tokens, double>> all) {
      std::sort(all.begin(), all.end());
      return all;
    };
    std::vector<std::pair<Tokens, double>> told, expected;
    for (hs::Offer const& o : c.offers) told.emplace_back(o.replay, o.blocks);
    for (auto const& [key, offer] : m.offers) expected.push_back(offer);
    check(sorted(told) == sorted(expected), "replay and size of the offers");
    seen_.offers += c.offers.size();
  }
  /// Demand counts along a path (invariant 7 for counts).
  void check_demand(const Request& r) {
    auto const& index = cache_.index();
    Request prefix = r;
    prefix.length = r.length / setup_.block * setup_.block;
    hs::NodeIndex at = index.find_root(r.salt, std::as_bytes(std::span<const char>(r.extra)));
    Node const* n = model_.find_root(r);
    check(static_cast<bool>(at) == (n != nullptr), "a root exists in both");
    for (Tokens b = 0; wrong_.empty() && at && n != nullptr && b < prefix.length;
         b += setup_.block) {
      at = index.find_child(at, {key_of(&r.tokens[b]), &r.tokens[b]});
      n = model_.find_child(n, r.tokens, b);
      check(static_cast<bool>(at) == (n != nullptr), "a node exists in both");
      if (!at || n == nullptr) break;
      same(index[at].kids, n->kids, "kids");
      same(index[at].exits, n->exits, "exits");
      same(index[at].distinct,
           std::min<std::size_t>(n->requesters.size(), hs::max_counted_requesters + 1),
           "distinct requesters");
      same(index[at].depth * setup_.block, n->end, "depth");
      same(index[at].units, n->blocks.size(), "units on a node");
    }
  }

  template <class Handle>
  void compare_object(Handle h, const Object& m, hs::NodeIndex node) {
    same(cache_.references(h), m.references, "references");
    check(cache_.published(h) == (m.node != nullptr), "published");
    if (m.node == nullptr) return;
    same(cache_.published_step(h), m.published, "published step");
    auto const& index = cache_.index();
    check(index.alive(node) && index[node].depth * setup_.block == m.node->end,
          "an object hangs on its boundary");
  }

  void compare() {
    Organization const& o = cache_.organization();
    hs::Usage const usage = cache_.usage();
    for (int p = 0; p < Organization::pools; ++p) {
      hs::UnitPool const& pool = o.pool(p);
      auto it = model_.list(p).begin();
      Units position = 0;
      for (hs::UnitIndex u = pool.front(); u; u = pool.next(u), ++it, ++position) {
        if (it == model_.list(p).end() || *it != u.value) {
          check("the list differs at " + std::to_string(position) + ": " + show(p));
          return;
        }
      }
      check(it == model_.list(p).end(), "the list is as long as the model's");
      Units referenced = 0;
      for (std::int32_t i = 0; i < static_cast<std::int32_t>(pool.capacity()); ++i) {
        Unit const m = model_.unit(p, i);
        same(static_cast<int>(pool.owner({i})), static_cast<int>(m.owner), "owner kind");
        if (m.owner != Owner::none) same(pool.owner_handle({i}), m.handle, "owner");
      }
      Units const keyless = model_.keyless(p);
      Units const listed = static_cast<Units>(model_.list(p).size());
      Units const fenced = model_.fenced(p);
      Units const kept = p == Organization::state_pool ? model_.kept_slabs() : 0;
      referenced = pool.capacity() - listed - fenced - kept;
      same(usage.pool[p].keyless, keyless, "keyless");
      same(usage.pool[p].cached, listed - keyless + kept, "cached");
      same(usage.pool[p].fenced, fenced, "fenced");
      same(usage.pool[p].referenced, referenced, "referenced");
      same(cache_.available()[p], listed, "available");
    }
    same(usage.attention_payload, model_.payload_tokens() * o.attention_payload_bytes_per_token(),
         "payload");
    same(usage.state_payload, model_.states().size() * o.state_payload_bytes(), "state payload");
    for (auto const& [h, m] : model_.blocks())
      compare_object(hs::AttentionHandle{h}, m, cache_.node(hs::AttentionHandle{h}));
    for (auto const& [h, m] : model_.states()) {
      compare_object(hs::StateHandle{h}, m, cache_.node(hs::StateHandle{h}));
      std::size_t i = 0;
      o.for_each_own_unit(hs::StateHandle{h},
                          [&](int, hs::UnitIndex u) { same(u.value, m.units[i++], "a member"); });
      for (std::size_t g = 0; g < m.slots.size(); ++g)
        same(o.conv_line(hs::StateHandle{h}, static_cast<int>(g)),
             m.slots[g].first * static_cast<int>(slots()) + m.slots[g].second, "a line");
    }
    for (std::size_t i = 0; i < live_.size(); ++i) compare_sequence(static_cast<int>(i));
    same(cache_.running(), model_.running(), "running");
    if (!std::is_same_v<Order, hs::PaperOrder> && !setup_.invalidations &&
        setup_.options.pinning.distinct == 0)
      check_no_orphans();  // a pin holds a state and not its attention
    same(cache_.index().size(), model_.node_count(), "nodes");
    hs::CacheCounters const& c = cache_.counters();
    hs::CacheCounters const& m = model_.counters;
    same(c.refusals, m.refusals, "refusals");
    same(c.admissions, m.admissions, "admissions");
    same(c.waits_for_pending, m.waits_for_pending, "waits for pending");
    same(c.reserves, m.reserves, "reserves");
    same(c.failed_reserves, m.failed_reserves, "failed reserves");
    same(c.reserves_without_need, m.reserves_without_need, "reserves without need");
    same(c.published_blocks, m.published_blocks, "published blocks");
    same(c.published_checkpoints, m.published_checkpoints, "published checkpoints");
    same(c.lost_blocks, m.lost_blocks, "lost blocks");
    same(c.lost_checkpoints, m.lost_checkpoints, "lost checkpoints");
    same(c.reclaimed_units, m.reclaimed_units, "reclaimed units");
    same(c.cross_invalidations, m.cross_invalidations, "cross-invalidations");
    same(c.slab_pops, m.slab_pops, "slab pops");
    same(c.preemptions, m.preemptions, "preemptions");
    same(c.releases, m.releases, "releases");
    same(c.eligible_boundaries, m.eligible_boundaries, "eligible boundaries");
    same(c.retained, m.retained, "retained boundaries");
    same(c.retained_yielded, m.retained_yielded, "retained boundaries given up");
    same(c.pins, m.pins, "pins");
    same(c.pins_over_budget, m.pins_over_budget, "pins over budget");
    same(c.pins_yielded, m.pins_yielded, "pins given up");
    same(c.tails_grown, m.tails_grown, "tails grown");
    same(c.tails_filled, m.tails_filled, "tails that filled their slab");
    same(c.tail_copies, m.tail_copies, "tail copies");
    same(c.tail_copied_bytes, m.tail_copied_bytes * o.attention_payload_bytes_per_token(),
         "bytes of tail copies");
    for (std::size_t i = 0; i < cache_.copies().size() && i < model_.copy_list().size(); ++i) {
      same(cache_.copies()[i].from.value, model_.copy_list()[i].first, "a copy's source");
      same(cache_.copies()[i].to.value, model_.copy_list()[i].second, "a copy's target");
    }
  }
  void compare_sequence(int s) {
    Sequence const& m = model_.sequence(s);
    hs::SequenceHandle const seq = handle(s);
    if (live_[z(s)].status != Status::free)
      same(cache_.pinned(seq).value, m.pinned, "the pinned boundary");
    if (live_[z(s)].status != Status::active) return;
    auto const retained = cache_.retained(seq);
    same(retained.size(), m.retained.size(), "retained boundaries of a sequence");
    for (std::size_t i = 0; i < retained.size() && wrong_.empty(); ++i)
      same(retained[i].state.value, m.retained[i].state, "a retained boundary");
    same(cache_.position(seq), m.position, "position");
    same(cache_.reserved(seq), m.reserved, "reserved");
    same(cache_.kv_valid_until(seq), m.valid, "kv_valid_until");
    auto const blocks = cache_.blocks(seq);
    same(blocks.size(), m.blocks.size(), "blocks of a sequence");
    for (std::size_t i = 0; i < blocks.size() && wrong_.empty(); ++i) {
      same(blocks[i].value, m.blocks[i], "a block of a sequence");
      check(cache_.references(blocks[i]) > 0, "every block that is held is referenced");
    }
    auto const states = cache_.states(seq);
    same(states.size(), m.states.size(), "states of a sequence");
    for (std::size_t i = 0; i < states.size() && wrong_.empty(); ++i) {
      same(states[i].state.value, m.states[i].state, "a state of a sequence");
      same(states[i].boundary, m.states[i].boundary, "the boundary of a state");
    }
    if (m.reserved > 0) same(cache_.first_target(seq), m.first_target, "first target");
  }
  /// Path safety: every checkpoint can still be reached.
  void check_no_orphans() {
    check(model_.protected_reclaims == 0, "attention under a live state was reclaimed");
    for (auto const& [h, m] : model_.states())
      for (Node const* n = m.node; n != nullptr && n->end > 0; n = n->parent)
        check(!n->blocks.empty(), "an orphan checkpoint");
  }
  std::string show(int p) {
    std::ostringstream out;
    auto const& pool = cache_.organization().pool(p);
    for (hs::UnitIndex u = pool.front(); u; u = pool.next(u))
      out << u.value << (pool.owner(u) == hs::UnitOwner::none ? "- " : " ");
    out << "| the model: ";
    for (int u : model_.list(p)) out << u << (model_.unit(p, u).owner == Owner::none ? "- " : " ");
    return out.str();
  }

  Setup setup_;
  Random random_;
  Cache cache_;
  Model model_;
  std::vector<Live> live_;
  std::vector<std::vector<std::uint64_t>> memory_[2];
  std::vector<std::uint64_t> lines_;
  std::vector<hs::BlockKey> keys_;
  std::string doing_, wrong_;
  Seen seen_;
};

}  // namespace naive
