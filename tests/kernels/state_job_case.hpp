// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/state_case.hpp"
#include "kernels/target.hpp"

namespace state_test {

using namespace hybridstate::kernels;

inline ElementType type_of(const StateCase& c) {
  return c.bf16 ? ElementType::bf16 : ElementType::f32;
}
inline hybridstate::runtime::Carry carry_of(const StateCase& c) {
  using hybridstate::runtime::Carry;
  return c.bf16 ? Carry::bf16_per_token : Carry::fp32;
}
template <class Targets, class MakeJob, class... Tables>
void check(Targets& targets, const StateCase& c, const StateCase& want, MakeJob job,
           std::vector<Tables>&... tables) {
  for (auto& target : targets) {
    StateCase got = c;
    run_on(target, job(got), got.inputs, got.dt, got.dt_bias, got.a, got.d, got.y, got.pool,
           got.source, got.destination, got.checkpoint, got.working, got.working_source,
           got.working_destination, got.position, tables...);
    CHECK(same_bits(got.pool, want.pool));
    CHECK(same_bits(got.working, want.working));
    CHECK(same_bits(got.y, want.y));
  }
}

/// A decode step of a case that has its shape: the first sequence begins, the second of several is
/// padding, the others leave a checkpoint too.
template <class Targets>
void check_step(Targets& targets, StateCase c, std::uint64_t seed) {
  c.draw(seed);
  std::uint32_t const members = c.map.member_count;
  std::fill_n(c.source.begin(), members, -1);
  if (c.sequences > 1)
    for (auto* table : {&c.destination, &c.checkpoint})
      std::fill_n(table->begin() + members, members, -1);
  StateCase want = c;
  want.run_on_cpu({{1, &want.checkpoint}, {1, &want.destination}}, carry_of(c));
  check(targets, c, want, [](StateCase& of) {
    return StateUpdateJob{of.recurrence(),
                          of.view(of.source),
                          of.view(of.destination),
                          of.view(of.checkpoint),
                          of.sequences,
                          of.state,
                          type_of(of)};
  });
}

/// Two runs of `tokens` tokens: whole heads in pages where rows are in vectors, else heads that
/// pages cut.
template <class Targets>
void check_scan(Targets& targets, bool bf16, std::uint32_t state, std::uint32_t tokens) {
  StateCase c;
  c.bf16 = bf16;
  c.state = state;
  c.sequences = 2;
  c.heads = 4;
  c.rows = 20;
  c.tokens = tokens;
  if (state % 64 == 0)
    c.whole_heads(2);
  else
    c.split_heads(3);
  c.draw(state);
  StateCase want = c;
  want.run_on_cpu({{tokens, &want.destination}}, carry_of(c));
  auto const n = static_cast<std::int32_t>(tokens);
  std::vector<std::int32_t> first{0, n, 2 * n}, kept{0, 1, 2}, after{n, n};
  check(
      targets, c, want,
      [&](StateCase& of) {
        return StateScanJob{
            of.recurrence(),    {first.data(), 2},
            of.view(of.source), {of.view(of.destination), kept.data(), after.data()},
            of.state,           type_of(of)};
      },
      first, kept, after);
}

/// Seven sequences whose states lie in units and beside them: a decode step with checkpoints, which
/// no other kernel takes, then a scan of `tokens` that keeps a state inside. Bits, and bytes.
template <class Targets>
void check_working(Targets& targets, std::uint32_t state, std::uint32_t tokens) {
  using hybridstate::runtime::Carry;
  StateCase c;
  c.state = state;
  c.sequences = 7;
  c.heads = 3;
  c.rows = 20;
  bool const vectors = state % 64 == 0;
  if (vectors)
    c.whole_heads(2);
  else
    c.split_heads(3);
  std::uint32_t const members = c.map.member_count;
  auto const draw = [&] {
    c.draw(state + c.tokens);
    std::fill_n(c.source.begin() + 3 * members, members, -1);  // begins
    for (auto* table : {&c.destination, &c.checkpoint})        // padding
      std::fill_n(table->begin() + 5 * members, members, -1);
    c.working = {}, c.working_source = {}, c.working_destination = {}, c.position = {};
    c.draw_working(state);
  };
  if (vectors) {
    draw();
    StateCase want = c;
    want.run_on_cpu({{1, &want.checkpoint}, {1, &want.destination}}, Carry::bf16_at_grid);
    check(targets, c, want, [](StateCase& of) {
      return StateUpdateJob{of.recurrence(),
                            of.view(of.source),
                            of.view(of.destination),
                            of.view(of.checkpoint),
                            of.sequences,
                            of.state,
                            type_of(of),
                            of.working_states(of.working_destination)};
    });
  }
  c.tokens = tokens;
  draw();
  StateCase want = c;
  std::uint32_t const inside = tokens / 2;
  want.run_on_cpu({{inside, &want.checkpoint}, {tokens, &want.destination}}, Carry::bf16_at_grid);
  std::vector<std::int32_t> first, kept{0}, after, pages, working;
  for (std::uint32_t s = 0; s < c.sequences; ++s) {
    first.push_back(static_cast<std::int32_t>(s * tokens));
    if (c.position[s] >= 0)
      for (bool const last : {false, true}) {
        auto const& table = last ? c.destination : c.checkpoint;
        pages.insert(pages.end(), table.begin() + s * members, table.begin() + (s + 1) * members);
        after.push_back(static_cast<std::int32_t>(last ? tokens : inside));
        working.push_back(last ? c.working_destination[s] : -1);
      }
    kept.push_back(static_cast<std::int32_t>(after.size()));
  }
  first.push_back(static_cast<std::int32_t>(c.sequences * tokens));
  check(
      targets, c, want,
      [&](StateCase& of) {
        return StateScanJob{of.recurrence(),
                            {first.data(), of.sequences},
                            of.view(of.source),
                            {of.view(pages), kept.data(), after.data()},
                            of.state,
                            type_of(of),
                            of.working_states(working)};
      },
      first, kept, after, pages, working);
}

}  // namespace state_test
