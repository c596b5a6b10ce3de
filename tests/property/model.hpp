// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A naive joint cache, written from the design documents: literal lists, a tree of explicit tokens,
// counts made by looking at everything. It shares nothing with the library but public value types.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <hybridstate/cache/types.hpp>
#include <hybridstate/policy/greedy_dual.hpp>
#include <hybridstate/policy/reclaim_order.hpp>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace naive {

namespace hs = hybridstate;
using hs::Step;
using hs::TokenId;
using hs::Tokens;
using hs::Units;

template <class T>
constexpr std::size_t z(T i) {
  return static_cast<std::size_t>(i);
}

enum class OrderKind { paper, path_safe, greedy_dual };

/// Everything that the model is told about an organization and the options.
struct Shape {
  int pools = 1;
  int state_pool = 0;
  Units units[2] = {0, 0};
  Tokens block = 0, grid = 0;
  Tokens tail = 0;            ///< tokens of a part of a tail slab; 0: no tails
  Units attention_units = 1;  ///< of a block
  Units state_units = 1;      ///< of a state, without slots
  Units slots_per_state = 0;
  Units slots = 0;  ///< per slab
  Units row_blocks = 0;
  OrderKind order = OrderKind::paper;
  double state_blocks = 1;  ///< bytes of a state over those of an attention block
  double age_of_use = 1;    ///< of the Marconi-like score
  hs::ScoreRule score;
  hs::BranchPoints branch_points;
  hs::SlabPosition slab_position = hs::SlabPosition::by_last_state;
  hs::PlacementKind placement = hs::PlacementKind::dense;
  Units every = 1;
  bool fences = false, reuse = false;
  hs::Retention retention;
  hs::Pinning pinning;
  std::uint32_t max_sequences = 0;
  std::uint32_t nodes = 0;
};

struct Node {
  Node* parent = nullptr;
  std::vector<TokenId> tokens;  ///< of this block; empty for a root
  std::pair<std::uint64_t, std::string> root;
  Tokens end = 0;
  std::map<std::vector<TokenId>, std::unique_ptr<Node>> children;
  std::vector<int> blocks, states;  ///< handles, oldest first
  std::uint32_t kids = 0, exits = 0;
  std::uint32_t passed = 0;       ///< requests, as branch points count them
  std::uint32_t passed_gone = 0;  ///< most of a child that is no more
  std::set<std::uint64_t> requesters;
  std::uint64_t touched = 0;
  std::uint64_t bared = ~std::uint64_t{0};
  bool entered = false;  ///< touched by an enter(), not only made by a publication
};

struct Object {
  bool attention = false;
  std::vector<int> units;
  std::vector<std::pair<int, int>> slots;  ///< (slab unit, slot), per recurrent group
  int references = 0;
  bool fenced = false;
  Step fenced_at = 0;
  Node* node = nullptr;
  Step published = 0;
  Tokens filled = 0;
  int slab = -1;  ///< of a tail, which has no units of its own
  std::uint64_t released = 0;
  double clock = 0;  ///< of the greedy-dual order, at its publication or last adoption
};

struct Held {
  int state = -1;
  Tokens boundary = 0;
};

enum class Status { free, active, preempted };

struct Sequence {
  Status status = Status::free;
  Tokens position = 0, reserved = 0, prompt = 0, junction = 0, valid = 0;
  std::vector<int> blocks;
  std::size_t old_blocks = 0;
  std::vector<Held> states;
  std::size_t first_target = 0, fresh = 0;
  Node* tip = nullptr;
  std::vector<Held> retained;  ///< kept by retention, shallowest first
  int adopted = -1;
  int decoded = -1;  ///< the last state that decode left behind, where and when it was published
  Node* decoded_at = nullptr;
  Step decoded_in = 0;
  int pinned = -1;  ///< while preempted
  std::uint64_t preempted_at = 0;
  int copy_from = -1, copied_from = -1, copied_to = -1;
  int tail = -1;         ///< the tail before the open reserve, if that changed it in place
  Units tail_parts = 0;  ///< how long it was
  bool moved = false;    ///< the open reserve copied it
};

struct Request {
  std::vector<TokenId> tokens;  ///< at least `length`
  Tokens length = 0;
  std::uint64_t salt = 0;
  std::string extra;
};

struct Found {
  Tokens attention = 0, recurrent = 0, joint = 0, raw = 0, settled = 0;
  bool pending = false;
  Node* joint_node = nullptr;
  Node* raw_node = nullptr;
};

struct Answer {
  hs::Refusal refusal = hs::Refusal::none;
  int pool = -1;
  hs::PoolUnits need, available;
  int sequence = -1;
  Found match;
};

enum class Owner { none, attention, state, slab };
struct Unit {
  Owner owner = Owner::none;
  int handle = -1;
};

enum class Why { reassigned, carrier, reclaimed, invalidated, other };

class Model {
 public:
  explicit Model(const Shape& shape) : shape_(shape), sequences_(shape.max_sequences) {
    for (int p = 0; p < shape.pools; ++p) {
      unit_[p].resize(shape.units[p]);
      for (Units u = 0; u < shape.units[p]; ++u) list_[p].push_back(static_cast<int>(u));
    }
    for (int i = static_cast<int>(shape.max_sequences); i-- > 0;) free_.push_back(i);
  }

  /// Tells which of several equally old nodes the code removed: asked for each candidate.
  std::function<bool(const Node&)> vanished;
  /// What the code's NextUses says.
  std::function<std::uint64_t(const Node&)> next_use;
  std::string complaint;

  const std::list<int>& list(int pool) const { return list_[pool]; }
  Unit unit(int pool, int u) const { return unit_[pool][z(u)]; }
  const std::map<int, Object>& blocks() const { return blocks_; }
  const std::map<int, Object>& states() const { return states_; }
  const Sequence& sequence(int s) const { return sequences_[z(s)]; }
  Step step() const { return step_; }
  std::uint32_t node_count() const { return nodes_; }
  int running() const {
    int n = 0;
    for (auto const& s : sequences_) n += s.status == Status::active ? 1 : 0;
    return n;
  }
  std::size_t copies() const { return copies_.size(); }
  const std::vector<std::pair<int, int>>& copy_list() const { return copies_; }
  hs::CacheCounters counters;

  void begin_step() {
    ++step_;
    copies_.clear();
  }

  void complete(Step n) {
    while (!fences_.empty()) {
      auto const [attention, handle] = fences_.front();
      Object& o = object(attention, handle);
      if (o.fenced_at > n) break;
      fences_.pop_front();
      o.fenced = false;
      settle(attention, handle);
    }
  }

  // --- discovery ---------------------------------------------------------------------------------

  struct Entered {
    Tokens known = 0;
    bool split = false;
  };
  Entered enter(const Request& r, std::uint64_t requester) {
    Entered e;
    ++stamp_;
    Node* at = root(r, nullptr);
    if (at == nullptr) return e;
    std::vector<Node*> path{at};
    Tokens const full = r.length / shape_.block * shape_.block;
    bool known = true;
    for (Tokens b = 0; b < full; b += shape_.block) {
      Node* next = child(at, r.tokens, b);
      if (next == nullptr) {
        if (known && e.known > 0) {
          count_exit(at);
          e.split = at->kids > 0;
        }
        known = false;
        next = make_child(at, r.tokens, b, at);
        if (next == nullptr) break;
      } else if (known) {
        e.known = b + shape_.block;
      }
      at = next;
      path.push_back(at);
      std::uint32_t const before = distinct(at);
      at->requesters.insert(requester);
      if (distinct(at) > before && distinct(at) == shape_.retention.distinct &&
          at->end % shape_.grid == 0)
        ++counters.eligible_boundaries;
    }
    if (known && e.known > 0) count_exit(at);
    for (Node* n : path) {
      n->touched = stamp_;
      n->entered = true;
      if (n->parent != nullptr) n->passed = std::min(255U, n->passed + 1);
    }
    return e;
  }

