// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The same kernel on other addresses gives the same bits: contiguous states, maps of constants,
// units that lie further apart than 32 bits count.

#include <doctest/doctest.h>

#include <hybridstate/kernels/convolution.hpp>
#include <hybridstate/kernels/page_copy.hpp>
#include <hybridstate/kernels/rotation.hpp>
#include <hybridstate/kernels/shell/interpreter.hpp>

#include "kernels/state_case.hpp"
#include "reserved_memory.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;
using runtime::Carry;

namespace {

bool same(const StateCase& a, const StateCase& b) {
  return std::memcmp(a.pool.data(), b.pool.data(), a.pool_bytes()) == 0 && a.y == b.y;
}
template <class Job>
void run(const Job& job) {
  REQUIRE(with_kernel(job, [](const auto& kernel) { Interpreter().run(kernel); }));
}

std::vector<float> draw(std::size_t n, std::uint64_t seed) {
  runtime::BitGenerator bits(seed);
  std::vector<float> v(n);
  for (float& f : v) f = static_cast<float>(bits.normal());
  return v;
}

Bf16 element_at(const std::byte* from, std::size_t i) {
  Bf16 element{};
  std::memcpy(&element, from + i * sizeof element, sizeof element);
  return element;
}

/// Units of a pool, close together or so far apart that number 3 begins behind 2^32 elements of two
/// bytes.
class Pool {
 public:
  Pool(std::size_t unit_bytes, bool far)
      : stride_(far ? std::int64_t{3} << 30 : static_cast<std::int64_t>(unit_bytes)),
        bytes_(unit_bytes),
        memory_(static_cast<std::size_t>(3 * stride_) + unit_bytes) {}

  std::byte* base() const { return memory_.data(); }
  std::int64_t stride() const { return stride_; }
  std::byte* unit(std::int32_t i) const { return base() + i * stride_; }
  /// The bytes of the units of a table, one after another.
  std::vector<std::byte> content(const std::vector<std::int32_t>& table) const {
    std::vector<std::byte> all;
    for (std::int32_t const i : table) all.insert(all.end(), unit(i), unit(i) + bytes_);
    return all;
  }

 private:
  std::int64_t stride_;
  std::size_t bytes_;
  ReservedMemory memory_;
};

}  // namespace

TEST_CASE("contiguous states and maps of constants give the same bits") {
  StateCase c;
  c.groups = 2;
  c.whole_heads(c.heads);
  c.draw(3);
  std::iota(c.source.begin(), c.source.end(), 0);
  std::iota(c.destination.begin(), c.destination.end(), 3);
  StateCase want = c;
  want.run_on_cpu({{1, &want.destination}}, Carry::bf16_per_token);
  {
    StateCase got = c;
    auto const stride = static_cast<std::int64_t>(c.stride());
    StateUpdate<Bf16, 64, ContiguousStates> k;
    k.in = got.recurrence();
    k.source = {got.bytes(), stride, static_cast<std::int64_t>(c.head_bytes())};
    k.destination = {got.bytes() + 3 * stride, stride, k.source.head_bytes};
    k.sequences = c.sequences;
    Interpreter().run(k);
    CHECK(same(got, want));
  }

  constexpr ModelGeometry model = [] {
    ModelGeometry m;
    m.attention_layers = m.recurrent_layers = m.kv_heads = m.conv_groups = 1;
    m.head_dim = 8;
    m.ssm_heads = 4;
    m.ssm_head_dim = 16;
    m.ssm_state = 64;
    return m;
  }();
  constexpr LayoutOptions blocks = [] {
    LayoutOptions o;
    o.block_tokens = o.checkpoint_tokens = 128;  // pages of two heads
    return o;
  }();
  using Members = StaticPagedMembers<StaticLayout<model, blocks>>;
  StateCase paged;
  paged.whole_heads(2);
  paged.draw(4);
  CHECK(paged.map.heads_per_page == paged_members(StaticLayout<model, blocks>{}).heads_per_page);
  StateCase paged_want = paged;
  paged_want.run_on_cpu({{1, &paged_want.destination}}, Carry::bf16_per_token);
  StateUpdate<Bf16, 64, SsmPages<Members>> k;
  k.in = paged.recurrence();
  k.source = paged.view(paged.source).with(Members{});
  k.destination = paged.view(paged.destination).with(Members{});
  k.sequences = paged.sequences;
  Interpreter().run(k);
  CHECK(same(paged, paged_want));
}

