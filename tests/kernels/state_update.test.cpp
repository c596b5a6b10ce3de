// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "kernels/recording.hpp"
#include "kernels/state_job_case.hpp"
#include "test_scale.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
using runtime::Carry;

namespace {

std::uint64_t seeds(int all) { return 1 + static_cast<std::uint64_t>((all - 1) * test_scale()); }

template <class E, unsigned N>
StateUpdate<E, N> decode_of(StateCase& c, bool in_place = false, bool with_checkpoint = true) {
  StateUpdate<E, N> k;
  k.in = c.recurrence();
  k.destination = c.view(c.destination);
  k.source = in_place ? k.destination : c.view(c.source);
  k.checkpoint = c.view(c.checkpoint);
  k.has_checkpoint = with_checkpoint;
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

/// A scan of `c.tokens` tokens that keeps a checkpoint after `cut` of them (0: none).
template <class Row>
struct ScanCase {
  std::vector<std::int32_t> first, kept_first{0}, after, table;
  StateScan<Row> kernel;

  ScanCase(StateCase& c, std::uint32_t cut) {
    std::uint32_t const members = c.map.member_count;
    auto const keep = [&](const std::vector<std::int32_t>& from, std::uint32_t s, std::uint32_t n) {
      table.insert(table.end(), from.begin() + s * members, from.begin() + (s + 1) * members);
      after.push_back(static_cast<std::int32_t>(n));
    };
    for (std::uint32_t s = 0; s <= c.sequences; ++s)
      first.push_back(static_cast<std::int32_t>(s * c.tokens));
    for (std::uint32_t s = 0; s < c.sequences; ++s) {
      if (c.destination[s * members] >= 0) {
        if (cut > 0) keep(c.checkpoint, s, cut);
        keep(c.destination, s, c.tokens);
      }
      kept_first.push_back(static_cast<std::int32_t>(after.size()));
    }
    kernel.in = c.recurrence();
    kernel.runs = {first.data(), c.sequences};
    kernel.source = c.view(c.source);
    kernel.kept = {c.view(table), kept_first.data(), after.data()};
    kernel.state = c.state;
    kernel.round = c.bf16;
  }
};

template <class Row>
void check_scan(StateCase& c, std::uint64_t seed) {
  CAPTURE(seed);
  CAPTURE(c.state);
  c.draw(seed);
  std::mt19937_64 random(seed);
  if (random() % 3 == 0) c.source = c.destination;
  if (random() % 2 == 0) std::fill_n(c.source.begin(), c.map.member_count, -1);
  if (random() % 3 == 0) std::fill_n(c.checkpoint.begin(), c.map.member_count, -1);
  if (random() % 3 == 0)
    std::fill_n(c.destination.end() - c.map.member_count, c.map.member_count, -1);
  auto const cut = static_cast<std::uint32_t>(random() % (c.tokens + 1));
  std::vector<StateCase::Kept> kept;
  StateCase want = c;
  if (cut > 0) kept.push_back({cut, &want.checkpoint});
  kept.push_back({c.tokens, &want.destination});
  want.run_on_cpu(kept, c.bf16 ? Carry::bf16_per_token : Carry::fp32);
  for (ThreadOrder order : {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    StateCase got = c;
    ScanCase<Row> scan(got, cut);
    Interpreter(order, seed).run(scan.kernel);
    CHECK(same(got, want));
  }
}

/// One sequence of Falcon-H1-7B's recurrent layer.
StateCase falcon_7b(bool bf16, std::uint32_t heads_per_page) {
  StateCase c;
  c.bf16 = bf16;
  c.sequences = 1;
  c.heads = 24;
  c.rows = 128;
  c.state = 256;
  c.page_gap = 0;
  c.spare_pages = 0;
  c.whole_heads(heads_per_page);
  c.draw(7);
  return c;
}

}  // namespace

TEST_CASE("jobs of the recurrence compute the CPU executor's bits") {
  for (bool const bf16 : {true, false}) {
    StateCase c;
    c.bf16 = bf16;
    c.whole_heads(2);
    state_test::check_step(every_order, c, 5);
    for (std::uint32_t const state : {17U, 128U})
      state_test::check_scan(every_order, bf16, state, 5);
  }
}

TEST_CASE("FP32 states beside the units are rounded at the grid alone, as on the CPU") {
  for (std::uint32_t const state : {17U, 64U, 256U})
    state_test::check_working(every_order, state, 4);
  state_test::check_working(every_order, 128, 12);
}

TEST_CASE("working states that no kernel takes are refused") {
  StateCase c;
  c.whole_heads(2);
  c.draw(1);
  c.draw_working(1);
  auto const takes = [&](auto change) {
    StateUpdateJob job{c.recurrence(),        c.view(c.source),
                       c.view(c.destination), {},
                       c.sequences,           c.state,
                       ElementType::bf16,     c.working_states(c.working_destination)};
    change(job);
    return with_kernel(job, [](const auto&) {});
  };
  CHECK(takes([](auto&) {}));
  CHECK_FALSE(takes([](auto& j) { j.type = ElementType::f32; }));
  CHECK_FALSE(takes([](auto& j) { j.working.position = nullptr; }));
  CHECK_FALSE(takes([](auto& j) { j.working.source.pages = nullptr; }));
  CHECK_FALSE(takes([](auto& j) { j.working.destination.base += 4; }));
}

TEST_CASE("the decode kernel computes the CPU executor's bits, whatever the order of threads") {
  for (std::uint64_t seed = 1; seed <= seeds(12); ++seed) {
    CAPTURE(seed);
    check_decode<Bf16, 64>(seed);
    check_decode<Bf16, 128>(seed);
    check_decode<Bf16, 256>(seed);
    check_decode<float, 64>(seed);
    check_decode<float, 128>(seed);
    check_decode<float, 256>(seed);
  }
}

TEST_CASE("a scan computes the CPU executor's bits and leaves states where it is told") {
  for (std::uint64_t seed = 1; seed <= seeds(6); ++seed) {
    StateCase c;
    c.groups = static_cast<std::uint32_t>(1 + seed % 2);
    c.heads = 2 * c.groups;
    c.rows = static_cast<std::uint32_t>(4 * (1 + seed % 5));
    c.sequences = 2;
    c.tokens = static_cast<std::uint32_t>(1 + seed % 4);
    for (bool bf16 : {true, false}) {
      c.bf16 = bf16;
      c.state = 64;
      c.whole_heads(1 + seed % 2);
      bf16 ? check_scan<VectorRow<Bf16, 64>>(c, seed) : check_scan<VectorRow<float, 64>>(c, seed);
      c.state = 256;
      c.whole_heads(1 + seed % 2);
      bf16 ? check_scan<VectorRow<Bf16, 256>>(c, seed) : check_scan<VectorRow<float, 256>>(c, seed);
    }
  }
}

TEST_CASE("rows of any length, cut by pages anywhere, give the CPU executor's bits") {
  std::uint64_t seed = 1;
  for (std::uint32_t state : {1U, 8U, 16U, 17U, 40U, 96U, 128U, 200U, 256U})
    for (bool bf16 : {true, false}) {
      StateCase c;
      c.groups = bf16 ? 2 : 1;
      c.heads = 2;
      c.rows = 5;
      c.state = state;
      c.sequences = 2;
      c.tokens = 3;
      c.bf16 = bf16;
      c.split_heads(state > 8 ? 3 : 1);
      bf16 ? check_scan<StridedRow<Bf16, 256>>(c, ++seed)
           : check_scan<StridedRow<float, 256>>(c, ++seed);
    }
  for (std::uint32_t state : {300U, 512U, 1000U, 1024U}) {
    StateCase c;
    c.heads = 1;
    c.rows = 3;
    c.state = state;
    c.sequences = 1;
    c.tokens = 2;
    c.bf16 = false;
    c.split_heads(2);
    check_scan<StridedRow<float, 1024>>(c, ++seed);
  }
}

TEST_CASE("a decode reads and writes every state byte once, in whole lines, and little else") {
  struct Shape {
    std::string name;
    bool bf16;
    std::uint32_t heads_per_page;
  };
  for (Shape const& shape :
       {Shape{"paged", true, 8}, Shape{"composite", true, 24}, Shape{"paged, FP32", false, 4}}) {
    CAPTURE(shape.name);
    StateCase c = falcon_7b(shape.bf16, shape.heads_per_page);
    std::uint64_t const state = c.heads * c.head_bytes();
    auto const bytes = [](const auto& v) { return v.size() * sizeof(v[0]); };
    std::vector<Region> const regions = {
        {"state", c.bytes(), c.pool_bytes(), static_cast<std::int64_t>(state),
         static_cast<std::int64_t>(2 * state), true},
        {"inputs", c.inputs.data(), bytes(c.inputs)},
        {"dt", c.dt.data(), bytes(c.dt)},
        {"dt bias", c.dt_bias.data(), bytes(c.dt_bias)},
        {"A", c.a.data(), bytes(c.a)},
        {"D", c.d.data(), bytes(c.d)},
        {"outputs", c.y.data(), bytes(c.y), -1, static_cast<std::int64_t>(bytes(c.y))}};
    std::uint64_t least = 3 * state;
    for (std::size_t i = 1; i < regions.size(); ++i) least += regions[i].bytes;
    check_traffic("state update, " + shape.name,
                  shape.bf16 ? record(decode_of<Bf16, 256>(c), regions)
                             : record(decode_of<float, 256>(c), regions),
                  least);
  }
}
