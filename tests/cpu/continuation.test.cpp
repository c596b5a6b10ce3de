// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/harness.hpp"

using namespace harness;

namespace {

struct Storage {
  Carry carry;
  Dtype ssm, conv, kv;
  LinearInput input = LinearInput::bf16;
};
constexpr Storage storages[] = {
    {Carry::fp32, Dtype::f32, Dtype::bf16, Dtype::bf16},
    {Carry::bf16_per_token, Dtype::bf16, Dtype::bf16, Dtype::bf16},
    {Carry::bf16_at_grid, Dtype::f32, Dtype::bf16, Dtype::bf16},
    {Carry::fp32, Dtype::f32, Dtype::f32, Dtype::f32, LinearInput::fp32},
};

ForwardOptions options_of(const Storage& s, Isa isa = Isa::avx512_bf16, unsigned threads = 1) {
  ForwardOptions o;
  o.carry = s.carry;
  o.conv_dtype = s.conv;
  o.linear_input = s.input;
  o.max_tokens = 1800;
  o.threads = threads;
  o.kernels = available(isa) ? &kernels(isa) : &best_kernels();
  return o;
}
MemoryOptions memory_of(const Storage& s) {
  MemoryOptions m;
  m.ssm = s.ssm;
  m.conv = s.conv;
  m.kv = s.kv;
  return m;
}

}  // namespace

TEST_CASE("one prefill, chunks and single tokens give the same bits") {
  OwnModel const model = random_model(small_config(), 5, Dtype::bf16);
  const FalconH1Config& c = model.tensors().config;
  auto const tokens = random_tokens(1792, c.vocabulary, 1);
  BitGenerator bits(99);
  std::vector<std::uint32_t> lengths = {1, 2, 3, 511, 512, 513, 1024, 1792};
  for (int i = 0; i < 4; ++i) lengths.push_back(1 + static_cast<std::uint32_t>(bits.below(1791)));
  for (const Storage& s : storages) {
    CAPTURE(static_cast<int>(s.carry));
    CpuForward forward(model.tensors(), options_of(s));
    MemoryOptions m = memory_of(s);
    m.max_tokens = 1800;
    // Token by token once; every length is a prefix of it.
    Memory alone(c, m);
    auto const single = feed(forward, alone, tokens, {1});
    for (std::uint32_t const length : lengths) {
      CAPTURE(length);
      auto const part = std::span(tokens).first(length);
      Memory whole(c, m);
      auto const once = feed(forward, whole, part, {length});
      CHECK(same_bits(once.back(), single[length - 1]));
      std::vector<std::uint32_t> cuts;
      for (int i = 0; i < 24; ++i) cuts.push_back(1 + static_cast<std::uint32_t>(bits.below(97)));
      Memory cut(c, m);
      auto const chunks = feed(forward, cut, part, cuts);
      CHECK(same_bits(chunks.back(), single[length - 1]));
      CHECK(same_bits(cut.all(cut.state(0, 0)), whole.all(whole.state(0, 0))));
      if (length == 1792)
        CHECK(same_bits(alone.all(alone.state(0, 0)), whole.all(whole.state(0, 0))));
    }
  }
}

TEST_CASE("where the bytes live changes nothing") {
  OwnModel const model = random_model(small_config(), 6, Dtype::bf16);
  const FalconH1Config& c = model.tensors().config;
  auto const tokens = random_tokens(300, c.vocabulary, 2);
  Storage const s = storages[1];
  CpuForward forward(model.tensors(), options_of(s));
  Memory plain(c, memory_of(s));
  auto const want = feed(forward, plain, tokens, {100});
  for (int variant = 0; variant < 4; ++variant) {
    CAPTURE(variant);
    MemoryOptions m = memory_of(s);
    m.block_tokens = variant == 0 ? 16 : variant == 1 ? 7 : 512;
    m.heads_per_page = variant == 2 ? 4 : 0;  // a last page with two heads
    m.split_rows = variant == 3 ? 3 : 0;      // eight rows over pages of three
    m.conv_part_bytes = variant == 1 ? 126 : 0;
    Memory memory(c, m);
    auto const got = feed(forward, memory, tokens, {37});
    CHECK(same_bits(got.back(), want.back()));
    CHECK(same_bits(memory.all(memory.state(0, 0)), plain.all(plain.state(0, 0))));
  }
}