  Found lookup(const Request& r) const {
    Found f;
    auto const it = roots_.find({r.salt, r.extra});
    if (it == roots_.end() || r.length == 0) return f;
    Node* n = it->second.get();
    bool contiguous = true, all_settled = true;
    for (Tokens b = 0; b + shape_.block <= r.length; b += shape_.block) {
      n = child(n, r.tokens, b);
      if (n == nullptr) break;
      Tokens const end = b + shape_.block;
      contiguous = contiguous && !n->blocks.empty();
      if (contiguous) {
        f.raw = end;
        all_settled = all_settled && blocks_.at(n->blocks.front()).published != step_;
        if (all_settled) {
          f.settled = end;
          f.raw_node = n;
        }
      }
      if (end <= r.length - 1 && !n->states.empty()) {
        f.recurrent = end;
        if (contiguous) {
          f.joint = end;
          f.joint_node = n;
          f.pending = !all_settled || states_.at(n->states.front()).published == step_;
        }
      }
    }
    for (Tokens b = shape_.grid; b <= f.raw && b <= r.length - 1; b += shape_.grid) f.attention = b;
    return f;
  }

  // --- admission ---------------------------------------------------------------------------------

  Answer admit(int into, const Request& r, Tokens max_tokens, const hs::FixedHeadroom& gate,
               Tokens junction = 0) {
    Answer a;
    a.match = lookup(r);
    Tokens const longest = std::max(max_tokens, r.length);
    auto refuse = [&](hs::Refusal why, int pool, hs::PoolUnits need, hs::PoolUnits have) {
      a.refusal = why;
      a.pool = pool;
      a.need = need;
      a.available = have;
      ++counters.refusals;
      if (why == hs::Refusal::wait_pending) ++counters.waits_for_pending;
      return a;
    };
    Units const in_two_places = shape_.tail > 0 ? 1 : 0;
    hs::PoolUnits const alone = need(ceil(longest) + in_two_places, std::min<Units>(2, longest),
                                     nullptr, hs::SlabUse::none);
    for (int p = 0; p < shape_.pools; ++p)
      if (alone[p] > shape_.units[p])
        return refuse(hs::Refusal::never_fits, p, alone, {{shape_.units[0], shape_.units[1]}});
    if (ceil(longest) > shape_.row_blocks) return refuse(hs::Refusal::too_long, -1, {}, {});
    if (into < 0 && free_.empty()) return refuse(hs::Refusal::sequences, -1, {}, {});
    if (a.match.pending) return refuse(hs::Refusal::wait_pending, -1, {}, {});
    a.need = admission_need(r, junction, a.match, 1000000);
    if (running() > 0) {
      if (!fits(a.need, {})) {
        auto const [why, pool] = shortage(a.need);
        return refuse(why, pool, a.need, available());
      }
      for (int p = 0; p < shape_.pools; ++p)
        if (a.need[p] + gate.headroom[p] + std::min(gate.adaptive[p], guarded()[p]) >
            available()[p])
          return refuse(hs::Refusal::wait_units, p, a.need, available());
    } else if (!fits(a.need, {})) {
      a.need = admission_need(r, junction, a.match, a.match.joint > 0 ? 1 : 2);
      for (int victim; !fits(a.need, {}) && (victim = oldest_pin(into)) >= 0;) {
        dereference(false, std::exchange(sequences_[z(victim)].pinned, -1));
        ++counters.pins_yielded;
        a.need = admission_need(r, junction, a.match, a.match.joint > 0 ? 1 : 2);
      }
      if (!fits(a.need, {})) {
        if (!fences_.empty()) return refuse(hs::Refusal::wait_fence, -1, a.need, available());
        a.match.joint = 0;
        a.match.joint_node = nullptr;
        a.need = admission_need(r, junction, a.match, 2);
        if (!fits(a.need, {})) {
          a.match.settled = 0;
          a.match.raw_node = nullptr;
          drop_cached();
          a.need = admission_need(r, junction, a.match, 2);
        }
      }
    }
    Node* const r0 = root(r, nullptr);
    int seq = into;
    if (seq < 0) {
      seq = free_.back();
      free_.pop_back();
    }
    Sequence& s = sequences_[z(seq)];
    int const pin = s.pinned;
    s = {};
    s.status = Status::active;
    s.prompt = r.length;
    s.junction = junction;
    s.position = a.match.joint;
    s.tip = a.match.joint > 0 ? a.match.joint_node : r0;
    for (int handle : adopted(a.match)) {
      reference(true, handle);
      s.blocks.push_back(handle);
    }
    s.valid = static_cast<Tokens>(s.blocks.size()) * shape_.block;
    if (a.match.joint > 0) {
      int const state = a.match.joint_node->states.front();
      reference(false, state);
      s.states.push_back({state, a.match.joint});
      s.adopted = state;
      use(states_.at(state));
    }
    if (shape_.branch_points.protect && ++admitted_ % shape_.branch_points.halving == 0)
      for (auto& [key, n] : roots_) halve(*n);
    if (pin >= 0) dereference(false, pin);
    a.sequence = seq;
    a.available = available();
    ++counters.admissions;
    return a;
  }

  int fork(int parent) {
    if (free_.empty()) return -1;
    int const child = free_.back();
    free_.pop_back();
    Sequence const& p = sequences_[z(parent)];
    Sequence& s = sequences_[z(child)];
    s = p;
    s.states.clear();
    s.retained.clear();
    s.adopted = s.decoded = -1;
    s.fresh = 0;
    s.copy_from = s.copied_from = s.copied_to = -1;
    s.blocks.resize(ceil(p.position));
    s.valid = std::min(p.valid, p.position / shape_.block * shape_.block);
    for (int b : s.blocks) reference(true, b);
    if (p.position % shape_.block != 0) s.copy_from = s.blocks[p.position / shape_.block];
    if (!p.states.empty()) {
      reference(false, p.states.back().state);
      s.states.push_back(p.states.back());
      s.adopted = s.states.back().state;
    }
    ++counters.admissions;
    return child;
  }

  // --- reserve, commit, abort --------------------------------------------------------------------

