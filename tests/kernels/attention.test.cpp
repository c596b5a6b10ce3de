// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <hybridstate/kernels/attention.hpp>
#include <hybridstate/kernels/shell/recorder.hpp>
#include <limits>

#include "executor/cpu/kernels.hpp"
#include "math/deterministic.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;

namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();

struct alignas(line_bytes) Line {
  std::byte bytes[line_bytes];
};

/// Keys and values of a batch in units of a pool, NaNs wherever nobody may look, its queries, and
/// what the CPU executor makes of them.
struct AttentionCase {
  std::uint32_t kv_heads = 2, group = 6, dim = 128, block_tokens = 16;
  bool bf16 = true;
  struct Sequence {
    std::int32_t position = 0;
    std::uint32_t queries = 1;
    bool padding = false;
  };
  std::vector<Sequence> sequences;
  std::int32_t first_unit = 0;  ///< the lowest unit's number
  float query_scale = 1, value_scale = 1;

  std::vector<Line> pool;
  std::vector<std::int32_t> units, row, position, first{0};
  std::vector<float> q, out, results;
  std::vector<Softmax> softmax;
  std::int64_t row_stride = 0;

  std::uint32_t heads() const { return kv_heads * group; }
  std::uint32_t batch() const { return static_cast<std::uint32_t>(sequences.size()); }
  std::uint32_t most_tokens() const {
    std::uint32_t most = 0;
    for (Sequence const& s : sequences)
      most = std::max(most, static_cast<std::uint32_t>(s.position) + s.queries);
    return most;
  }
  std::uint32_t splits() const { return (most_tokens() + 255) / 256; }
  std::int64_t token_bytes() const { return std::int64_t{dim} * (bf16 ? 2 : 4); }
  std::int64_t unit_stride() const { return token_bytes() * block_tokens * kv_heads * 2 + 128; }

  /// Draws everything; entries of the tables in a random order, rows of the tables too.
  void draw(std::uint64_t seed) {
    runtime::BitGenerator bits(seed);
    std::mt19937_64 random(seed);
    row_stride = (most_tokens() + block_tokens - 1) / block_tokens + 1;
    units.assign(static_cast<std::size_t>(row_stride) * batch(), -1);
    row.resize(batch());
    std::iota(row.begin(), row.end(), 0);
    std::shuffle(row.begin(), row.end(), random);
    std::vector<std::int32_t> numbers(units.size());
    std::iota(numbers.begin(), numbers.end(), first_unit);
    std::shuffle(numbers.begin(), numbers.end(), random);
    pool.resize(numbers.size() * static_cast<std::size_t>(unit_stride()) / line_bytes + 1);
    for (std::size_t i = 0; i < pool_bytes() / (bf16 ? 2 : 4); ++i) set(first_byte(), i, poison);
    for (std::uint32_t s = 0; s < batch(); ++s) {
      Sequence const& a = sequences[s];
      position.push_back(a.position);
      first.push_back(first.back() + static_cast<std::int32_t>(a.queries));
      if (a.padding) continue;
      std::uint32_t const tokens = static_cast<std::uint32_t>(a.position) + a.queries;
      for (std::uint32_t t = 0; t < tokens; ++t) {
        std::int32_t& unit =
            units[static_cast<std::size_t>(row[s] * row_stride + t / block_tokens)];
        if (t % block_tokens == 0) unit = numbers.back(), numbers.pop_back();
        for (std::uint32_t h = 0; h < kv_heads; ++h)
          for (std::uint32_t i = 0; i < dim; ++i) {
            auto const head = static_cast<std::int32_t>(h), token = static_cast<std::int32_t>(t);
            set(blocks().addr_key(row[s], head, token), i, static_cast<float>(bits.normal()));
            set(blocks().addr_value(row[s], head, token), i,
                value_scale * static_cast<float>(bits.normal()));
          }
      }
    }
    q.resize(static_cast<std::size_t>(first.back()) * q_stride());
    for (float& f : q) f = query_scale * static_cast<float>(bits.normal());
    out.assign(static_cast<std::size_t>(first.back()) * out_stride(), -7.0F);
    softmax.assign(std::size_t{batch()} * heads() * splits(), {poison, poison});
    results.assign(softmax.size() * dim, poison);
  }
  /// One of the ways to say that a sequence is padding.
  void pad(std::uint32_t s, std::uint64_t way) {
    sequences[s].padding = true;
    if (way % 3 == 0) row[s] = -1;
    if (way % 3 == 1) position[s] = -1;
    if (way % 3 == 2) units[static_cast<std::size_t>(row[s] * row_stride)] = -1;
  }

