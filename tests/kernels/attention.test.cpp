// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <hybridstate/kernels/shell/recorder.hpp>
#include <limits>

#include "kernels/attention_case.hpp"

using namespace attention_test;

namespace {

constexpr std::uint32_t in_turn = 0;
constexpr std::uint32_t forms[] = {in_turn, split_tokens, span_tokens};

/// What a launch may touch. `tokens`: of all sequences, what they attend to.
std::vector<Region> regions(AttentionCase& c, std::uint64_t tokens) {
  auto const of = [](const char* name, const auto& v) {
    return Region{name, v.data(), v.size() * sizeof(v[0])};
  };
  Region kv{"units", c.first_byte(), c.pool_bytes()};
  kv.read_once = static_cast<std::int64_t>(tokens * c.kv_heads * 2) * c.token_bytes();
  kv.whole_lines = true;
  return {kv,           of("rows", c.row), of("positions", c.position),
          of("q", c.q), of("out", c.out),  of("results", c.results)};
}
void check_clean(const Recording& r) {
  CHECK(r.violations.empty());
  for (auto const& sentence : r.violations) MESSAGE(sentence);
}

}  // namespace

TEST_CASE("decode attention computes the CPU executor's bits, in pieces and in turn") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    for (std::uint32_t const form : forms) {
      CAPTURE(seed);
      CAPTURE(form);
      for (std::uint32_t const dim : {64U, 80U, 128U})
        check_attention(every_order, random_case(seed, true, dim, 9, 1), form);
      check_attention(every_order, random_case(seed, false, 128, 9, 1), form);
      if (seed <= 3)
        for (bool const bf16 : {true, false})
          check_attention(every_order, random_case(seed, bf16, 256, 9, 1), form);
    }
}

TEST_CASE("decode attention joins splits of 256 tokens in spans of 1,024, in every form") {
  for (std::int32_t const tokens : {255, 256, 257, 1023, 1024, 1025, 1280, 2048, 2049, 4353})
    for (std::uint32_t const form : forms) {
      CAPTURE(tokens);
      CAPTURE(form);
      AttentionCase c;
      c.dim = 64;
      c.kv_heads = 1;
      c.group = 2;
      c.block_tokens = 512;
      c.sequences = {{tokens - 1}, {200}};
      c.draw(static_cast<std::uint64_t>(tokens));
      check_attention(every_order, c, form);
    }
}

TEST_CASE("runs of queries get the bits that each query gets alone") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    check_attention(every_order, random_case(seed, true, 128, 6, 9), in_turn);
    check_attention(every_order, random_case(seed, true, 128, 6, 20), in_turn);
    check_attention(every_order, random_case(seed, true, 80, 8, 9), in_turn);
    check_attention(every_order, random_case(seed, false, 64, 8, 9), in_turn);
  }
}

TEST_CASE("heads of any width get the same bits, alone and in runs") {
  std::uint64_t seed = 0;
  for (std::uint32_t dim : {1U, 8U, 24U, 100U, 300U, 512U})
    for (bool bf16 : {true, false}) {
      CAPTURE(dim);
      ++seed;
      check_attention(every_order, random_case(seed, bf16, dim, 3, seed % 2 == 0 ? 1 : 4), in_turn);
    }
  AttentionCase c;  // over spans
  c.dim = 8;
  c.group = 1;
  c.kv_heads = 1;
  c.sequences = {{1022, 4}, {2300, 1}, {2047, 2}};
  c.draw(1);
  check_attention(every_order, c, in_turn);
}

TEST_CASE("runs across the ends of spans, splits and units") {
  for (std::uint32_t block : {16U, 512U}) {
    AttentionCase c;
    c.block_tokens = block;
    c.group = 3;
    c.kv_heads = 1;
    c.sequences = {{250, 9}, {0, 1}, {511, 3}, {0, 6, false}, {40, 4}, {1020, 7}, {2045, 5}};
    c.draw(block);
    // The last query's own value; times the 0 of those before it, it would be a NaN.
    c.set(c.blocks().addr_value(c.row[3], 0, 5), 1, std::numeric_limits<float>::infinity());
    c.pad(4, 2);
    check_attention(every_order, c, in_turn);
  }
}

