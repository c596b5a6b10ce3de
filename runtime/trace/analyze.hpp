// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/format.hpp"

namespace hybridstate::runtime {

/// What became of the usable depth between queue entry and adoption.
enum class DepthClass : std::uint8_t {
  zero_zero,       ///< J_enter = J_adopt = 0
  positive_equal,  ///< J_enter = J_adopt > 0: the same depth, not necessarily the same objects
  zero_positive,   ///< nothing at entry, something at adoption
  deeper,          ///< 0 < J_enter < J_adopt
  shallower,       ///< J_adopt < J_enter
};
inline constexpr int depth_classes = 5;
const char* depth_class_name(DepthClass c);
DepthClass depth_class(Tokens enter, Tokens adopt);

/// Depths that the supply of an episode's own prefix allows, each at most its tokens - 1.
struct Depths {
  Tokens attention = 0;  ///< A: deepest checkpoint boundary inside the contiguous attention prefix
  Tokens recurrent = 0;  ///< R: deepest complete checkpoint on the chain
  Tokens joint = 0;      ///< J: deepest boundary with both

  friend bool operator==(const Depths&, const Depths&) = default;
};

/// One admission episode: from joining the line to adoption, named by request and preemption count.
struct Episode {
  std::uint64_t request = 0;
  std::uint32_t preemptions = 0;  ///< 0: INITIAL, else RESUME
  Tokens tokens = 0;              ///< prompt and generated tokens
  std::int64_t entered_ns = 0;
  std::uint64_t entered_sequence = 0;
  bool admitted = false;
  std::uint64_t admitted_sequence = 0;
  std::uint64_t admitted_step = 0;
  Tokens enter = 0;      ///< J_enter, reconstructed from the supply at queue entry
  Tokens adopt = 0;      ///< J_adopt, as the cache recorded it
  Depths before;         ///< M0: from what was published before the admission's step
  Depths now;            ///< M1: also from what was published earlier in that step
  Depths recorded;       ///< what the cache's lookup found
  bool waived = false;   ///< the admission gave its J up because it would not fit otherwise
  bool cleared = false;  ///< everything cached was dropped for it after the lookup
  // Events between entry and adoption that changed the J of this prefix.
  std::uint32_t decreasing_losses = 0;
  std::uint32_t other_losses = 0;  ///< of these: by another request's allocation
  std::uint32_t increasing_publications = 0;

  Tokens gap_before() const noexcept {
    return before.recurrent - std::min(adopt, before.recurrent);
  }
  Tokens gap_now() const noexcept { return now.recurrent - std::min(adopt, now.recurrent); }
  /// The replay gives the adopted depth, and the same A and R as the lookup. A waived admission
  /// must have adopted nothing; where everything was dropped after the lookup, A and R are not
  /// compared.
  bool replayed() const noexcept {
    if (waived) return adopt == 0;
    if (adopt != now.joint || before.joint != now.joint) return false;
    return cleared || now == recorded;
  }
};

/// Sums over the admitted episodes of one class.
struct EpisodeSums {
  std::uint64_t episodes = 0;
  std::uint64_t classes[depth_classes] = {};
  std::uint64_t enter = 0, adopt = 0;                     ///< tokens
  std::uint64_t attention_before = 0, attention_now = 0;  ///< A under M0 and M1
  std::uint64_t recurrent_before = 0, recurrent_now = 0;  ///< R under M0 and M1
  std::uint64_t gap_before = 0, gap_now = 0;              ///< Gap_R
  std::uint64_t bracketed = 0;                            ///< episodes where M0 and M1 differ
  std::uint64_t decreasing_losses = 0, other_losses = 0, increasing_publications = 0;
  std::uint64_t shallower_with_other_loss = 0;
  std::uint64_t waived = 0;

  void add(const Episode& e);
  std::uint64_t in(DepthClass c) const noexcept { return classes[static_cast<int>(c)]; }
};

struct Analysis {
  EpisodeSums initial, resume;
  std::vector<Episode> episodes;  ///< in order of entry
  std::uint64_t admissions = 0;
  std::uint64_t mismatches = 0;          ///< admitted episodes whose replay differs
  std::uint64_t unbound_admissions = 0;  ///< without an entry of that request and preemption count
  std::uint64_t unmatched_events = 0;    ///< losses and adoptions of objects never published
  std::uint64_t never_admitted = 0;
  std::uint64_t publications = 0, losses = 0;
  std::uint64_t losses_by_cause[8] = {};

  bool consistent() const noexcept {
    return mismatches == 0 && unbound_admissions == 0 && unmatched_events == 0;
  }
};

/// Replays a trace's records, in order, and reconstructs each episode's depths. The supply is
/// counted per prefix and kind: a duplicate object lost while another is left changes no depth.
class StateHistoryAnalyzer {
 public:
  StateHistoryAnalyzer(Tokens block_tokens, Tokens checkpoint_tokens)
      : block_(block_tokens), grid_(checkpoint_tokens) {}

  void add(const TraceRecord& record);
  Analysis finish();

 private:
  struct Node {
    std::uint32_t attention = 0;  ///< objects discoverable on this prefix
    std::uint32_t checkpoints = 0;
    std::uint32_t attention_fresh = 0;  ///< of these, published in `step`
    std::uint32_t checkpoints_fresh = 0;
    std::uint64_t step = 0;
    std::vector<std::uint32_t> waiting;  ///< episodes whose prefix contains this one
  };
  struct Object {
    std::uint32_t node = 0;
    std::uint64_t step = 0;
    bool alive = false;
  };
  struct Request {
    std::vector<std::uint32_t> chain;  ///< nodes of its full blocks
    std::uint32_t preemptions = 0;
    std::int64_t episode = -1;  ///< the one that waits
  };
  struct Supply {
    std::uint32_t attention, checkpoints;
  };

  std::uint32_t node_of(std::uint64_t path);
  Object& object(const TraceRecord& r);
  void refresh(Node& n, std::uint64_t step);
  Supply supply(std::uint32_t node, bool before_step) const;
  Depths depths(const Request& request, Tokens tokens, bool before_step) const;
  void enter(const TraceRecord& r);
  void publish(const TraceRecord& r);
  void lose(const TraceRecord& r);
  void admit(const TraceRecord& r);
  void supply_changed(std::uint32_t node, const TraceRecord& r);
  void stop_waiting(const Request& request, std::uint32_t episode, std::size_t blocks);

  Tokens block_;
  Tokens grid_;
  std::uint64_t step_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> ids_;
  std::vector<Node> nodes_;
  std::vector<Object> attention_;
  std::vector<Object> checkpoints_;
  std::unordered_map<std::uint64_t, Request> requests_;
  std::vector<Tokens> joint_;  ///< of each episode, while it waits
  Analysis analysis_;
};

/// Tables for people, and JSON with equal bytes on every machine.
std::string analysis_text(const TraceHeader& header, const Analysis& analysis);
std::string analysis_json(const TraceHeader& header, const Analysis& analysis);

}  // namespace hybridstate::runtime