  Answer reserve(int seq, Tokens n) {
    Sequence& s = sequences_[z(seq)];
    Answer a;
    ++counters.reserves;
    Tokens const end = s.position + n;
    Units const after = std::max(ceil(end), static_cast<Units>(s.blocks.size()));
    auto fail = [&](hs::Refusal why, int pool, hs::PoolUnits need, hs::PoolUnits have) {
      a.refusal = why;
      a.pool = pool;
      a.need = need;
      a.available = have;
      ++counters.failed_reserves;
      return a;
    };
    if (after > shape_.row_blocks) return fail(hs::Refusal::too_long, -1, {}, {});
    Cover cover = covering(s, end);
    if (cover.copy && copies_.size() == shape_.max_sequences)
      return fail(hs::Refusal::wait_pending, -1, {}, {});
    std::vector<Tokens> inside;
    for (Tokens p = s.position + 1; p < end; ++p)
      if (keeps(s, p)) inside.push_back(p);
    bool in_place = false;
    if (!s.states.empty()) {
      Object const& o = states_.at(s.states.back().state);
      in_place = o.node == nullptr && o.references == 1;
    }
    Units const states = static_cast<Units>(inside.size()) + (in_place ? 0 : 1);
    Units blocks = cover.take;

    // The states that the last step left behind go back first, deepest first; what is discoverable
    // could be taken back if the reserve failed.
    hs::PoolUnits extra;
    if (slab_that_goes(s) >= 0) extra[0] += shape_.attention_units;
    Units private_slots = 0;
    std::vector<int> retired;
    for (std::size_t i = s.states.size(); i-- > 1;) {
      int const state = s.states[i - 1].state;
      Object const& o = states_.at(state);
      if (o.node != nullptr) {
        if (retains(s, state)) continue;
        dereference(false, state);
        retired.push_back(state);
      } else if (o.references == 1 && !shape_.fences) {
        extra[shape_.state_pool] += shape_.state_units;
        private_slots = shape_.slots_per_state;
      }
    }
    hs::PoolUnits want = need(blocks, states, nullptr, hs::SlabUse::each);
    if (private_slots > 0)
      want[shape_.state_pool] =
          blocks * shape_.attention_units + states * (shape_.state_units + private_slots);
    if (!fits(want, extra) && !yield_retained(want, extra, blocks, states) &&
        !yield_pins(want, extra, blocks, states)) {
      hs::PoolUnits alone = extra;
      alone[shape_.state_pool] += kept_slabs();
      if (running() != 1 || !fits(need(blocks, states, nullptr, hs::SlabUse::active), alone)) {
        // What the retry gives back behind its fence counts as such.
        hs::Refusal const why = shortage(want).first;
        for (std::size_t i = retired.size(); i-- > 0;) reference(false, retired[i]);
        if (running() == 1 && retaining_ && shape_.retention.mode != hs::RetentionMode::none) {
          // Nobody who runs alone fails for what it would retain.
          retaining_ = false;
          --counters.reserves;
          a = reserve(seq, n);
          retaining_ = true;
          return a;
        }
        s.fresh = 0;
        return fail(why, shortage(want).second, want, available());
      }
      drop_cached();
    }
    std::vector<Held> const left = left_behind(s);
    retain(s);
    for (std::size_t i = s.states.size(); i-- > 1;) {
      auto const it = states_.find(s.states[i - 1].state);
      bool const was_retired =
          std::find(retired.begin(), retired.end(), s.states[i - 1].state) != retired.end();
      if (it != states_.end() && !was_retired) dereference(false, it->first);
    }
    supersede(s, left);
    if (s.states.size() > 1) s.states.erase(s.states.begin(), s.states.end() - 1);
    if (s.copied_from >= 0) dereference(true, s.copied_from);
    s.copied_from = s.copied_to = -1;
    cover = covering(s, end);
    if (cover.take > blocks) complaint = "what is given back makes a reserve take more";
    blocks = cover.take;
    want = need(blocks, states, nullptr, hs::SlabUse::all);
    if (!fits(want, {})) complaint = "a reserve that was granted needs more than there is";
    if (shape_.order != OrderKind::paper)
      for (int p = 0; p < shape_.pools; ++p) make_keyless(p, want[p]);
    if (shape_.order == OrderKind::greedy_dual) {
      int const p = shape_.state_pool;
      auto const now = [&] { return need(blocks, states, nullptr, hs::SlabUse::all)[p]; };
      while (keyless(p) < now()) make_keyless(p, now());  // with a slab went its free slots
    }
    s.old_blocks = s.blocks.size();
    s.tail = -1;
    s.moved = false;
    if (cover.grows || cover.fills) {
      s.tail = s.blocks.back();
      s.tail_parts = parts_of(s.tail);
      if (cover.grows) {
        resize(s.tail, cover.open);
        ++counters.tails_grown;
      } else {
        s.blocks.back() = fill(s.tail);
        ++counters.tails_filled;
      }
    }
    while (s.blocks.size() < after)
      s.blocks.push_back(s.blocks.size() + 1 == after ? take_block(cover.last) : take_block(0));
    if (cover.copy) {
      int const to = take_block(cover.open);
      if (s.copy_from < 0) {
        s.moved = true;
        s.copy_from = s.blocks[s.position / shape_.block];
        ++counters.tail_copies;
        counters.tail_copied_bytes += s.position % shape_.block;
      }
      s.blocks[s.position / shape_.block] = to;
      blocks_.at(to).filled = s.position % shape_.block;
      copies_.emplace_back(s.copy_from, to);
      s.copied_from = s.copy_from;
      s.copied_to = to;
      s.copy_from = -1;
    }
    inside.push_back(end);
    s.fresh = states;
    s.first_target = s.states.size() - (in_place ? 1 : 0);
    std::size_t next = 0;
    if (in_place) s.states.back().boundary = inside[next++];
    for (; next < inside.size(); ++next) s.states.push_back({take_state(), inside[next]});
    s.reserved = n;
    if (blocks == 0 && states == 0) ++counters.reserves_without_need;
    return a;
  }

  void commit(int seq, const std::vector<TokenId>& history) {
    Sequence& s = sequences_[z(seq)];
    Tokens const begin = s.position, end = begin + s.reserved;
    s.position = end;
    s.reserved = 0;
    for (Tokens t = std::max(begin, s.valid); t < end; ++t)
      ++blocks_.at(s.blocks[t / shape_.block]).filled;
    for (Tokens b = begin / shape_.block * shape_.block; b + shape_.block <= end;
         b += shape_.block) {
      if (s.tip == nullptr) break;
      Node* next = child(s.tip, history, b);
      if (next == nullptr) next = make_child(s.tip, history, b, s.tip);
      s.tip = next;
      int const handle = s.blocks[b / shape_.block];
      Object& o = blocks_.at(handle);
      if (next == nullptr || o.node != nullptr || b + shape_.block <= s.valid) continue;
      o.node = next;
      o.published = step_;
      next->blocks.push_back(handle);
      ++counters.published_blocks;
    }
    for (std::size_t i = s.first_target; i < s.states.size(); ++i) {
      Held const& h = s.states[i];
      Object& o = states_.at(h.state);
      if (!keeps(s, h.boundary) || o.node != nullptr) continue;
      Node* n = s.tip;
      while (n != nullptr && n->end > h.boundary) n = n->parent;
      if (n == nullptr || n->end != h.boundary) continue;
      o.node = n;
      o.published = step_;
      use(o);
      n->states.push_back(h.state);
      ++counters.published_checkpoints;
    }
  }

  void abort(int seq) {
    Sequence& s = sequences_[z(seq)];
    if (s.reserved == 0) return;
    s.reserved = 0;
    for (; s.fresh > 0; --s.fresh) {
      int const state = s.states.back().state;
      s.states.pop_back();
      dereference(false, state);
    }
    if (!s.states.empty()) s.states.back().boundary = s.position;
    while (s.blocks.size() > s.old_blocks) {
      int const b = s.blocks.back();
      s.blocks.pop_back();
      dereference(true, b);
    }
    if (s.tail >= 0 && blocks_.count(s.tail) > 0) resize(s.tail, s.tail_parts);
    if (s.tail >= 0 && blocks_.count(s.tail) == 0) s.blocks.back() = unfill(s.tail, s.tail_parts);
    if (s.copied_to < 0) return;
    for (auto it = copies_.begin(); it != copies_.end(); ++it)
      if (it->second == s.copied_to) {
        copies_.erase(it);
        break;
      }
    dereference(true, s.copied_to);
    s.blocks[s.position / shape_.block] = s.copied_from;
    if (!s.moved) s.copy_from = s.copied_from;
    s.copied_from = s.copied_to = -1;
  }

  /// What the next reserve would give back first, now.
  void retire(int seq) {
    Sequence& s = sequences_[z(seq)];
    std::vector<Held> const left = left_behind(s);
    retain(s);
    for (bool const discoverable : {true, false})
      for (std::size_t i = s.states.size(); i-- > 1;) {
        auto const it = states_.find(s.states[i - 1].state);
        if (it == states_.end() || (it->second.node != nullptr) != discoverable) continue;
        if (it->second.references > 0) dereference(false, it->first);
      }
    supersede(s, left);
    if (s.states.size() > 1) s.states.erase(s.states.begin(), s.states.end() - 1);
    if (s.copied_from >= 0) dereference(true, s.copied_from);
    s.copied_from = s.copied_to = -1;
    s.fresh = 0;
  }

  void preempt(int seq) {
    ++counters.preemptions;
    abort(seq);
    if (shape_.pinning.distinct > 0) pin_rightmost(sequences_[z(seq)]);
    leave(seq);
    sequences_[z(seq)].status = Status::preempted;
  }
  void release(int seq) {
    ++counters.releases;
    Sequence& s = sequences_[z(seq)];
    if (s.status == Status::active) leave(seq);
    if (s.pinned >= 0) dereference(false, std::exchange(s.pinned, -1));
    s.status = Status::free;
    free_.push_back(seq);
  }