TEST_CASE("a batch gives what its members give alone, with any number of threads") {
  OwnModel const model = random_model(small_config(), 7, Dtype::bf16);
  const FalconH1Config& c = model.tensors().config;
  Storage const s = storages[1];
  constexpr std::uint32_t n = 9;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<std::vector<float>>> alone;
  CpuForward one(model.tensors(), options_of(s));
  BitGenerator bits(3);
  for (std::uint32_t i = 0; i < n; ++i) {
    prompts.push_back(random_tokens(1 + bits.below(90), c.vocabulary, 10 + i));
    prompts.back().resize(prompts.back().size() + 4, TokenId{3});
    Memory memory(c, memory_of(s));
    auto const length = static_cast<std::uint32_t>(prompts.back().size());
    alone.push_back(feed(one, memory, prompts.back(), {length - 4, 1}));
  }
  for (unsigned threads : {1U, 3U}) {
    CpuForward many(model.tensors(), options_of(s, Isa::avx512, threads));
    MemoryOptions m = memory_of(s);
    m.sequences = n;
    m.max_tokens = 128;
    m.block_tokens = 32;
    Memory memory(c, m);
    // Prefills of all, then four steps in which some decode and one recomputes nothing.
    for (std::uint32_t step = 0; step < 5; ++step) {
      std::vector<ForwardChunk> chunks;
      std::vector<StateTarget> targets(n);
      for (std::uint32_t i = 0; i < n; ++i) {
        auto const length = static_cast<std::uint32_t>(prompts[i].size());
        ForwardChunk chunk;
        chunk.begin = step == 0 ? 0 : length - 5 + step;
        chunk.tokens = std::span(prompts[i]).subspan(chunk.begin, step == 0 ? length - 4 : 1);
        chunk.blocks = memory.blocks(i);
        // The working state alternates between two rows: resuming copies nothing.
        chunk.source = memory.state(i, step % 2);
        targets[i] = {chunk.begin + static_cast<std::uint32_t>(chunk.tokens.size()),
                      memory.state(i, (step + 1) % 2)};
        chunk.targets = {&targets[i], 1};
        chunk.logits = true;
        chunks.push_back(chunk);
      }
      std::vector<float> logits(std::size_t{n} * c.vocabulary);
      many.run(chunks, memory.kv(), logits);
      for (std::uint32_t i = 0; i < n; ++i)
        CHECK(same_bits(std::span(logits).subspan(std::size_t{i} * c.vocabulary, c.vocabulary),
                        alone[i][step]));
    }
  }
}

TEST_CASE("inputs of linear layers are rounded where the weights are BF16, and only there") {
  for (Dtype const weights : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    OwnModel const model = random_model(small_config(), 8, weights);
    auto const tokens = random_tokens(40, model.tensors().config.vocabulary, 4);
    std::vector<float> logits[2];
    for (LinearInput const input : {LinearInput::fp32, LinearInput::bf16}) {
      Storage s = storages[3];
      s.input = input;
      CpuForward forward(model.tensors(), options_of(s));
      Memory memory(model.tensors().config, memory_of(s));
      logits[input == LinearInput::bf16 ? 1 : 0] = feed(forward, memory, tokens, {40}).back();
    }
    if (weights != Dtype::bf16) {
      CHECK(same_bits(logits[0], logits[1]));
      continue;
    }
    double square = 0, error = 0;
    for (std::size_t i = 0; i < logits[0].size(); ++i) {
      auto const want = static_cast<double>(logits[0][i]);
      square += want * want;
      error += std::pow(static_cast<double>(logits[1][i]) - want, 2);
    }
    CHECK(error > 1e-8 * square);
    CHECK(error < 1e-3 * square);
  }
}

TEST_CASE("every instruction set gives the scalar path's bits") {
  for (Dtype const weights : {Dtype::bf16, Dtype::f16, Dtype::f32})
    for (const Storage& s : {storages[1], storages[3]}) {
      FalconH1Config c = small_config();
      if (weights == Dtype::f16) {  // no length a multiple of the lanes, no norm, one group
        c.hidden = 41;
        c.intermediate = 53;
        c.head_dim = 10;
        c.ssm_state = 20;
        c.ssm_groups = 1;
        c.gated_norm = false;
      }
      OwnModel const model = random_model(c, 8, weights);
      auto const tokens = random_tokens(290, c.vocabulary, 4);
      CpuForward scalar(model.tensors(), options_of(s, Isa::scalar));
      Memory reference(c, memory_of(s));
      auto const want = feed(scalar, reference, tokens, {281, 1});
      for (Isa const isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
        if (!available(isa)) {
          MESSAGE("not on this machine: " << static_cast<int>(isa));
          continue;
        }
        CpuForward forward(model.tensors(), options_of(s, isa));
        Memory memory(c, memory_of(s));
        auto const got = feed(forward, memory, tokens, {281, 1});
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], want[i]));
        CHECK(same_bits(memory.all(memory.state(0, 0)), reference.all(reference.state(0, 0))));
      }
    }
}