TEST_CASE("a pool past 2^32 bytes, and unit 0") {
  for (std::int32_t first : {0, 2'000'000})
    for (std::uint32_t const form : forms) {
      AttentionCase c;
      c.block_tokens = 512;
      c.kv_heads = 1;
      c.sequences = {{300}, {600}};
      c.first_unit = first;
      c.draw(5);
      AttentionCase want = c;
      want.run_on_cpu();
      with_kernel(c.job(form), [](const auto& kernel) { Interpreter().run(kernel); });
      CHECK(same_bits(c.out, want.out));
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
  c.run(every_order[0], in_turn);
  CHECK(same_bits(c.out, zeros.out));
}

TEST_CASE("an empty batch has no CTAs; padding is not read") {
  for (std::uint32_t const form : forms) {
    AttentionCase c;
    c.draw(1);
    CHECK(with_kernel(c.job(form), [](const auto& kernel) { CHECK(kernel.grid().ctas() == 0); }));
    for (std::uint64_t way : {0U, 1U, 2U}) {
      AttentionCase p;
      p.sequences = {{1300}};
      p.draw(1);
      p.pad(0, way);
      AttentionJob const job = p.job(form);
      auto allowed = regions(p, 0);
      allowed.erase(allowed.begin() + 3);  // q
      check_clean(record_job(job, allowed));
      CHECK(std::count(p.out.begin(), p.out.end(), 0.0F) == 12 * 128);
    }
  }
}

TEST_CASE("a run's outputs are written once, by whole lines of keys and values") {
  AttentionCase c;
  c.sequences = {{240, 30}, {0, 1}, {1020, 8}};
  c.draw(11);
  auto allowed = regions(c, 0);
  allowed[0].read_once = -1;  // every eight rows read them
  allowed.insert(allowed.begin(), {"first", c.first.data(), c.first.size() * 4});
  for (Region& r : allowed)
    if (r.name == "out") r.written_once = 39 * 12 * 128 * 4;
  check_clean(record_job(c.job(), allowed));
}

TEST_CASE("jobs that no kernel takes") {
  CHECK_FALSE(with_kernel(AttentionJob{}, [](const auto&) {}));
  AttentionCase c;
  c.sequences = {{300}};
  c.draw(1);
  auto const refused = [&](std::uint32_t form, auto change) {
    AttentionJob job = c.job(form);
    change(job);
    CHECK_FALSE(with_kernel(job, [](const auto&) { FAIL("refused jobs have no kernel"); }));
  };
  refused(in_turn, [](auto& j) { j.batch.group = 0; });
  refused(in_turn, [](auto& j) { j.head_dim = 513; });
  refused(in_turn, [](auto& j) { j.batch.sequences = 65536; });
  refused(in_turn, [](auto& j) { j.most_queries = 65535, j.batch.group = 65537; });
  refused(in_turn, [](auto& j) { j.batch.kv_heads = 0x40000000, j.most_queries = 2; });
  refused(split_tokens, [](auto& j) { j.results.piece_tokens = 512; });
  refused(split_tokens, [](auto& j) { j.results.pieces = 65536; });
  refused(span_tokens, [](auto& j) { j.most_queries = 2; });
  refused(span_tokens, [](auto& j) { j.batch.first = j.batch.row; });
  refused(span_tokens, [](auto& j) { ++j.batch.q; });  // no vectors
}

TEST_CASE("predicted traffic of a decode step of Falcon-H1-7B") {
  struct Most {
    std::uint32_t form;
    double ratio;
  };
  for (std::uint32_t const block : {16U, 512U})
    for (std::int32_t const context : {1024, 2048})
      for (Most const most :
           {Most{in_turn, 1.001}, Most{span_tokens, context == 1024 ? 1.001 : 1.02},
            Most{split_tokens, 1.05}}) {
        CAPTURE(block);
        CAPTURE(context);
        CAPTURE(most.form);
        AttentionCase c;
        c.block_tokens = block;
        c.sequences = {{context - 1}, {context - 1}};
        c.draw(7);
        c.job(most.form);  // with memory for its results
        auto const tokens = 2 * static_cast<std::uint64_t>(context);
        double const q = c.batch() * c.heads() * c.dim * 4.0;
        double const least = static_cast<double>(tokens) * c.kv_heads * 2 * 256 + 2 * q;
        auto allowed = regions(c, tokens);
        allowed[4].written_once = static_cast<std::int64_t>(q);
        Recording const r = record_job(c.job(most.form), allowed);
        check_clean(r);
        auto const bytes = static_cast<double>(r.total().memory_bytes());
        CHECK(bytes >= least);
        CHECK(bytes <= most.ratio * least);
        MESSAGE("predicted / minimum bytes: ", bytes / least);
      }
}