  // --- invalidation ------------------------------------------------------------------------------

  void invalidate(bool attention, int handle, Why why = Why::invalidated) {
    Object& o = object(attention, handle);
    if (o.node == nullptr) return;
    if (o.references == 0 && !o.fenced) {
      kill(attention, handle, why);
      return;
    }
    forget(attention, handle, why);
    if (attention) return;
    int held = retained_references(handle);
    for (Sequence& s : sequences_) {
      s.retained.erase(std::remove_if(s.retained.begin(), s.retained.end(),
                                      [&](const Held& h) { return h.state == handle; }),
                       s.retained.end());
      if (s.pinned == handle) {
        s.pinned = -1;
        ++held;
      }
    }
    for (; held > 0; --held) dereference(false, handle);
  }
  void invalidate(const Request& r, Tokens from) {
    auto const it = roots_.find({r.salt, r.extra});
    Node* n = it == roots_.end() ? nullptr : it->second.get();
    for (Tokens b = 0; n != nullptr && b + shape_.block <= r.length; b += shape_.block) {
      n = child(n, r.tokens, b);
      if (n == nullptr || b + shape_.block <= from) continue;
      while (!n->states.empty()) invalidate(false, n->states.front());
      while (!n->blocks.empty()) invalidate(true, n->blocks.front());
    }
  }
  void invalidate_since(Step failed) {
    for (bool const attention : {false, true})
      for (int handle : handles(attention))
        if (object(attention, handle).published >= failed) invalidate(attention, handle);
  }
  void clear() {
    for (bool const attention : {false, true})
      for (int handle : handles(attention)) invalidate(attention, handle);
  }

  /// A request that is alone may have all that is cached.
  void drop_cached() {
    for (bool const attention : {false, true})
      for (int handle : handles(attention))
        if (object(attention, handle).references == 0 && !object(attention, handle).fenced)
          kill(attention, handle, Why::other);
  }

  // --- facts -------------------------------------------------------------------------------------

  hs::PoolUnits available() const {
    hs::PoolUnits u;
    for (int p = 0; p < shape_.pools; ++p) u[p] = static_cast<Units>(list_[p].size());
    return u;
  }
  Units keyless(int pool) const {
    Units n = 0;
    for (int u : list_[pool]) n += unit_[pool][z(u)].owner == Owner::none ? 1U : 0U;
    return n;
  }
  /// Units neither listed nor held by something referenced.
  Units fenced(int pool) const {
    Units n = 0;
    for (Units u = 0; u < shape_.units[pool]; ++u) {
      Unit const& x = unit_[pool][u];
      if (x.owner == Owner::attention) n += block_fenced(x.handle) ? 1U : 0U;
      if (x.owner == Owner::state) n += states_.at(x.handle).fenced ? 1U : 0U;
      if (x.owner == Owner::slab) {
        bool any = false, referenced = false;
        for (int s : slabs_.at(static_cast<int>(u)))
          if (s >= 0) {
            any = any || states_.at(s).fenced;
            referenced = referenced || states_.at(s).references > 0;
          }
        n += any && !referenced ? 1 : 0;
      }
    }
    return n;
  }
  /// Slabs without a slot in use that their order keeps out of the list.
  Units kept_slabs() const {
    Units n = 0;
    if (shape_.order == OrderKind::greedy_dual)
      for (auto const& [u, holders] : slabs_) n += active(u) ? 0U : 1U;
    return n;
  }
  /// What a pricing gate would be told, from scratch.
  struct Priced {
    double worthless[2] = {0, 0}, unasked[2] = {0, 0};
    std::map<std::pair<const Node*, int>, std::pair<Tokens, double>> offers;  ///< replay, blocks
  };
  Priced market(const Found& f) const {
    Priced m;
    double const share = shape_.slots > 0 ? 1.0 * shape_.slots_per_state / shape_.slots : 0;
    for (int p = 0; p < shape_.pools; ++p) m.worthless[p] = keyless(p);
    for (auto const& [h, o] : blocks_)
      if (cached(o) && !needed(h)) m.worthless[0] += shape_.attention_units;
    for (auto const& [h, o] : states_) {
      if (!cached(o) || (f.joint > 0 && f.joint_node->states.front() == h)) continue;
      if (o.node->states.front() == h && o.node->exits >= 2) {
        m.offers[{o.node, h}] = {replay(o), shape_.state_blocks + path(o)};
        continue;
      }
      m.unasked[shape_.state_pool] += shape_.state_units + share;
      m.unasked[0] += path(o) * shape_.attention_units;
    }
    return m;
  }
  /// Whole units under cached states at branch points.
  hs::PoolUnits guarded() const {
    double const share = shape_.slots > 0 ? 1.0 * shape_.slots_per_state / shape_.slots : 0;
    double states = 0;
    for (auto const& [h, o] : states_) states += cached(o) && rank(o) > 0 ? 1 : 0;
    hs::PoolUnits units;
    units[shape_.state_pool] = static_cast<Units>(states * (shape_.state_units + share));
    return units;
  }
  std::uint64_t payload_tokens() const {
    std::uint64_t n = 0;
    for (auto const& [h, o] : blocks_) n += o.filled;
    return n;
  }
  /// Unreferenced, discoverable attention that a live state at or below its node still needs, with
  /// nothing else on the node in its place.
  bool needed(int block) const {
    Object const& o = blocks_.at(block);
    return o.node->blocks.size() == 1 && states_below(*o.node) > 0;
  }
  const Node* find_root(const Request& r) const {
    auto const it = roots_.find({r.salt, r.extra});
    return it == roots_.end() ? nullptr : it->second.get();
  }
  const Node* find_child(const Node* n, const std::vector<TokenId>& t, Tokens b) const {
    return child(n, t, b);
  }

 private:
  Object& object(bool attention, int handle) {
    return attention ? blocks_.at(handle) : states_.at(handle);
  }
  std::vector<int> handles(bool attention) const {
    std::vector<int> all;
    for (auto const& [h, o] : attention ? blocks_ : states_)
      if (o.node != nullptr) all.push_back(h);
    return all;
  }
  Units ceil(Tokens t) const { return (t + shape_.block - 1) / shape_.block; }

  bool keeps(const Sequence& s, Tokens b) const {
    if (b == 0) return false;
    switch (shape_.placement) {
      case hs::PlacementKind::dense:
        return b % shape_.grid == 0;
      case hs::PlacementKind::every_kth:
        return b % (shape_.grid * shape_.every) == 0;
      case hs::PlacementKind::last_only:
        return b == s.prompt / shape_.grid * shape_.grid;
      case hs::PlacementKind::junction:
        return b % shape_.grid == 0 &&
               (b == s.prompt / shape_.grid * shape_.grid ||
                b == s.junction / shape_.grid * shape_.grid || b > s.prompt);
    }
    return false;
  }

  // --- the tree ----------------------------------------------------------------------------------

