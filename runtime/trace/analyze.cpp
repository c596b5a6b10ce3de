// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "trace/analyze.hpp"

#include <algorithm>
#include <utility>

namespace hybridstate::runtime {

namespace {

// Handles are small in any trace that a cache wrote; this bounds the tables against others.
constexpr std::int32_t most_handles = 1 << 26;

}  // namespace

const char* depth_class_name(DepthClass c) {
  constexpr const char* names[] = {"zero_zero", "positive_equal", "zero_positive", "deeper",
                                   "shallower"};
  return names[static_cast<int>(c)];
}

DepthClass depth_class(Tokens enter, Tokens adopt) {
  if (adopt < enter) return DepthClass::shallower;
  if (enter == 0) return adopt == 0 ? DepthClass::zero_zero : DepthClass::zero_positive;
  return adopt == enter ? DepthClass::positive_equal : DepthClass::deeper;
}

void EpisodeSums::add(const Episode& e) {
  ++episodes;
  DepthClass const c = depth_class(e.enter, e.adopt);
  ++classes[static_cast<int>(c)];
  enter += e.enter;
  adopt += e.adopt;
  attention_before += e.before.attention;
  attention_now += e.now.attention;
  recurrent_before += e.before.recurrent;
  recurrent_now += e.now.recurrent;
  gap_before += e.gap_before();
  gap_now += e.gap_now();
  bracketed += e.before == e.now ? 0U : 1U;
  decreasing_losses += e.decreasing_losses;
  other_losses += e.other_losses;
  increasing_publications += e.increasing_publications;
  if (c == DepthClass::shallower && e.other_losses > 0) ++shallower_with_other_loss;
  waived += e.waived ? 1U : 0U;
}

std::uint32_t StateHistoryAnalyzer::node_of(std::uint64_t path) {
  auto const [it, fresh] = ids_.emplace(path, static_cast<std::uint32_t>(nodes_.size()));
  if (fresh) nodes_.emplace_back();
  return it->second;
}

StateHistoryAnalyzer::Object& StateHistoryAnalyzer::object(const TraceRecord& r) {
  auto& table = r.object == ObjectKind::attention ? attention_ : checkpoints_;
  auto const at = static_cast<std::size_t>(r.handle);
  if (table.size() <= at) table.resize(at + 1);
  return table[at];
}

void StateHistoryAnalyzer::refresh(Node& n, std::uint64_t step) {
  if (n.step == step) return;
  n.step = step;
  n.attention_fresh = n.checkpoints_fresh = 0;
}

StateHistoryAnalyzer::Supply StateHistoryAnalyzer::supply(std::uint32_t node,
                                                          bool before_step) const {
  Node const& n = nodes_[node];
  if (!before_step || n.step != step_) return {n.attention, n.checkpoints};
  return {n.attention - n.attention_fresh, n.checkpoints - n.checkpoints_fresh};
}

Depths StateHistoryAnalyzer::depths(const Request& request, Tokens tokens, bool before_step) const {
  Depths d;
  if (tokens == 0) return d;
  Tokens const last = tokens - 1;
  std::size_t const blocks = std::min<std::size_t>(request.chain.size(), tokens / block_);
  Tokens raw = 0;
  bool contiguous = true;
  for (std::size_t i = 0; i < blocks; ++i) {
    auto const end = static_cast<Tokens>((i + 1) * block_);
    Supply const s = supply(request.chain[i], before_step);
    contiguous = contiguous && s.attention > 0;
    if (contiguous) raw = end;
    if (s.checkpoints == 0 || end > last) continue;
    d.recurrent = end;
    if (contiguous) d.joint = end;
  }
  d.attention = std::min(raw, last) / grid_ * grid_;
  return d;
}

void StateHistoryAnalyzer::add(const TraceRecord& r) {
  step_ = r.step;
  bool const names_object =
      r.kind == RecordKind::publish || r.kind == RecordKind::loss || r.kind == RecordKind::adopt;
  if (names_object && (r.handle < 0 || r.handle >= most_handles)) {
    ++analysis_.unmatched_events;
    return;
  }
  switch (r.kind) {
    case RecordKind::enter:
      enter(r);
      break;
    case RecordKind::publish:
      publish(r);
      break;
    case RecordKind::loss:
      lose(r);
      break;
    case RecordKind::adopt:
      if (Object const& o = object(r); !o.alive || o.node != node_of(r.path))
        ++analysis_.unmatched_events;
      break;
    case RecordKind::admit:
      admit(r);
      break;
    case RecordKind::preempt:
      ++requests_[r.request].preemptions;
      break;
    case RecordKind::step:
    case RecordKind::executed:
    case RecordKind::allocate:
    case RecordKind::finish:
      break;
  }
}

void StateHistoryAnalyzer::enter(const TraceRecord& r) {
  Request& request = requests_[r.request];
  if (r.kept > request.chain.size()) {  // an earlier entry is missing
    ++analysis_.unmatched_events;
    return;
  }
  request.chain.resize(r.kept);
  for (std::uint64_t path : r.chain) request.chain.push_back(node_of(path));
  auto const id = static_cast<std::uint32_t>(analysis_.episodes.size());
  Episode e;
  e.request = r.request;
  e.preemptions = r.preemptions;
  e.tokens = r.tokens;
  e.entered_ns = r.time_ns;
  e.entered_sequence = r.sequence;
  e.enter = depths(request, r.tokens, false).joint;
  for (std::uint32_t node : request.chain) nodes_[node].waiting.push_back(id);
  request.episode = id;
  joint_.push_back(e.enter);
  analysis_.episodes.push_back(e);
}

void StateHistoryAnalyzer::publish(const TraceRecord& r) {
  ++analysis_.publications;
  std::uint32_t const node = node_of(r.path);
  object(r) = {node, step_, true};
  Node& n = nodes_[node];
  refresh(n, step_);
  bool const attention = r.object == ObjectKind::attention;
  ++(attention ? n.attention_fresh : n.checkpoints_fresh);
  if (++(attention ? n.attention : n.checkpoints) == 1) supply_changed(node, r);
}

void StateHistoryAnalyzer::lose(const TraceRecord& r) {
  ++analysis_.losses;
  ++analysis_.losses_by_cause[static_cast<int>(r.cause)];
  Object& o = object(r);
  std::uint32_t const node = node_of(r.path);
  if (!o.alive || o.node != node) {
    ++analysis_.unmatched_events;
    return;
  }
  o.alive = false;
  Node& n = nodes_[node];
  refresh(n, step_);
  bool const attention = r.object == ObjectKind::attention;
  if (o.step == step_) --(attention ? n.attention_fresh : n.checkpoints_fresh);
  if (--(attention ? n.attention : n.checkpoints) == 0) supply_changed(node, r);
}

void StateHistoryAnalyzer::supply_changed(std::uint32_t node, const TraceRecord& r) {
  bool const loss = r.kind == RecordKind::loss;
  bool const by_allocation = r.cause == LossCause::reassigned || r.cause == LossCause::carrier ||
                             r.cause == LossCause::reclaimed;
  for (std::uint32_t id : nodes_[node].waiting) {
    Tokens& joint = joint_[id];
    // What lies past J cannot lower it, what lies before it cannot raise it.
    if (loss ? r.boundary > joint : r.boundary <= joint) continue;
    Episode& e = analysis_.episodes[id];
    Tokens const now = depths(requests_[e.request], e.tokens, false).joint;
    if (now < joint) {
      ++e.decreasing_losses;
      if (by_allocation && r.request != e.request) ++e.other_losses;
    } else if (now > joint) {
      ++e.increasing_publications;
    }
    joint = now;
  }
}

void StateHistoryAnalyzer::stop_waiting(const Request& request, std::uint32_t episode,
                                        std::size_t blocks) {
  for (std::size_t i = 0; i < std::min(blocks, request.chain.size()); ++i) {
    auto& waiting = nodes_[request.chain[i]].waiting;
    auto const it = std::find(waiting.begin(), waiting.end(), episode);
    if (it != waiting.end()) waiting.erase(it);
  }
}

void StateHistoryAnalyzer::admit(const TraceRecord& r) {
  ++analysis_.admissions;
  Request& request = requests_[r.request];
  if (request.episode < 0 ||
      analysis_.episodes[static_cast<std::size_t>(request.episode)].preemptions !=
          request.preemptions) {
    ++analysis_.unbound_admissions;
    return;
  }
  auto const id = static_cast<std::uint32_t>(std::exchange(request.episode, -1));
  Episode& e = analysis_.episodes[id];
  e.admitted = true;
  e.admitted_sequence = r.sequence;
  e.admitted_step = r.step;
  e.adopt = r.boundary;
  e.before = depths(request, e.tokens, true);
  e.now = depths(request, e.tokens, false);
  e.recorded = {r.attention, r.recurrent, r.joint};
  e.waived = r.joint != r.boundary;
  e.cleared = r.cause == LossCause::cleared;
  stop_waiting(request, id, request.chain.size());
  // The J kept up to date event by event must end where the whole chain says.
  bool const followed = joint_[id] == e.now.joint;
  if (e.tokens != r.tokens || !followed || !e.replayed()) ++analysis_.mismatches;
}

Analysis StateHistoryAnalyzer::finish() {
  for (Episode const& e : analysis_.episodes) {
    if (!e.admitted)
      ++analysis_.never_admitted;
    else
      (e.preemptions == 0 ? analysis_.initial : analysis_.resume).add(e);
  }
  return std::move(analysis_);
}

}  // namespace hybridstate::runtime
