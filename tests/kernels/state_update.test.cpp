// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <hybridstate/kernels/shell/recorder.hpp>

#include "kernels/state_case.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
using runtime::cpu::Carry;

namespace {

template <class E, unsigned N>
StateUpdate<E, N> decode_of(StateCase& c, bool in_place = false, bool with_checkpoint = true) {
  StateUpdate<E, N> k;
  k.in = c.recurrence();
  k.states.destination = c.view(c.destination);
  k.states.source = in_place ? k.states.destination : c.view(c.source);
  if (with_checkpoint) k.checkpoint = c.view(c.checkpoint);
  k.sequences = c.sequences;
  k.tile_rows = k.step;
  return k;
}

bool same(const StateCase& a, const StateCase& b) {
  return std::memcmp(a.pool.data(), b.pool.data(), a.pool_bytes()) == 0 &&
         std::memcmp(a.y.data(), b.y.data(), a.y.size() * sizeof(float)) == 0;
}

template <class E, unsigned N>
void check_decode(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto const up_to = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  StateCase c;
  c.bf16 = sizeof(E) == 2;
  c.groups = 1 + up_to(2);
  c.heads = c.groups * (1 + up_to(3));
  c.rows = 4 + 4 * up_to(10);  // B and C begin at multiples of 16 bytes
  c.state = N;
  c.sequences = 1 + up_to(3);
  c.whole_heads(1 + up_to(c.heads));
  c.draw(seed);
  if (up_to(3) == 0)  // a sequence that begins, one without a checkpoint, a row of padding
    std::fill_n(c.source.begin(), c.map.member_count, -1);
  if (up_to(3) == 0) std::fill_n(c.checkpoint.begin(), c.map.member_count, -1);
  if (up_to(3) == 0) std::fill_n(c.destination.end() - c.map.member_count, c.map.member_count, -1);
  if (up_to(3) == 0) c.source = c.destination;

  StateCase want = c;
  want.run_on_cpu({{1, &want.checkpoint}, {1, &want.destination}},
                  c.bf16 ? Carry::bf16_per_token : Carry::fp32);
  for (ThreadOrder order : {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    StateCase got = c;
    auto kernel = decode_of<E, N>(got);
    kernel.tile_rows *= 1 + up_to(3);
    Interpreter(order, seed).run(kernel);
    CHECK(same(got, want));
  }
}

}  // namespace

TEST_CASE("the decode kernel computes the CPU executor's bits, whatever the order of threads") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    check_decode<Bf16, 64>(seed);
    check_decode<Bf16, 128>(seed);
    check_decode<Bf16, 256>(seed);
    check_decode<float, 64>(seed);
    check_decode<float, 128>(seed);
    check_decode<float, 256>(seed);
  }
}