  std::vector<TokenId> piece(const std::vector<TokenId>& t, Tokens b) const {
    return {t.begin() + b, t.begin() + b + shape_.block};
  }
  Node* child(const Node* n, const std::vector<TokenId>& t, Tokens b) const {
    auto const it = n->children.find(piece(t, b));
    return it == n->children.end() ? nullptr : it->second.get();
  }
  Node* root(const Request& r, const Node* keep) {
    auto& slot = roots_[{r.salt, r.extra}];
    if (slot) return slot.get();
    if (!make_room(keep)) {
      roots_.erase({r.salt, r.extra});
      return nullptr;
    }
    auto& fresh = roots_[{r.salt, r.extra}];
    fresh = std::make_unique<Node>();
    fresh->root = {r.salt, r.extra};
    fresh->touched = stamp_;
    ++nodes_;
    return fresh.get();
  }
  Node* make_child(Node* parent, const std::vector<TokenId>& t, Tokens b, const Node* keep) {
    if (!make_room(keep)) return nullptr;
    auto n = std::make_unique<Node>();
    n->parent = parent;
    n->tokens = piece(t, b);
    n->root = parent->root;
    n->end = b + shape_.block;
    n->touched = stamp_;
    ++nodes_;
    ++parent->kids;
    Node* const raw = n.get();
    parent->children[raw->tokens] = std::move(n);
    return raw;
  }
  bool removable(const Node& n, const Node* keep) const {
    if (!n.children.empty() || !n.blocks.empty() || !n.states.empty() || &n == keep) return false;
    for (auto const& s : sequences_)
      if (s.status == Status::active && s.tip == &n) return false;
    return true;
  }
  void collect(Node& n, const Node* keep, std::vector<Node*>& out) {
    if (removable(n, keep)) out.push_back(&n);
    for (auto& [t, c] : n.children) collect(*c, keep, out);
  }
  bool make_room(const Node* keep) {
    if (nodes_ < shape_.nodes) return true;
    std::vector<Node*> all;
    for (auto& [k, r] : roots_)
      if (r) collect(*r, keep, all);
    if (all.empty()) return false;
    std::sort(all.begin(), all.end(),
              [](const Node* a, const Node* b) { return a->touched < b->touched; });
    std::uint64_t least = ~std::uint64_t{0};
    for (Node* n : all)
      if (n->entered && n->bared != stamp_) least = std::min(least, n->touched);
    for (Node* n : all)
      if (vanished(*n)) {
        if (n->entered && n->touched > least) complaint = "a more recently touched node went first";
        --nodes_;
        if (n->parent == nullptr) {
          roots_.erase(n->root);
        } else {
          --n->parent->kids;
          n->parent->passed_gone = std::max(n->parent->passed_gone, n->passed);
          n->parent->bared = stamp_;  // removable only now: the order among equals is not followed
          std::vector<TokenId> const tokens = n->tokens;
          n->parent->children.erase(tokens);
        }
        return true;
      }
    complaint = "a node had to go and none went";
    return false;
  }
  int states_below(const Node& n) const {
    int count = static_cast<int>(n.states.size());
    for (auto const& [t, c] : n.children) count += states_below(*c);
    return count;
  }

  // --- units -------------------------------------------------------------------------------------

  void keyless_front(int pool, int u) {
    unit_[pool][z(u)] = {};
    if (pool == hand_pool_ && u == hand_) return;
    list_[pool].remove(u);
    list_[pool].push_front(u);
  }
  bool listed(int pool, int u) const {
    return std::find(list_[pool].begin(), list_[pool].end(), u) != list_[pool].end();
  }
  bool active(int slab) const {
    for (int s : slabs_.at(slab)) {
      if (s == claimed) return true;
      if (s < 0) continue;
      Object const& o = states_.at(s);
      if (o.references > 0 || o.fenced) return true;
    }
    return false;
  }
  /// Whether a slab lends its free slots before others do.
  bool lends(int slab) const { return shape_.order == OrderKind::greedy_dual || active(slab); }
  Units room(int slab) const {
    auto const& holders = slabs_.at(slab);
    return static_cast<Units>(std::count(holders.begin(), holders.end(), none));
  }

  hs::PoolUnits need(Units blocks, Units states, const Object* adopted, hs::SlabUse use) const {
    hs::PoolUnits n;
    n[0] += blocks * shape_.attention_units;
    n[shape_.state_pool] += states * shape_.state_units;
    if (shape_.slots_per_state == 0) return n;
    Units slots = states * shape_.slots_per_state;
    std::set<int> awake;
    if (use != hs::SlabUse::none)
      for (auto const& [u, holders] : slabs_)
        if (use == hs::SlabUse::active ? active(u) : lends(u)) awake.insert(u);
    if (adopted != nullptr)
      for (auto const& [u, slot] : adopted->slots)
        if (awake.insert(u).second) ++n[shape_.state_pool];
    auto fill = [&](int u) { slots -= std::min(slots, room(u)); };
    for (int u : awake) fill(u);
    if (use == hs::SlabUse::each) {
      n[shape_.state_pool] += slots;
      return n;
    }
    if (use == hs::SlabUse::all)
      for (auto const& [u, holders] : slabs_)
        if (slots > 0 && awake.count(u) == 0 && room(u) > 0) {
          ++n[shape_.state_pool];
          fill(u);
        }
    n[shape_.state_pool] += (slots + shape_.slots - 1) / shape_.slots;
    return n;
  }
  bool fits(hs::PoolUnits n, hs::PoolUnits extra) const {
    for (int p = 0; p < shape_.pools; ++p)
      if (n[p] > available()[p] + extra[p]) return false;
    return true;
  }
  std::pair<hs::Refusal, int> shortage(hs::PoolUnits n) const {
    int pool = 0;
    while (pool + 1 < shape_.pools && n[pool] <= available()[pool]) ++pool;
    bool with_fences = !fences_.empty();
    for (int p = 0; p < shape_.pools; ++p)
      with_fences = with_fences && n[p] <= available()[p] + fenced(p);
    return {with_fences ? hs::Refusal::wait_fence : hs::Refusal::wait_units, pool};
  }
  std::vector<int> adopted(const Found& f) const {
    Tokens const upto = shape_.reuse ? std::max(f.settled, f.joint) : f.joint;
    Node const* n = shape_.reuse && f.settled > f.joint ? f.raw_node : f.joint_node;
    std::vector<int> all;
    for (; n != nullptr && n->end > 0; n = n->parent)
      if (n->end <= upto) all.insert(all.begin(), n->blocks.front());
    return all;
  }
  hs::PoolUnits admission_need(const Request& r, Tokens junction, const Found& f,
                               Units most_states) const {
    auto const blocks = adopted(f);
    Object const* const checkpoint =
        f.joint > 0 ? &states_.at(f.joint_node->states.front()) : nullptr;
    Sequence as_if;
    as_if.prompt = r.length;
    as_if.junction = junction;
    Units states = 1;
    for (Tokens p = f.joint + 1; p < r.length; ++p) states += keeps(as_if, p) ? 1U : 0U;
    Units fresh = ceil(r.length) - static_cast<Units>(blocks.size());
    // Its tail may find a place; it is at most one block.
    Units const parts = fresh > 0 ? parts_for(r.length % shape_.block) : 0;
    if (parts > 0 && place(parts) >= 0) --fresh;
    hs::PoolUnits n = need(fresh, std::min(states, most_states), checkpoint, hs::SlabUse::all);
    for (int b : blocks)
      if (blocks_.at(b).references == 0 && !blocks_.at(b).fenced) n[0] += shape_.attention_units;
    if (checkpoint != nullptr && checkpoint->references == 0 && !checkpoint->fenced)
      n[shape_.state_pool] += shape_.state_units;
    return n;
  }

  /// Takes the front unit; what depends on it leaves the index first.
  int take_front(int pool) {
    int const u = list_[pool].front();
    list_[pool].pop_front();
    hand_pool_ = pool;
    hand_ = u;
    Unit const was = unit_[pool][z(u)];
    if (was.owner == Owner::attention) kill(true, was.handle, Why::reassigned);
    if (was.owner == Owner::state) kill(false, was.handle, Why::reassigned);
    if (was.owner == Owner::slab) {
      ++counters.reclaimed_units;
      ++counters.slab_pops;
      kill_slab(u);
    }
    hand_pool_ = hand_ = -1;
    return u;
  }
  void kill_slab(int u) {
    std::vector<int> const holders = slabs_.at(u);
    std::set<int> done;
    for (int s : holders)
      if (s >= 0 && done.insert(s).second) kill(false, s, Why::carrier);
  }
  std::vector<int> take_units() {
    std::vector<int> units;
    for (Units i = 0; i < shape_.attention_units; ++i) {
      int const u = take_front(0);
      units.push_back(u);
      unit_[0][z(u)] = {Owner::attention, units.front()};
    }
    return units;
  }
  /// A whole block, or a tail of so many parts.
  int take_block(Units parts) {
    Object o;
    o.attention = true;
    o.references = 1;
    if (parts == 0) {
      o.units = take_units();
      blocks_[o.units.front()] = o;
      return o.units.front();
    }
    int handle = place(parts);
    if (handle < 0) {
      std::vector<int> const units = take_units();
      tail_slabs_[units.front()] = {units, std::vector<int>(shape_.block / shape_.tail, none)};
      handle = tail_name(units.front(), 0);
    }
    o.slab = slab_of(handle);
    blocks_[handle] = o;
    occupy(handle, parts);
    return handle;
  }

