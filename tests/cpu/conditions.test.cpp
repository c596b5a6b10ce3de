// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/harness.hpp"

using namespace harness;

namespace {

struct Fed {
  std::vector<std::vector<float>> logits;
  std::vector<float> state;
};

ForwardOptions options_of(Condition broken, Carry carry = Carry::fp32,
                          LinearInput input = LinearInput::bf16) {
  ForwardOptions o;
  o.linear_input = input;
  o.broken = broken;
  o.carry = carry;
  o.max_tokens = 1200;
  o.threads = 1;
  return o;
}

Fed run(const OwnModel& model, Condition broken, std::span<const TokenId> tokens,
        const std::vector<std::uint32_t>& cuts, LinearInput input = LinearInput::bf16) {
  CpuForward forward(model.tensors(), options_of(broken, Carry::fp32, input));
  Memory memory(model.tensors().config, {});
  Fed fed;
  fed.logits = feed(forward, memory, tokens, cuts);
  fed.state = memory.all(memory.state(0, 0));
  return fed;
}

bool same(const Fed& a, const Fed& b) {
  return same_bits(a.logits.back(), b.logits.back()) && same_bits(a.state, b.state);
}

double distance(std::span<const float> a, std::span<const float> b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst;
}

}  // namespace

TEST_CASE("names of conditions are read back") {
  for (ConditionName const& n : condition_names) CHECK(parse_condition(n.name) == n.condition);
  CHECK(!parse_condition("C1"));
}

TEST_CASE("the chunk form computes the recurrence") {
  OwnModel const model = random_model(small_config(), 21, Dtype::bf16);
  auto const tokens = random_tokens(600, model.tensors().config.vocabulary, 1);
  // Inputs rounded to BF16 would make small differences larger.
  Fed const exact = run(model, Condition::none, tokens, {600}, LinearInput::fp32);
  for (Condition const broken : {Condition::canonical_partition, Condition::same_provenance}) {
    Fed const chunks = run(model, broken, tokens, {600}, LinearInput::fp32);
    CHECK(!same(chunks, exact));
    CHECK(distance(chunks.logits.back(), exact.logits.back()) < 2e-4);
    CHECK(distance(chunks.state, exact.state) < 2e-4);
  }
}

TEST_CASE("each broken condition shows where it should and not where it should not") {
  OwnModel const model = random_model(small_config(), 22, Dtype::bf16);
  auto const tokens = random_tokens(600, model.tensors().config.vocabulary, 2);
  auto const fed = [&](Condition broken, const std::vector<std::uint32_t>& cuts) {
    return run(model, broken, tokens, cuts);
  };
  // C1: cuts off the grid of chunks show, cuts on it do not.
  CHECK(!same(fed(Condition::canonical_partition, {600}),
              fed(Condition::canonical_partition, {300})));
  CHECK(
      same(fed(Condition::canonical_partition, {600}), fed(Condition::canonical_partition, {256})));
  // C3: the number of rows shows; single rows are the exact mode.
  CHECK(!same(fed(Condition::batch_invariance, {600}), fed(Condition::batch_invariance, {300, 1})));
  CHECK(same(fed(Condition::batch_invariance, {1}), fed(Condition::none, {1})));
  // C4: cuts do not show.
  CHECK(same(fed(Condition::same_provenance, {600}), fed(Condition::same_provenance, {77})));
}

TEST_CASE("a BF16 checkpoint of an FP32 run continues differently, an FP32 one does not") {
  OwnModel const model = random_model(small_config(), 23, Dtype::bf16);
  const FalconH1Config& c = model.tensors().config;
  // Soon after the checkpoint: inputs rounded to BF16 hide what has nearly decayed.
  auto const tokens = random_tokens(520, c.vocabulary, 3);
  auto const continues = [&](Condition broken, Dtype stored) {
    CpuForward forward(model.tensors(), options_of(broken, Carry::bf16_at_grid));
    Memory memory(c, {});
    MemoryOptions units;
    units.ssm = stored;
    Memory checkpoints(c, units);
    StateTarget const cold[] = {{512, checkpoints.state(0, 0)}, {520, memory.state(0, 0)}};
    ForwardChunk chunk;
    chunk.tokens = tokens;
    chunk.blocks = memory.blocks(0);
    chunk.targets = cold;
    chunk.logits = true;
    std::vector<float> want(c.vocabulary);
    std::vector<float> got(c.vocabulary);
    forward.run({&chunk, 1}, memory.kv(), want);
    chunk.tokens = std::span(tokens).subspan(512);
    chunk.begin = 512;
    chunk.kv_valid_until = 512;
    chunk.source = checkpoints.state(0, 0);
    chunk.targets = {cold + 1, 1};
    forward.run({&chunk, 1}, memory.kv(), got);
    return same_bits(want, got);
  };
  CHECK(!continues(Condition::lossless_checkpoint, Dtype::bf16));
  CHECK(continues(Condition::lossless_checkpoint, Dtype::f32));
  CHECK(continues(Condition::none, Dtype::bf16));
}
