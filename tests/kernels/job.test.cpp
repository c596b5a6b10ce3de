// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Which bodies with_kernel() picks, and what it refuses.

#include <doctest/doctest.h>

#include <hybridstate/kernels/convolution.hpp>
#include <hybridstate/kernels/greedy.hpp>
#include <hybridstate/kernels/linear.hpp>
#include <hybridstate/kernels/page_copy.hpp>
#include <hybridstate/kernels/rotation.hpp>
#include <hybridstate/kernels/rows.hpp>
#include <hybridstate/kernels/state_update.hpp>

#include "kernels/empty_jobs.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;

namespace {

alignas(16) float memory[64];
alignas(16) std::byte bytes[64];

/// Whether the job runs as these kernels, in this order; as none: whether it is refused.
template <class... Kernels, class Job>
bool runs_as(const Job& job) {
  constexpr std::size_t count = sizeof...(Kernels);
  std::size_t calls = 0;
  bool same = true;
  bool const taken = with_kernel(job, [&]<class K>(const K&) {
    constexpr bool is[] = {std::is_same_v<K, Kernels>..., false};
    same = same && calls < count && is[calls];
    ++calls;
  });
  return same && calls == count && taken == (count > 0);
}

/// Checks that the job is refused after each of the changes.
template <class Job, class... Changes>
void refused(const Job& job, const Changes&... changes) {
  std::size_t at = 0;
  auto const one = [&](const auto& change) {
    Job spoiled = job;
    change(spoiled);
    CAPTURE(at++);
    CHECK(runs_as<>(spoiled));
  };
  (one(changes), ...);
}

TEST_CASE("convolutions: the type of the states, vectors where all parts allow them") {
  ConvolutionStepJob step;
  step.weights = memory;
  step.x = memory;
  step.y = memory;
  step.x_stride = step.y_stride = step.channels = 8;
  CHECK(runs_as<ConvolutionUpdate<Bf16, 8>>(step));
  step.type = ElementType::f32;
  CHECK(runs_as<ConvolutionUpdate<float, 4>>(step));
  step.channels = 6;
  CHECK(runs_as<ConvolutionUpdate<float, 1>>(step));
  step.channels = 8;
  step.checkpoint.base = bytes + 4;
  CHECK(runs_as<ConvolutionUpdate<float, 1>>(step));
  refused(
      step, [](auto& j) { j.width = 1; }, [](auto& j) { j.width = 5; },
      [](auto& j) { j.sequences = 65536; }, [](auto& j) { j.channels = 0x80000000U; },
      [](auto& j) { j.source.part_bytes = 6; }, [](auto& j) { j.checkpoint.base = bytes + 2; });

  ConvolutionRunsJob runs;
  static_cast<ConvolutionInputs&>(runs) = step;
  runs.most_tokens = 65535 * 64;
  CHECK(runs_as<ConvolutionPrefill<Bf16, 8>>(runs));
  runs.x = memory + 1;
  CHECK(runs_as<ConvolutionPrefill<Bf16, 1>>(runs));
  runs.type = ElementType::f32;
  CHECK(runs_as<ConvolutionPrefill<float, 1>>(runs));
  refused(
      runs, [](auto& j) { ++j.most_tokens; }, [](auto& j) { j.most_tokens = 0xffffffffU; },
      [](auto& j) { j.width = 0; }, [](auto& j) { j.stores.line_stride = 2; });
}

TEST_CASE("rows: vectors where rows, weights and widths allow them") {
  RmsNormJob norm;
  norm.h = {memory, 4};
  norm.out = bytes;
  norm.out_stride = 4;
  norm.rows = 2;
  norm.n = 4;
  CHECK(runs_as<RmsNorm<float, true>>(norm));
  norm.type = ElementType::bf16;  // every second row begins inside a vector
  CHECK(runs_as<RmsNorm<Bf16, false>>(norm));
  norm.out_stride = 8;
  CHECK(runs_as<RmsNorm<Bf16, true>>(norm));
  norm.b = {memory + 1, 4};
  CHECK(runs_as<RmsNorm<Bf16, false>>(norm));
  refused(norm, [](auto& j) { j.rows = 0x80000000U; }, [](auto& j) { j.n = 0xffffffffU; });

  GatedNormJob gated;
  gated.out = bytes;
  gated.rows = 1;
  gated.width = 24;
  gated.groups = 3;
  CHECK(runs_as<GatedNorm<float, true>>(gated));
  gated.groups = 4;  // of 6
  CHECK(runs_as<GatedNorm<float, false>>(gated));
  refused(
      gated, [](auto& j) { j.groups = 0; }, [](auto& j) { j.groups = 5; },
      [](auto& j) { j.width = j.groups = 65536; }, [](auto& j) { j.width = 0xfffffffcU; });

  EmbeddingJob embedding;
  embedding.rows = 1;
  embedding.n = 512;
  embedding.table = bytes;
  CHECK(runs_as<EachFour<Embedding<Bf16, true>>>(embedding));
  embedding.n = 510;
  embedding.type = ElementType::f32;
  CHECK(runs_as<EachFour<Embedding<float, false>>>(embedding));
  refused(
      embedding, [](auto& j) { j.n = 0x7fffffff, j.rows = 600; },
      [](auto& j) { j.n = 0xffffffffU; });

  SiluProductJob product;
  product.n = 4;
  CHECK(runs_as<EachFour<SiluProduct<float, true>>>(product));
  product.gate.stride = 3;
  CHECK(runs_as<EachFour<SiluProduct<float, false>>>(product));

  CHECK(runs_as<EachFour<Scale<true>>>(ScaleRows{}));
  CHECK(runs_as<EachFour<Scale<false>>>(ScaleRows{.factors = memory + 1}));
  CHECK(runs_as<EachFour<Add<true>>>(AddRows{}));
  CHECK(runs_as<EachFour<Add<false>>>(AddRows{.n = 3}));
}

TEST_CASE("rotation: vectors where halves of heads and units allow them") {
  RotationJob job;
  job.tokens = job.heads = job.kv_heads = 1;
  job.head_dim = 8;
  job.to.blocks.strides.block_tokens = 16;
  CHECK(runs_as<RotateAndStore<Bf16, 4>>(job));
  job.to.blocks.unit_stride = 8;
  CHECK(runs_as<RotateAndStore<Bf16, 1>>(job));
  job.type = ElementType::f32;
  CHECK(runs_as<RotateAndStore<float, 1>>(job));
  job.to.blocks.unit_stride = 16;
  CHECK(runs_as<RotateAndStore<float, 4>>(job));
  refused(
      job, [](auto& j) { j.head_dim = 7; }, [](auto& j) { j.tokens = 0x7fffffff; },
      [](auto& j) { j.to.blocks.strides.block_tokens = 0; });
}

TEST_CASE("linear: tiles by tokens, pairs where rows allow them") {
  LinearJob job;
  job.columns = 2;
  job.tokens = 8;
  CHECK(runs_as<Linear<Bf16, true, LinearTile{8, 4, 8, 2, 1}>>(job));
  job.tokens = 9;
  CHECK(runs_as<Linear<Bf16, true, LinearTile{8, 8, 2, 2, 2}>>(job));
  job.tokens = 1;
  job.type = ElementType::f32;
  CHECK(runs_as<Linear<float, true, LinearTile{1, 2, 16, 2, 1}>>(job));
  using Elements = Linear<float, false, LinearTile{8, 4, 4, 2, 1}>;
  job.weights = bytes + 4;
  CHECK(runs_as<Elements>(job));
  job.weights = bytes;
  job.x = {memory, 3};
  CHECK(runs_as<Elements>(job));
  job.x = {memory, 4};
  job.columns = 3;
  CHECK(runs_as<Elements>(job));
  refused(job, [](auto& j) { j.rows = 524281; }, [](auto& j) { j.tokens = 0x80000000U; });
}

TEST_CASE("copies: any alignment, as many tiles as a launch takes") {
  constexpr std::int64_t tile = PageCopy<CopyList>::tile_bytes;
  CHECK(runs_as<PageCopy<CopyList>>(CopyList{}));
  CopyPages const pages{.count = 3, .most_bytes = 0x7fffffff / 3 * tile};
  CHECK(runs_as<PageCopy<CopyPages>>(pages));
  refused(pages, [](auto& j) { ++j.most_bytes; }, [](auto& j) { j.most_bytes = -1; });
}

TEST_CASE("the greedy choice: two kernels") {
  GreedyRows rows{.rows = 1, .n = 8};
  CHECK(runs_as<GreedyChunks<true>, GreedyChoice>(rows));
  rows.n = 9;
  CHECK(runs_as<GreedyChunks<false>, GreedyChoice>(rows));
  refused(
      rows, [](auto& j) { j.n = 0; }, [](auto& j) { j.n = 0x80000000U; },
      [](auto& j) { j.rows = 65536; });
}

TEST_CASE("the recurrence: shapes of rows") {
  StateScanJob scan;
  scan.in.heads = scan.in.groups = 1;
  scan.state = 128;
  scan.runs.sequences = 1;
  scan.source.map.split_bytes = scan.kept.states.map.split_bytes = 64;
  CHECK(runs_as<StateScan<StridedRow<Bf16, 256>>>(scan));  // heads cut by pages
  scan.source.map.heads_per_page = scan.kept.states.map.heads_per_page = 1;
  CHECK(runs_as<StateScan<VectorRow<Bf16, 128>>>(scan));
  scan.type = ElementType::f32;
  CHECK(runs_as<StateScan<VectorRow<float, 128>>>(scan));
  scan.state = 257;
  CHECK(runs_as<StateScan<StridedRow<float, 1024>>>(scan));
  refused(
      scan, [](auto& j) { j.state = 1025; }, [](auto& j) { j.state = 0; },
      [](auto& j) { j.in.groups = 2; }, [](auto& j) { j.runs.sequences = 65536; },
      [](auto& j) { j.in.heads = 0x10000, j.in.rows = 0x20000; },
      [](auto& j) { j.source.map = {}; }, [](auto& j) { j.kept.states.map.split_bytes = 6; },
      [](auto& j) { j.source.page_stride = 2; });

  StateUpdateJob step;
  step.in.heads = 1;
  step.state = 64;
  step.source.map.heads_per_page = step.destination.map.heads_per_page = 1;
  CHECK(runs_as<StateUpdate<Bf16, 64>>(step));
  refused(
      step, [](auto& j) { j.state = 96; }, [](auto& j) { j.source.base = bytes + 8; },
      [](auto& j) { j.in.stride = 2; }, [](auto& j) { j.in.groups = 0; },
      [](auto& j) { j.sequences = 65536; });
}

/// Whether every kernel of the job has no CTAs.
template <class Job>
bool runs_nothing(const Job& job) {
  std::uint64_t ctas = 0;
  return with_kernel(job, [&](const auto& kernel) { ctas += kernel.grid().ctas(); }) && ctas == 0;
}

TEST_CASE("an empty batch launches nothing") {
  each_empty_job([](const auto& job) { CHECK(runs_nothing(job)); });
  StateUpdateJob step = empty_state_update();
  step.sequences = 1;
  CHECK(!runs_nothing(step));
  StateScanJob scan = empty_state_scan();
  scan.source.map = {};
  CHECK(runs_nothing(scan));
}

}  // namespace