  // --- tails: runs of parts of a slab, written down part by part ---------------------------------

  struct TailSlab {
    std::vector<int> units;
    std::vector<int> holders;  ///< the tail on each part
  };
  /// How a sequence's attention comes to cover its tokens.
  struct Cover {
    Units take = 0;                     ///< blocks from the pool
    bool copy = false;                  ///< the open block goes elsewhere
    bool grows = false, fills = false;  ///< or stays where it is
    Units open = 0, last = 0;           ///< parts of it, and of the last new block; 0: all
  };
  int tail_name(int slab, Units part) const {
    int const parts = static_cast<int>(shape_.block / shape_.tail);
    return static_cast<int>(shape_.units[0]) + slab * parts + static_cast<int>(part);
  }
  int slab_of(int tail) const {
    int const parts = static_cast<int>(shape_.block / shape_.tail);
    return (tail - static_cast<int>(shape_.units[0])) / parts;
  }
  Units parts_of(int tail) const {
    auto const& holders = tail_slabs_.at(slab_of(tail)).holders;
    return static_cast<Units>(std::count(holders.begin(), holders.end(), tail));
  }
  /// Parts for the first tokens of a block; 0: all of them, or no tails.
  Units parts_for(Tokens tokens) const {
    if (shape_.tail == 0) return 0;
    Units parts = 0;
    while (parts * shape_.tail < tokens) ++parts;
    return parts * shape_.tail == shape_.block ? 0 : parts;
  }
  bool is_free(int slab, Units from, Units parts) const {
    auto const& holders = tail_slabs_.at(slab).holders;
    for (Units i = from; i < from + parts; ++i)
      if (i >= holders.size() || holders[i] != none) return false;
    return true;
  }
  int place(Units parts, const std::set<int>& going = {}) const {
    for (auto const& [slab, on] : tail_slabs_)
      for (Units i = 0; i < on.holders.size(); ++i)
        if (going.count(slab) == 0 && is_free(slab, i, parts)) return tail_name(slab, i);
    return -1;
  }
  Units first_part(int tail) const {
    auto const& holders = tail_slabs_.at(slab_of(tail)).holders;
    return static_cast<Units>(std::find(holders.begin(), holders.end(), tail) - holders.begin());
  }
  bool alone(int tail) const {
    auto const& holders = tail_slabs_.at(slab_of(tail)).holders;
    return std::all_of(holders.begin(), holders.end(),
                       [&](int h) { return h == none || h == tail; });
  }
  void occupy(int tail, Units parts) {
    int const first = tail - tail_name(slab_of(tail), 0);
    for (Units i = 0; i < parts; ++i) tail_slabs_.at(slab_of(tail)).holders[z(first) + i] = tail;
  }
  void vacate(int tail) {
    for (int& h : tail_slabs_.at(slab_of(tail)).holders)
      if (h == tail) h = none;
  }
  void resize(int tail, Units parts) {
    vacate(tail);
    occupy(tail, parts);
  }
  int fill(int tail) {
    int const block = slab_of(tail);
    Object o = blocks_.at(tail);
    o.units = tail_slabs_.at(block).units;
    o.slab = -1;
    tail_slabs_.erase(block);
    blocks_.erase(tail);
    blocks_[block] = o;
    return block;
  }
  int unfill(int tail, Units parts) {
    int const block = slab_of(tail);
    Object o = blocks_.at(block);
    tail_slabs_[block] = {o.units, std::vector<int>(shape_.block / shape_.tail, none)};
    o.units.clear();
    o.slab = block;
    blocks_.erase(block);
    blocks_[tail] = o;
    occupy(tail, parts);
    return tail;
  }
  bool block_fenced(int handle) const {
    auto const slab = tail_slabs_.find(handle);
    if (slab == tail_slabs_.end()) return blocks_.at(handle).fenced;
    auto const& holders = slab->second.holders;
    return std::none_of(holders.begin(), holders.end(),
                        [&](int h) { return h != none && blocks_.at(h).references > 0; });
  }
  /// The slab that the next reserve gives back with the tail's old place on it, or -1.
  int slab_that_goes(const Sequence& s) const {
    if (s.copied_from < 0 || shape_.fences) return -1;
    Object const& o = blocks_.at(s.copied_from);
    return o.slab >= 0 && o.references == 1 && alone(s.copied_from) ? o.slab : -1;
  }
  Cover covering(const Sequence& s, Tokens end) const {
    Cover c;
    auto const held = static_cast<Units>(s.blocks.size());
    Units const after = std::max(ceil(end), held);
    if (after > held) c.last = parts_for(end - (after - 1) * shape_.block);
    c.take = after - held;
    c.open = after > held ? 0 : parts_for(end % shape_.block);
    c.copy = s.copy_from >= 0;
    if (!c.copy && held > 0 && blocks_.at(s.blocks.back()).slab >= 0) {
      int const tail = s.blocks.back();
      Units const had = parts_of(tail);
      if (c.open > had)
        c.grows = is_free(slab_of(tail), first_part(tail) + had, c.open - had);
      else if (c.open == 0)
        c.fills = first_part(tail) == 0 && alone(tail) && blocks_.at(tail).references == 1;
      c.copy = c.open != had && !c.grows && !c.fills;
    }
    c.take += c.copy ? 1 : 0;
    Units const small = c.last > 0 ? c.last : c.copy ? c.open : 0;
    std::set<int> going{slab_that_goes(s)};
    if (c.fills) going.insert(slab_of(s.blocks.back()));
    if (small > 0 && place(small, going) >= 0) --c.take;
    return c;
  }

  int take_state() {
    int const pool = shape_.state_pool;
    Object o;
    o.references = 1;
    for (Units g = 0; g < shape_.slots_per_state; ++g) {
      int slab = -1;
      for (auto const& [u, holders] : slabs_)
        if (slab < 0 && lends(u) && room(u) > 0) slab = u;
      if (slab < 0)
        for (auto const& [u, holders] : slabs_)
          if (slab < 0 && room(u) > 0) slab = u;
      if (slab >= 0) {
        list_[pool].remove(slab);
      } else {
        slab = take_front(pool);
        unit_[pool][z(slab)] = {Owner::slab, slab};
        slabs_[slab] = std::vector<int>(shape_.slots, none);
      }
      auto& holders = slabs_.at(slab);
      auto const slot = std::find(holders.begin(), holders.end(), none) - holders.begin();
      holders[z(slot)] = claimed;
      o.slots.emplace_back(slab, static_cast<int>(slot));
    }
    for (Units i = 0; i < shape_.state_units; ++i) {
      int const u = take_front(pool);
      o.units.push_back(u);
      unit_[pool][z(u)] = {Owner::state, o.units.front()};
    }
    int const handle = o.units.front();
    for (auto const& [slab, slot] : o.slots) slabs_.at(slab)[z(slot)] = handle;
    states_[handle] = o;
    return handle;
  }

  // --- references --------------------------------------------------------------------------------

