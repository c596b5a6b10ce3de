// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// What the host does for a decode step of the device executor: tables, uploads, and the jobs of all
// layers or their replay.
//
//     build/release/bench/decode_host [SEQUENCES (32)]    Falcon-H1-7B's shapes, a device that
//                                                         computes nothing
//     build/release/bench/decode_host SEQUENCES MODEL     the model on the first GPU: the host's
//                                                         part of a step, target at most 5 %

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <hybridstate/cache/joint_cache.hpp>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "executor/device/forward.hpp"
#include "executor/idle_device.hpp"
#include "executor/model_executor.hpp"
#include "model/make_model.hpp"
#include "model/weights.hpp"

namespace {

using namespace hybridstate;
using namespace hybridstate::runtime;
using Cache = JointCache<ConvSlabPacked<>, PaperOrder>;
using Executor = ModelExecutor<Cache>;
using Clock = std::chrono::steady_clock;

constexpr Tokens prompt_tokens = 1000;
constexpr Tokens steps = 600;  ///< more than a block of 512 tokens

/// Tensors whose large matrices nobody reads: one stretch of zeros stands for all of them.
class EmptyModel {
 public:
  explicit EmptyModel(const FalconH1Config& c) : zeros_(std::size_t{4} * c.in_proj_rows()) {
    tensors_.config = c;
    tensors_.embed = view({c.vocabulary, c.hidden});
    tensors_.lm_head = tensors_.embed;
    tensors_.final_norm = view({c.hidden});
    tensors_.layers.resize(c.layers);
    for (LayerWeights& layer : tensors_.layers)
      for (const LayerTensor& tensor : layer_tensors(c)) layer.*tensor.slot = view(tensor.shape);
  }
  const ModelTensors& tensors() const { return tensors_; }

 private:
  TensorView view(const TensorShape& shape) const { return {zeros_.data(), Dtype::bf16, shape}; }

  std::vector<std::uint16_t> zeros_;
  ModelTensors tensors_;
};

struct Median {
  std::vector<double> of;
  double value() {
    std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
    return of[of.size() / 2];
  }
};

/// Medians over the steps of a kind.
struct Steps {
  Median host_us, all_us;  ///< without and with the wait for the device
  double bytes = 0;        ///< most that one uploaded
};
struct Measured {
  Steps inside;    ///< blocks
  Steps crossing;  ///< rows of tables change
};

Measured measure(const ModelTensors& model, std::uint32_t sequences,
                 std::unique_ptr<device::Device> device) {
  FalconH1Config const& c = model.config;
  CacheOptions options;
  options.max_sequences = sequences;
  options.max_sequence_tokens = prompt_tokens + steps;
  Cache cache(ConvSlabPacked<>(checked_layout(geometry_for(c, Carry::bf16_per_token), {}).value(),
                               sequences * 40),
              options, PaperOrder{});
  Workload workload;
  for (std::uint32_t i = 0; i < sequences; ++i) {
    Request r;
    r.prompt_tokens = prompt_tokens;
    for (Tokens t = 0; t < prompt_tokens; ++t) r.tokens.push_back(static_cast<TokenId>(i + t));
    r.output_tokens = steps;
    workload.requests.push_back(std::move(r));
  }
  TokenContent content(workload, c.vocabulary);
  ForwardOptions forward;
  forward.max_tokens = 2048;
  auto pass = std::make_unique<device::DeviceForward>(model, forward, std::move(device),
                                                      Executor::needs(cache, forward));
  const device::DeviceForward& made = *pass;
  NullWitness witness;
  Executor executor(cache, std::move(pass), forward, content, {}, StepTime::unit, witness);

  std::vector<SequenceHandle> handles;
  StepPlan plan;
  auto const run = [&](std::uint32_t first, std::uint32_t count, Tokens begin, Tokens tokens) {
    plan.clear(cache.begin_step());
    for (std::uint32_t r = first; r < first + count; ++r) {
      if (!cache.reserve(handles[r], tokens)) std::abort();
      cache.commit(handles[r], content.computed(r, begin, begin + tokens), 0);
      plan.chunks.push_back({handles[r], r, begin, tokens, begin > 0, true});
    }
    auto const start = Clock::now();
    executor.run(plan);
    std::chrono::duration<double, std::micro> const took = Clock::now() - start;
    cache.complete(plan.step);
    return took.count();
  };
  for (std::uint32_t r = 0; r < sequences; ++r) {
    Admission const a =
        cache.admit(content.known(r, prompt_tokens), AdmitRequest{r, prompt_tokens});
    if (!a) std::abort();
    handles.push_back(a.sequence);
    run(r, 1, 0, prompt_tokens);
  }
  // Prompts alike in length cross their blocks together.
  Measured measured;
  for (Tokens step = 0; step < steps; ++step) {
    device::UploadCounts const before = made.uploads();
    auto const waited = made.waited();
    double const us = run(0, sequences, prompt_tokens + step, 1);
    std::chrono::duration<double, std::micro> const waiting = made.waited() - waited;
    Steps& of =
        made.uploads().table_rows != before.table_rows ? measured.crossing : measured.inside;
    of.all_us.of.push_back(us);
    of.host_us.of.push_back(us - waiting.count());
    of.bytes = std::max(of.bytes, static_cast<double>(made.uploads().bytes - before.bytes));
  }
  return measured;
}

void without_device(std::uint32_t sequences) {
  EmptyModel const model(falcon_preset("falcon-h1-7b").config);
  std::printf(
      "Falcon-H1-7B, %u sequences, one decode step: time of the host (median) and most bytes "
      "uploaded\n%-28s %-24s    %s\n",
      sequences, "", "inside blocks", "rows of tables change");
  for (bool const replays : {true, false}) {
    auto device = std::make_unique<harness::IdleDevice>();
    device->replays = replays;
    Measured m = measure(model.tensors(), sequences, std::move(device));
    std::printf("%-28s %8.1f us %9.0f B    %8.1f us %9.0f B\n",
                replays ? "tables, and a replay" : "tables, and all jobs", m.inside.host_us.value(),
                m.inside.bytes, m.crossing.host_us.value(), m.crossing.bytes);
  }
}

void on_gpu(std::uint32_t sequences, const char* folder) {
  FalconH1Model const loaded = FalconH1Model::load(folder);
  std::unique_ptr<device::Device> gpu = device::cuda_device(false);
  std::printf("%s, %u sequences, %s, one decode step (medians):\n", folder, sequences,
              gpu->name().c_str());
  Measured m = measure(tensors_of(loaded), sequences, std::move(gpu));
  for (auto& [name, of] : {std::pair<const char*, Steps*>{"inside blocks", &m.inside},
                           {"rows of tables change", &m.crossing}}) {
    double const share = of->host_us.value() / of->all_us.value() * 100;
    std::printf("  %-22s host %8.1f us of %10.1f us: %5.2f %% (target 5)  %s\n", name,
                of->host_us.value(), of->all_us.value(), share, share <= 5 ? "met" : "missed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::uint32_t sequences = 32;
  if (argc > 3 ||
      (argc > 1 &&
       (std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), sequences).ec != std::errc{} ||
        sequences == 0))) {
    std::fprintf(stderr,
                 "usage: decode_host [SEQUENCES (32) [MODEL_FOLDER]]: how many sequences decode "
                 "together, and a model to run on a GPU\n");
    return 2;
  }
  try {
    if (argc == 3)
      on_gpu(sequences, argv[2]);
    else
      without_device(sequences);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "decode_host: %s\n", e.what());
    return 2;
  }
  return 0;
}
