// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <hybridstate/core/hash.hpp>
#include <hybridstate/core/types.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

enum class EventKind : std::uint8_t {
  enter,     ///< a request became head of the line for the first time
  publish,   ///< an object became discoverable
  loss,      ///< an object left the index
  adopt,     ///< a new sequence took references on a joint boundary
  allocate,  ///< a sequence took a block or a state
  reclaim,   ///< a cached unit is about to change owner
  refuse,    ///< an admission or a reserve was refused
  admit,
  preempt,
  finish,
};

enum class ObjectKind : std::uint8_t { none, attention, checkpoint, carrier };

enum class LossCause : std::uint8_t {
  none,
  reassigned,   ///< one of its units went to a new owner
  carrier,      ///< the slab with its convolution state went to a new owner
  reclaimed,    ///< the reclaim order chose the whole object
  invalidated,  ///< the caller asked for it
  failed_step,  ///< published in a step that failed
  cleared,      ///< clear(), or everything cached made room for the only request
  superseded,   ///< a deeper state of the same request took its place
};

/// What observers see. Fields that do not apply keep their defaults.
struct Event {
  EventKind kind = EventKind::enter;
  ObjectKind object = ObjectKind::none;
  LossCause cause = LossCause::none;
  std::uint8_t refusal = 0;  ///< a Refusal, for refuse
  std::int8_t pool = -1;     ///< for refuse and reclaim
  Step step = 0;
  std::uint64_t request = 0;  ///< the requester that acted; for loss the one that caused it
  BlockKey key = 0;           ///< of the node the object hangs on
  BlockKey parent_key = 0;
  std::uint64_t path = 0;  ///< PrefixNode::path: names the whole prefix up to the node
  std::uint64_t salt = 0;
  Tokens boundary = 0;  ///< the object covers or is valid at [0, boundary)
  Tokens tokens = 0;    ///< tokens of the object, or adopted, or committed
  std::int32_t handle = -1;
  // For admit: what the lookup found. `boundary` is what was adopted, 0 when a waived admission had
  // to give J up; `cause` is cleared when everything cached had to go.
  Tokens attention = 0;  ///< A
  Tokens recurrent = 0;  ///< R
  Tokens joint = 0;      ///< J
};

/// An observer is called synchronously by the writer. `enabled == false` removes every call.
template <class O>
concept cache_observer = requires(O& o, const Event& e) {
  { O::enabled } -> std::convertible_to<bool>;
  { o.on_event(e) } noexcept;
};

struct NullObserver {
  static constexpr bool enabled = false;
  void on_event(const Event&) noexcept {}
};

static_assert(cache_observer<NullObserver>);

HYBRIDSTATE_NAMESPACE_END