  void reference(bool attention, int handle) {
    Object& o = object(attention, handle);
    if (o.references++ > 0) return;
    if (o.fenced) {
      o.fenced = false;
      fences_.remove({attention, handle});
    }
    int const pool = attention ? 0 : shape_.state_pool;
    for (int u : o.units) list_[pool].remove(u);
    for (auto const& [slab, slot] : o.slots) list_[pool].remove(slab);
  }
  void dereference(bool attention, int handle) {
    Object& o = object(attention, handle);
    if (--o.references > 0) return;
    if (!shape_.fences) {
      settle(attention, handle);
      return;
    }
    o.fenced = true;
    o.fenced_at = step_;
    fences_.emplace_back(attention, handle);
  }
  /// Unreferenced and past its fence.
  void settle(bool attention, int handle) {
    Object& o = object(attention, handle);
    int const pool = attention ? 0 : shape_.state_pool;
    if (o.node == nullptr) {
      give_back(attention, handle, true);
      return;
    }
    for (int u : o.units) list_[pool].push_back(u);
    o.released = ++clock_;
    for (auto const& [slab, slot] : o.slots)
      if (!lends(slab) && !listed(pool, slab)) slab_enters(slab, true);
  }
  void slab_enters(int slab, bool published) {
    bool front = shape_.slab_position == hs::SlabPosition::front;
    if (shape_.slab_position == hs::SlabPosition::by_last_state) front = !published;
    if (shape_.order == OrderKind::path_safe) front = false;
    auto& l = list_[shape_.state_pool];
    l.insert(front ? l.begin() : l.end(), slab);
  }
  /// Units keyless to the front, one after another; slots free; an empty slab is keyless as well.
  void give_back(bool attention, int handle, bool was_in_use) {
    Object o = object(attention, handle);
    (attention ? blocks_ : states_).erase(handle);
    if (o.slab >= 0) {
      bool const last = alone(handle);
      vacate(handle);
      if (!last) return;
      o.units = tail_slabs_.at(o.slab).units;
      tail_slabs_.erase(o.slab);
    }
    int const pool = attention ? 0 : shape_.state_pool;
    for (int u : o.units) keyless_front(pool, u);
    for (auto const& [slab, slot] : o.slots) {
      auto& holders = slabs_.at(slab);
      // Every slot of this state is given back before anyone may ask who holds the others.
      holders[z(slot)] = none;
      bool const others = std::any_of(holders.begin(), holders.end(),
                                      [&](int s) { return s != none && s != handle; });
      bool const mine = std::find(holders.begin(), holders.end(), handle) != holders.end();
      if (mine) continue;
      if (!others) {
        slabs_.erase(slab);
        keyless_front(pool, slab);
      } else if (was_in_use && !lends(slab) && !listed(pool, slab)) {
        slab_enters(slab, false);
      }
    }
  }

  // --- losses ------------------------------------------------------------------------------------

  void forget(bool attention, int handle, Why why) {
    Object& o = object(attention, handle);
    auto& on = attention ? o.node->blocks : o.node->states;
    on.erase(std::find(on.begin(), on.end(), handle));
    o.node = nullptr;
    ++(attention ? counters.lost_blocks : counters.lost_checkpoints);
    if (why == Why::carrier) ++counters.cross_invalidations;
  }
  void kill(bool attention, int handle, Why why) {
    forget(attention, handle, why);
    if (why == Why::reassigned || why == Why::carrier || why == Why::reclaimed)
      counters.reclaimed_units += attention ? shape_.attention_units : shape_.state_units;
    give_back(attention, handle, false);
  }

  static bool cached(const Object& o) {
    return o.node != nullptr && o.references == 0 && !o.fenced;
  }
  void count_exit(Node* n) const {
    while (n->end % shape_.grid != 0) n = n->parent;
    if (n->parent != nullptr) ++n->exits;
  }
  /// Tokens from the nearest state above.
  Tokens replay(const Object& state) const {
    Node const* n = state.node->parent;
    while (n->parent != nullptr && n->states.empty()) n = n->parent;
    return state.node->end - n->end;
  }
  /// Blocks upward that no other state needs.
  Units path(const Object& state) const {
    Units blocks = 0;
    for (Node const* n = state.node; n->parent != nullptr && states_below(*n) == 1; n = n->parent)
      ++blocks;
    return blocks;
  }
  void use(Object& state) {
    if (shape_.score.kind == hs::StateScore::marconi) score_clock_ += shape_.age_of_use;
    state.clock = score_clock_;
  }
  /// The documented scores.
  double score(const Object& o) const {
    Tokens const blocks = replay(o) / shape_.block;
    double const size = shape_.state_blocks + path(o);
    hs::ScoreRule const& rule = shape_.score;
    if (rule.kind == hs::StateScore::clairvoyant) return -static_cast<double>(next_use(*o.node));
    if (rule.kind == hs::StateScore::greedy_dual)
      return o.clock + (1 + 4.0 * o.node->exits) * blocks / size;
    double const middle = (o.node->end / shape_.block - 0.5 * blocks) * shape_.block;
    return o.clock + rule.alpha * blocks * (1 + rule.context_cost * middle) / size;
  }
  void halve(Node& n) const {
    n.passed /= 2;
    n.passed_gone /= 2;
    for (auto& [t, c] : n.children) halve(*c);
  }
  /// The class of a cached object where branch points are protected: later ones go later.
  int rank(const Object& o) const {
    if (!shape_.branch_points.protect) return 0;
    Node const& n = *o.node;
    if (o.attention) return n.passed >= 2 ? 1 : 0;
    std::uint32_t most = n.passed_gone;
    for (auto const& [t, c] : n.children) most = std::max(most, c->passed);
    return n.passed >= 2 && most < n.passed ? 2 : 0;
  }
  std::pair<int, std::uint64_t> age(const Object& o) const { return {rank(o), o.released}; }
  /// The documented rule of GreedyDual: whether state `a` goes before state `b`.
  bool goes_first(int a, int b) const {
    auto const order = [&](int h) {
      Object const& o = states_.at(h);
      bool const duplicate = o.node->states.front() != h;
      return std::make_tuple(!duplicate, duplicate ? 0 : score(o), o.released);
    };
    return order(a) < order(b);
  }
  /// The documented rule of PathSafeLru: whole objects, by class and release among the allowed. Of
  /// GreedyDual: needless attention, then states.
  void make_keyless(int pool, Units k) {
    bool const greedy = shape_.order == OrderKind::greedy_dual;
    while (keyless(pool) < k) {
      int block = -1, state = -1;
      for (auto const& [h, o] : blocks_)
        if (cached(o) && !needed(h) && (block < 0 || age(o) < age(blocks_.at(block)))) block = h;
      for (auto const& [h, o] : states_)
        if (cached(o) &&
            (state < 0 || (greedy ? goes_first(h, state) : age(o) < age(states_.at(state)))))
          state = h;
      if (shape_.pools == 2 && pool == 1) block = -1;
      if ((greedy || (shape_.pools == 2 && pool == 0)) && block >= 0) state = -1;
      if (block >= 0 && (state < 0 || age(blocks_.at(block)) < age(states_.at(state)))) {
        kill(true, block, Why::reclaimed);
      } else if (state >= 0) {
        Object const& o = states_.at(state);
        if (greedy && shape_.score.kind == hs::StateScore::greedy_dual &&
            o.node->states.front() == state)
          score_clock_ = std::max(score_clock_, score(o));
        kill(false, state, Why::reclaimed);
      } else {
        // Only attention under a state in use is left (its own attention was invalidated).
        ++protected_reclaims;
        auto const it = std::find_if(list_[pool].begin(), list_[pool].end(),
                                     [&](int u) { return unit_[pool][z(u)].owner != Owner::none; });
        if (it == list_[pool].end()) {
          complaint = "nothing is left to reclaim";
          return;
        }
        Unit const x = unit_[pool][z(*it)];
        if (x.owner == Owner::attention) kill(true, x.handle, Why::reclaimed);
        if (x.owner == Owner::state) kill(false, x.handle, Why::reclaimed);
        if (x.owner == Owner::slab) complaint = "an idle slab without a cached state";
      }
    }
  }