  std::size_t q_stride() const { return std::size_t{heads()} * dim + 8; }
  std::size_t out_stride() const { return std::size_t{heads()} * dim + 4; }
  /// Unit 0 of a pool whose lowest unit is first_unit.
  std::byte* base() {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(first_byte()) -
                                        static_cast<std::uintptr_t>(first_unit * unit_stride()));
  }
  std::byte* first_byte() { return reinterpret_cast<std::byte*>(pool.data()); }
  std::uint64_t pool_bytes() const { return pool.size() * line_bytes; }
  void set(std::byte* at, std::size_t i, float value) const {
    std::uint16_t const half = numeric::to_bf16(value);
    if (bf16)
      std::memcpy(at + 2 * i, &half, 2);
    else
      std::memcpy(at + 4 * i, &value, 4);
  }

  AttentionBlocks blocks() {
    AttentionBlocks b;
    b.base = base();
    b.units = units.data();
    b.row_stride = row_stride;
    b.unit_stride = unit_stride();
    b.strides = {token_bytes(), token_bytes() * block_tokens,
                 token_bytes() * block_tokens * kv_heads, static_cast<std::int32_t>(block_tokens)};
    return b;
  }
  AttentionBatch inputs() {
    AttentionBatch in;
    in.blocks = blocks();
    in.row = row.data();
    in.position = position.data();
    if (first.back() != static_cast<std::int32_t>(batch())) in.first = first.data();
    in.q = q.data();
    in.q_stride = static_cast<std::int64_t>(q_stride());
    in.out = out.data();
    in.out_stride = static_cast<std::int64_t>(out_stride());
    in.scale = 1 / std::sqrt(static_cast<float>(dim));
    in.sequences = batch();
    in.kv_heads = kv_heads;
    in.group = group;
    return in;
  }
  template <class E, unsigned D, unsigned R, Splits S>
  Attention<E, D, R, S> kernel() {
    REQUIRE(D == dim);
    REQUIRE((sizeof(E) == 2) == bf16);
    Attention<E, D, R, S> k{inputs(), {softmax.data(), results.data(), splits()}, 0};
    for (Sequence const& s : sequences) k.most_queries = std::max(k.most_queries, s.queries);
    return k;
  }
  JoinSplits joining() { return {inputs(), {softmax.data(), results.data(), splits()}, dim}; }

  void run_on_cpu() {
    for (std::uint32_t s = 0; s < batch(); ++s)
      for (std::uint32_t i = 0; i < sequences[s].queries; ++i) {
        auto const token = static_cast<std::size_t>(first[s]) + i;
        float* const to = out.data() + token * out_stride();
        if (sequences[s].padding) {
          std::fill_n(to, heads() * dim, 0.0F);
          continue;
        }
        for (std::uint32_t h = 0; h < kv_heads; ++h) {
          runtime::cpu::Attention j;
          j.blocks = blocks();
          j.blocks.units += row[s] * row_stride;
          j.kv_dtype = bf16 ? runtime::Dtype::bf16 : runtime::Dtype::f32;
          j.kv_head = h;
          j.head_dim = dim;
          j.heads = group;
          j.position = static_cast<std::uint32_t>(position[s]) + i;
          j.scale = inputs().scale;
          j.q = q.data() + token * q_stride() + std::size_t{h} * group * dim;
          j.out = to + std::size_t{h} * group * dim;
          runtime::cpu::kernels(runtime::cpu::Isa::scalar).attend(j);
        }
      }
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <class E, unsigned D, unsigned R, Splits S>
void check_against_cpu(AttentionCase c) {
  AttentionCase want = c;
  want.run_on_cpu();
  for (ThreadOrder order : {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    AttentionCase got = c;
    Interpreter interpreter(order, 3);
    interpreter.run(got.template kernel<E, D, R, S>());
    if constexpr (S == Splits::side_by_side) interpreter.run(got.joining());
    CHECK(same_bits(got.out, want.out));
  }
}

/// Random sequences and groups of at most `most_group` heads; `queries`: the longest run.
AttentionCase random_case(std::uint64_t seed, bool bf16, std::uint32_t dim,
                          std::uint32_t most_group, std::uint32_t queries) {
  std::mt19937_64 random(seed);
  auto const up_to = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  constexpr std::int32_t ends[] = {1, 2, 3, 63, 64, 65, 255, 256, 257, 511, 512, 513, 700, 1000};
  AttentionCase c;
  c.bf16 = bf16;
  c.dim = dim;
  c.group = 1 + up_to(most_group);
  c.kv_heads = 1 + up_to(2);
  constexpr std::uint32_t blocks[] = {16, 512, 24, 1};
  c.block_tokens = blocks[up_to(4)];
  for (std::uint32_t s = 0, n = 1 + up_to(3); s < n; ++s) {
    std::uint32_t const run = queries == 1 ? 1 : 1 + up_to(queries);
    std::int32_t const end = ends[up_to(std::size(ends))];
    c.sequences.push_back({std::max(0, end - static_cast<std::int32_t>(run)), run});
  }
  if (up_to(3) == 0) c.query_scale = 30;      // exponentials of 0
  if (up_to(3) == 0) c.value_scale = 1e-38F;  // products of subnormal size: -0 is not +0
  c.draw(seed);
  if (up_to(2) == 0) c.pad(up_to(c.batch()), up_to(3));
  return c;
}

template <class E, unsigned D, unsigned R, Splits S>
void check_random(std::uint64_t seed, std::uint32_t queries = 1) {
  CAPTURE(seed);
  check_against_cpu<E, D, R, S>(random_case(seed, sizeof(E) == 2, D, R + 3, queries));
}

/// What a launch may touch. `tokens`: of all sequences, what they attend to.
std::vector<Region> regions(AttentionCase& c, std::uint64_t tokens) {
  auto const of = [](const char* name, const auto& v) {
    return Region{name, v.data(), v.size() * sizeof(v[0])};
  };
  Region kv{"units", c.first_byte(), c.pool_bytes()};
  kv.read_once = static_cast<std::int64_t>(tokens * c.kv_heads * 2) * c.token_bytes();
  kv.whole_lines = true;
  return {kv,
          of("rows", c.row),
          of("positions", c.position),
          of("q", c.q),
          of("out", c.out),
          of("softmax", c.softmax),
          of("results", c.results)};
}
void check_clean(const Recording& r) {
  CHECK(r.violations.empty());
  for (auto const& sentence : r.violations) MESSAGE(sentence);
}

}  // namespace

TEST_CASE("decode attention computes the CPU executor's bits, its splits side by side or in turn") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    check_random<Bf16, 64, 4, Splits::side_by_side>(seed);
    check_random<Bf16, 80, 8, Splits::side_by_side>(seed);
    check_random<Bf16, 128, 6, Splits::side_by_side>(seed);
    check_random<Bf16, 128, 2, Splits::in_turn>(seed);
    check_random<float, 128, 8, Splits::side_by_side>(seed);
  }
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    check_random<Bf16, 256, 8, Splits::side_by_side>(seed);
    check_random<float, 256, 4, Splits::in_turn>(seed);
  }
}