TEST_CASE("a resumed sequence writes no key below kv_valid_until and continues to the bit") {
  OwnModel const model = random_model(small_config(), 9, Dtype::bf16);
  const FalconH1Config& c = model.tensors().config;
  Storage const s = storages[1];
  CpuForward forward(model.tensors(), options_of(s));
  MemoryOptions m = memory_of(s);
  m.block_tokens = 16;
  Memory memory(c, m);
  auto const tokens = random_tokens(80, c.vocabulary, 5);
  std::vector<float> want(c.vocabulary);
  StateTarget const cold[] = {{48, memory.state(0, 1)}, {80, memory.state(0, 0)}};
  ForwardChunk chunk;
  chunk.tokens = tokens;
  chunk.blocks = memory.blocks(0);
  chunk.targets = cold;
  chunk.logits = true;
  forward.run({&chunk, 1}, memory.kv(), want);
  auto const end = memory.all(memory.state(0, 0));
  auto const checkpoint = memory.all(memory.state(0, 1));

  // Attention is valid up to 64, the state at 48: tokens 48 to 63 are computed again.
  StateTarget const warm{80, memory.state(0, 2)};
  chunk.tokens = std::span(tokens).subspan(48);
  chunk.begin = 48;
  chunk.kv_valid_until = 64;
  chunk.source = memory.state(0, 1);
  chunk.targets = {&warm, 1};
  std::vector<float> got(c.vocabulary);
  forward.run({&chunk, 1}, memory.kv(), got);
  CHECK(same_bits(got, want));
  CHECK(same_bits(memory.all(memory.state(0, 2)), end));
  CHECK(same_bits(memory.all(memory.state(0, 1)), checkpoint));  // the source is only read

  // The same with other token ids: had anything below 64 been written, its keys would differ.
  auto other = tokens;
  for (TokenId& t : other) t = (t + 1) % c.vocabulary;
  float const before = memory.key(0, 1, 1, 63, 3);
  float const above = memory.key(0, 1, 1, 64, 3);
  chunk.tokens = std::span(other).subspan(48);
  forward.run({&chunk, 1}, memory.kv(), got);
  CHECK(memory.key(0, 1, 1, 63, 3) == before);
  CHECK(memory.key(0, 1, 1, 64, 3) != above);
}

TEST_CASE("the rule of rounding is part of the numbers") {
  OwnModel const model = random_model(small_config(), 11, Dtype::bf16);
  const FalconH1Config& c = model.tensors().config;
  auto const tokens = random_tokens(600, c.vocabulary, 6);
  std::vector<std::vector<float>> ends;
  for (std::size_t i = 0; i < 3; ++i) {
    CpuForward forward(model.tensors(), options_of(storages[i]));
    Memory memory(c, memory_of(storages[i]));
    ends.push_back(feed(forward, memory, tokens, {256, 344}).back());
    if (storages[i].carry == Carry::fp32) continue;
    Memory at(c, memory_of(storages[i]));
    feed(forward, at, std::span(tokens).first(512), {512});
    // At a grid point the state holds BF16 values alone: a checkpoint in BF16 loses nothing.
    for (float f : at.all(at.state(0, 0))) REQUIRE(f == numeric::round_to_bf16(f));
  }
  CHECK(!same_bits(ends[0], ends[1]));
  CHECK(!same_bits(ends[0], ends[2]));
  CHECK(!same_bits(ends[1], ends[2]));
}

TEST_CASE("a chunk that names no address is refused before anything is written") {
  OwnModel const model = random_model(small_config(), 12, Dtype::f32);
  const FalconH1Config& c = model.tensors().config;
  CpuForward forward(model.tensors(), options_of(storages[3]));
  Memory memory(c, memory_of(storages[3]));
  auto const tokens = random_tokens(8, c.vocabulary, 7);
  std::vector<float> logits(c.vocabulary);
  StateTarget target{8, memory.state(0, 0)};
  ForwardChunk good;
  good.tokens = tokens;
  good.blocks = memory.blocks(0);
  good.targets = {&target, 1};
  good.logits = true;
  auto const refused = [&](const ForwardChunk& chunk, std::span<float> to) {
    CHECK_THROWS(forward.run({&chunk, 1}, memory.kv(), to));
  };
  ForwardChunk bad = good;
  std::int32_t const absent[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  bad.blocks = absent;
  refused(bad, logits);
  bad = good;
  bad.blocks = {};
  refused(bad, logits);
  bad = good;
  bad.begin = 4;  // needs a source
  refused(bad, logits);
  bad = good;
  StateTarget hole{8, {memory.state(0, 0).arena, {absent, 1}, memory.state(0, 0).lines}};
  bad.targets = {&hole, 1};
  refused(bad, logits);
  StateTarget late{9, memory.state(0, 0)};
  bad.targets = {&late, 1};
  refused(bad, logits);
  bad = good;
  TokenId const foreign[] = {c.vocabulary};
  bad.tokens = foreign;
  refused(bad, logits);
  refused(good, std::span(logits).first(3));
  forward.run({&good, 1}, memory.kv(), logits);
}