TEST_CASE("pages of states may lie more than 2^32 elements apart") {
  StateCase c;
  c.sequences = 1;
  c.heads = 2;
  c.whole_heads(1);
  c.draw(5);
  std::vector<std::int32_t> const from = {3, 0}, to = {1, 2};
  StateCase want = c;
  want.run_on_cpu({{1, &want.destination}}, Carry::bf16_per_token);
  std::vector<std::byte> stored;
  for (std::int32_t h = 0; h < 2; ++h) {
    const std::byte* const head = want.view(want.destination).addr_ssm(0, h);
    stored.insert(stored.end(), head, head + c.head_bytes());
  }
  enum Form { step, scan, scan_by_elements };
  for (Form const form : {step, scan, scan_by_elements}) {
    CAPTURE(form);
    Pool const pool(c.head_bytes(), true);
    for (std::int32_t h = 0; h < 2; ++h)
      std::memcpy(pool.unit(from[static_cast<std::size_t>(h)]), c.view(c.source).addr_ssm(0, h),
                  c.head_bytes());
    MemberMap map = c.map;
    if (form == scan_by_elements) map = {c.head_bytes(), c.head_bytes(), 0, 1, 2};
    SsmPages<> const source{pool.base(), from.data(), 2, pool.stride(), map};
    SsmPages<> const destination{pool.base(), to.data(), 2, pool.stride(), map};
    std::int32_t const first[] = {0, 1}, after[] = {1};
    StateCase got = c;
    if (form == step)
      run(StateUpdateJob{got.recurrence(), source, destination, {}, 1, c.state});
    else
      run(StateScanJob{got.recurrence(), {first, 1}, source, {destination, first, after}, c.state});
    CHECK(got.y == want.y);
    CHECK(pool.content(to) == stored);
  }
}

TEST_CASE("copied pages may lie more than 2^32 elements apart") {
  constexpr std::int64_t bytes = 4096;
  std::vector<std::int32_t> const from = {3, 0}, to = {2, 1};
  Pool const pool(bytes, true);
  std::fill_n(pool.unit(3), bytes, std::byte{1});
  std::fill_n(pool.unit(0), bytes, std::byte{2});
  run(CopyPages{pool.base(), pool.base(), pool.stride(), pool.stride(), from.data(), to.data(), 2,
                bytes});
  CHECK(pool.content(to) == pool.content(from));
}

TEST_CASE("convolution lines may lie more than 2^32 elements apart") {
  constexpr std::uint32_t channels = 48;
  std::vector<float> const weights = draw(4 * channels, 1), x = draw(2 * channels, 2);
  std::vector<float> const state = draw(3 * channels, 3);
  std::vector<std::int32_t> const from = {3}, to = {2};
  std::int32_t const first[] = {0, 2}, kept[] = {0, 1}, after[] = {2};
  for (bool const as_runs : {false, true}) {
    std::vector<float> y[2];
    std::vector<std::byte> stored[2];
    for (bool const far : {false, true}) {
      Pool const pool(3 * channels * sizeof(Bf16), far);
      for (std::size_t i = 0; i < state.size(); ++i) {
        Bf16 const element = from_float<Bf16>(state[i]);
        std::memcpy(pool.unit(from[0]) + i * sizeof element, &element, sizeof element);
      }
      y[far].assign(2 * channels, 0.0F);
      ConvolutionInputs in;
      in.weights = weights.data();
      in.x = x.data();
      in.y = y[far].data();
      in.x_stride = in.y_stride = in.channels = channels;
      ConvLines const source{pool.base(), from.data(), 1, pool.stride(), 0};
      ConvLines const destination{pool.base(), to.data(), 1, pool.stride(), 0};
      if (as_runs)
        run(ConvolutionRunsJob{{in, first, source, kept, after, destination, 1, 2}});
      else
        run(ConvolutionStepJob{{in, source, destination, {}, 1}});
      stored[far] = pool.content(to);
      // The newest input is the last token's.
      for (std::uint32_t i = 0; i < channels; ++i)
        CHECK(element_at(pool.unit(to[0]), 2 * channels + i) ==
              from_float<Bf16>(x[(as_runs ? channels : 0) + i]));
    }
    CHECK(y[0] == y[1]);
    CHECK(stored[0] == stored[1]);
  }
}

TEST_CASE("attention units may lie more than 2^32 elements apart") {
  constexpr std::uint32_t dim = 16;
  std::vector<float> const k = draw(2 * dim, 1), v = draw(2 * dim, 2), angles = draw(4 * dim, 3);
  std::vector<std::int32_t> const units = {3, 0}, positions = {1, 2};
  std::vector<std::byte> stored[2];
  for (bool const far : {false, true}) {
    Pool const pool(std::size_t{2} * 4 * dim * sizeof(Bf16), far);
    std::vector<float> q = draw(2 * dim, 4);
    RotationJob job;
    job.q = {q.data(), dim};
    job.q_out = {q.data(), dim};
    job.k = {k.data(), dim};
    job.v = {v.data(), dim};
    job.cosines = angles.data();
    job.sines = angles.data() + 2 * dim;
    job.positions = positions.data();
    constexpr std::int64_t token = dim * sizeof(Bf16);
    job.to.blocks = {pool.base(), units.data(), 1, pool.stride(), {token, 4 * token, 4 * token, 4}};
    job.tokens = 2;
    job.heads = job.kv_heads = 1;
    job.head_dim = dim;
    run(job);
    stored[far] = pool.content(units);
    // The value of token 2 in unit 0, behind the keys.
    for (std::uint32_t i = 0; i < dim; ++i)
      CHECK(element_at(pool.unit(0), (4 + 2) * dim + i) == from_float<Bf16>(v[dim + i]));
  }
  CHECK(stored[0] == stored[1]);
}