TEST_CASE("runs of queries get the bits that each query gets alone") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    check_random<Bf16, 128, 8, Splits::in_turn>(seed, 9);
    check_random<Bf16, 128, 6, Splits::in_turn>(seed, 20);
    check_random<Bf16, 80, 8, Splits::in_turn>(seed, 9);
    check_random<float, 64, 8, Splits::in_turn>(seed, 9);
  }
}

TEST_CASE("heads of any width get the same bits, alone and in runs") {
  std::uint64_t seed = 0;
  for (std::uint32_t dim : {1U, 8U, 24U, 80U, 100U, 300U, 512U})
    for (bool bf16 : {true, false}) {
      CAPTURE(dim);
      ++seed;
      AttentionCase const c = random_case(seed, bf16, dim, 3, seed % 2 == 0 ? 1 : 4);
      AttentionCase want = c;
      want.run_on_cpu();
      for (ThreadOrder order :
           {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
        AttentionCase got = c;
        AttentionJob job;
        job.batch = got.inputs();
        job.type = bf16 ? ElementType::bf16 : ElementType::f32;
        job.head_dim = dim;
        job.most_queries = 4;
        CHECK(with_kernel(job, [&](const auto& kernel) { Interpreter(order).run(kernel); }));
        CHECK(same_bits(got.out, want.out));
      }
    }
  CHECK_FALSE(with_kernel(AttentionJob{}, [](const auto&) {}));
}

TEST_CASE("runs across the ends of splits and units") {
  for (std::uint32_t block : {16U, 512U}) {
    AttentionCase c;
    c.block_tokens = block;
    c.group = 3;
    c.sequences = {{250, 9}, {0, 1}, {511, 3}, {0, 6, false}, {40, 4}};
    c.draw(block);
    // The last query's own value; times the 0 of those before it, it would be a NaN.
    c.set(c.blocks().addr_value(c.row[3], 0, 5), 1, std::numeric_limits<float>::infinity());
    c.pad(4, 2);
    check_against_cpu<Bf16, 128, 8, Splits::in_turn>(c);
  }
}

TEST_CASE("a pool past 2^32 bytes, and unit 0") {
  for (std::int32_t first : {0, 2'000'000}) {
    AttentionCase c;
    c.block_tokens = 512;
    c.kv_heads = 1;
    c.sequences = {{300}, {600}};
    c.first_unit = first;
    c.draw(5);
    check_against_cpu<Bf16, 128, 6, Splits::side_by_side>(c);
    check_against_cpu<Bf16, 128, 6, Splits::in_turn>(c);
  }
}

TEST_CASE("an absent unit behind the first one counts as zeros") {
  AttentionCase c;
  c.bf16 = false;
  c.dim = 64;
  c.sequences = {{300}};
  c.draw(2);
  AttentionCase zeros = c;
  auto const unit = static_cast<std::size_t>(c.units[2]);
  std::memset(zeros.base() + unit * static_cast<std::size_t>(c.unit_stride()), 0,
              static_cast<std::size_t>(c.unit_stride()));
  zeros.run_on_cpu();
  c.units[2] = -1;
  Interpreter().run(c.kernel<float, 64, 8, Splits::in_turn>());
  CHECK(same_bits(c.out, zeros.out));
}

TEST_CASE("an empty batch has no CTAs; padding is not read") {
  AttentionCase c;
  CHECK(c.kernel<Bf16, 128, 6, Splits::in_turn>().grid().ctas() == 0);
  CHECK(c.joining().grid().ctas() == 0);
  for (std::uint64_t way : {0U, 1U, 2U}) {
    AttentionCase p;
    p.sequences = {{300}};
    p.draw(1);
    p.pad(0, way);
    auto allowed = regions(p, 0);
    allowed.erase(allowed.begin() + 3);  // q
    check_clean(record(p.kernel<Bf16, 128, 6, Splits::side_by_side>(), allowed));
    check_clean(record(p.joining(), allowed));
    CHECK(std::count(p.out.begin(), p.out.end(), 0.0F) == 12 * 128);
    p.out.assign(p.out.size(), -7.0F);
    check_clean(record(p.kernel<Bf16, 128, 6, Splits::in_turn>(), allowed));
    CHECK(std::count(p.out.begin(), p.out.end(), 0.0F) == 12 * 128);
  }
}

TEST_CASE("a run's outputs are written once, by whole lines of keys and values") {
  AttentionCase c;
  c.sequences = {{240, 30}, {0, 1}};
  c.draw(11);
  auto allowed = regions(c, 0);
  allowed[0].read_once = -1;  // every eight rows read them
  allowed.insert(allowed.begin(), {"first", c.first.data(), c.first.size() * 4});
  for (Region& r : allowed)
    if (r.name == "out") r.written_once = 31 * 12 * 128 * 4;
  check_clean(record(c.kernel<Bf16, 128, 8, Splits::in_turn>(), allowed));
}

TEST_CASE("predicted traffic of a decode step of Falcon-H1-7B") {
  for (std::uint32_t block : {16U, 512U})
    for (std::int32_t context : {512, 1024}) {
      CAPTURE(block);
      CAPTURE(context);
      AttentionCase c;
      c.block_tokens = block;
      c.sequences = {{context - 1}, {context - 1}};
      c.draw(7);
      auto const tokens = 2 * static_cast<std::uint64_t>(context);
      auto const reading = regions(c, tokens);
      double const q = c.batch() * c.heads() * c.dim * 4.0;
      double const least = static_cast<double>(tokens) * c.kv_heads * 2 * 256 + 2 * q;
      auto const bytes = [](const Recording& r) {
        return static_cast<double>(r.total().memory_bytes());
      };
      auto writing = reading;
      writing[4].written_once = static_cast<std::int64_t>(q);

      Recording const in_turn = record(c.kernel<Bf16, 128, 6, Splits::in_turn>(), writing);
      check_clean(in_turn);
      CHECK(bytes(in_turn) <= 1.02 * least);

      // Side by side, the splits' results are written and read on top.
      double const results = static_cast<double>(c.softmax.size()) * (128 * 4 + 8);
      Recording const split = record(c.kernel<Bf16, 128, 6, Splits::side_by_side>(), reading);
      check_clean(split);
      CHECK(bytes(split) <= 1.02 * (least - q + results));
      writing[0].read_once = 0;
      Recording const joined = record(c.joining(), writing);
      check_clean(joined);
      CHECK(bytes(joined) <= 1.02 * (q + results));
      double const both = (bytes(split) + bytes(joined)) / least;
      CHECK(both <= 1.05);
      MESSAGE("predicted / minimum bytes, in turn: ", bytes(in_turn) / least,
              ", side by side: ", both);
    }
}