  void leave(int seq) {
    abort(seq);
    Sequence& s = sequences_[z(seq)];
    while (!s.blocks.empty()) {
      int const b = s.blocks.back();
      s.blocks.pop_back();
      dereference(true, b);
    }
    std::vector<Held> const left = s.states;
    while (!s.states.empty()) {
      int const h = s.states.back().state;
      s.states.pop_back();
      dereference(false, h);
    }
    supersede(s, left);
    while (!s.retained.empty()) {
      int const h = s.retained.back().state;
      s.retained.pop_back();
      dereference(false, h);
    }
    if (s.copied_from >= 0) dereference(true, s.copied_from);
    s.copy_from = s.copied_from = s.copied_to = -1;
    s.tip = nullptr;
  }

  static std::vector<Held> left_behind(const Sequence& s) {
    return {s.states.begin(), s.states.empty() ? s.states.end() : s.states.end() - 1};
  }
  /// Of the states that decode left behind, the last one stays, and those with other uses.
  void supersede(Sequence& s, const std::vector<Held>& left) {
    if (shape_.placement != hs::PlacementKind::junction) return;
    for (Held const& h : left) {
      auto const now = states_.find(h.state);
      if (h.boundary <= s.prompt || now == states_.end() || now->second.node == nullptr) continue;
      auto const before = states_.find(s.decoded);
      if (before != states_.end() && cached(before->second) &&
          before->second.node == s.decoded_at && before->second.published == s.decoded_in &&
          before->second.node->kids < 2)
        kill(false, s.decoded, Why::other);
      s.decoded = h.state;
      s.decoded_at = now->second.node;
      s.decoded_in = now->second.published;
    }
  }

  // --- retention and pinning ---------------------------------------------------------------------

  /// As far as the library tells requesters apart.
  static std::uint32_t distinct(const Node* n) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(n->requesters.size(), 4));
  }
  bool retains(const Sequence& s, int state) const {
    hs::Retention const& rule = shape_.retention;
    Node const* const n = states_.at(state).node;
    return retaining_ && rule.mode != hs::RetentionMode::none && n != nullptr &&
           (rule.mode == hs::RetentionMode::holders || state != s.adopted) &&
           distinct(n) >= rule.distinct;
  }
  /// What the next step leaves behind and demand keeps: out of the held states, references and all.
  void retain(Sequence& s) {
    for (std::size_t i = 0; i + 1 < s.states.size();) {
      if (states_.count(s.states[i].state) == 0 || !retains(s, s.states[i].state)) {
        ++i;
        continue;
      }
      s.retained.push_back(s.states[i]);
      s.states.erase(s.states.begin() + static_cast<std::ptrdiff_t>(i));
      ++counters.retained;
    }
  }
  int retained_references(int state) const {
    int n = 0;
    for (Sequence const& s : sequences_)
      for (Held const& h : s.retained) n += h.state == state ? 1 : 0;
    return n;
  }
  /// Once a state is given up its slabs may be idle: then every slot may cost a page.
  void widen(hs::PoolUnits& want, Units blocks, Units states) const {
    if (shape_.slots_per_state > 0)
      want[shape_.state_pool] = std::max(
          want[shape_.state_pool],
          blocks * shape_.attention_units + states * (shape_.state_units + shape_.slots_per_state));
  }
  bool yield_retained(hs::PoolUnits& want, hs::PoolUnits extra, Units blocks, Units states) {
    hs::Retention const& rule = shape_.retention;
    if (rule.mode == hs::RetentionMode::none) return false;
    if (rule.yield == hs::RetentionYield::never && running() != 1) return false;
    hs::PoolUnits const before = want;
    std::vector<int> given;
    while (!fits(want, extra)) {
      int least = -1;
      auto const rank = [](const Object& o) {
        return std::make_tuple(distinct(o.node), o.node->end, o.published);
      };
      for (auto const& [h, o] : states_)
        if (o.references > 0 && o.references == retained_references(h) &&
            (least < 0 || rank(o) < rank(states_.at(least))))
          least = h;
      if (least < 0) break;
      given.push_back(least);
      for (int i = retained_references(least); i > 0; --i) {
        dereference(false, least);
      }
      widen(want, blocks, states);
    }
    bool const enough = fits(want, extra);
    if (given.empty() || (!enough && shortage(want).first != hs::Refusal::wait_fence)) {
      for (std::size_t i = given.size(); i-- > 0;)
        for (int k = retained_references(given[i]); k > 0; --k) reference(false, given[i]);
      want = before;
      return false;
    }
    for (int const state : given)
      for (Sequence& s : sequences_)
        s.retained.erase(std::remove_if(s.retained.begin(), s.retained.end(),
                                        [&](const Held& h) { return h.state == state; }),
                         s.retained.end());
    counters.retained_yielded += given.size();
    return enough;
  }

  /// The sequence preempted longest ago that pins, `last` after all others.
  int oldest_pin(int last) const {
    int oldest = -1;
    for (int i = 0; i < static_cast<int>(sequences_.size()); ++i)
      if (i != last && sequences_[z(i)].pinned >= 0 &&
          (oldest < 0 || sequences_[z(i)].preempted_at < sequences_[z(oldest)].preempted_at))
        oldest = i;
    return oldest < 0 && last >= 0 && sequences_[z(last)].pinned >= 0 ? last : oldest;
  }
  void pin_rightmost(Sequence& s) {
    Node* n = s.tip;
    while (n != nullptr && (n->states.empty() || n->end > s.position)) n = n->parent;
    if (n == nullptr || distinct(n) < shape_.pinning.distinct) return;
    int const state = n->states.front();
    std::set<int> pinned{state};
    for (Sequence const& other : sequences_)
      if (other.pinned >= 0) pinned.insert(other.pinned);
    bool const already = std::any_of(sequences_.begin(), sequences_.end(),
                                     [&](const Sequence& x) { return x.pinned == state; });
    auto const units =
        static_cast<double>(pinned.size()) * (shape_.state_units + shape_.slots_per_state);
    if (!already && units > shape_.pinning.protection_budget * shape_.units[shape_.state_pool]) {
      ++counters.pins_over_budget;
      return;
    }
    reference(false, state);
    s.pinned = state;
    s.preempted_at = counters.preemptions;
    ++counters.pins;
  }
  bool yield_pins(hs::PoolUnits& want, hs::PoolUnits extra, Units blocks, Units states) {
    if (running() != 1) return false;
    hs::PoolUnits const before = want;
    std::vector<std::pair<int, int>> given;
    for (int victim; !fits(want, extra) && (victim = oldest_pin(-1)) >= 0;) {
      given.emplace_back(victim, std::exchange(sequences_[z(victim)].pinned, -1));
      dereference(false, given.back().second);
      widen(want, blocks, states);
    }
    bool const enough = fits(want, extra);
    if (enough || shortage(want).first == hs::Refusal::wait_fence) {
      counters.pins_yielded += given.size();
      return enough;
    }
    for (auto const& [victim, state] : given) {
      sequences_[z(victim)].pinned = state;
      reference(false, state);
    }
    want = before;
    return false;
  }

 public:
  std::uint64_t protected_reclaims = 0;

 private:
  static constexpr int none = -1;
  static constexpr int claimed = -2;

  Shape shape_;
  std::vector<Unit> unit_[2];
  std::list<int> list_[2];
  std::map<int, std::vector<int>> slabs_;  ///< unit -> holder of each slot
  std::map<int, TailSlab> tail_slabs_;
  std::map<int, Object> blocks_, states_;
  std::list<std::pair<bool, int>> fences_;
  std::map<std::pair<std::uint64_t, std::string>, std::unique_ptr<Node>> roots_;
  std::uint32_t nodes_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<int> free_;
  std::vector<std::pair<int, int>> copies_;
  int hand_pool_ = -1, hand_ = -1;
  bool retaining_ = true;
  Step step_ = 0;
  std::uint64_t stamp_ = 0, clock_ = 0;
  double score_clock_ = 0;
  std::uint64_t admitted_ = 0;
};

}  // namespace naive
