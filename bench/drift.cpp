// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// How far the CPU executor is from the same model in double precision, by carry:
//
//   build/release/hybridstate make-model --preset tiny --seed 7 --out out/m
//   cmake --build build/release --target bench_drift
//   build/release/bench/drift out/m [TOKENS]
//   build/release/bench/drift --shape 0.5b-4-layers [TOKENS]
//
// One random token sequence, fed to both; at position 512 and at TOKENS a table with, for each
// choice of types,
//
//   state mean, max   ||S - S64|| / ||S64|| of a layer's SSM state, over the layers
//   worst head        the same of one head, the largest over layers and heads
//   logits            ||l - l64|| / ||l64|| over the last 64 positions together
//   abs max           the largest |l - l64| there
//   argmax            on how many of these 64 positions both choose the same token
//   KL                the mean there of the divergence of softmax(l) from softmax(l64), in nats
//
// A row is named by what linear layers round their inputs to, by the type of keys, values and
// convolution inputs, and by the carry. Beside rows in FP32, those with BF16 (what the runtime
// serves) show which error is whose.
//
// Matrices that make-model draws for a large model saturate its time steps, so that a state lasts a
// token or two. --shape draws a model of its own instead, the first layers of Falcon-H1-0.5B with a
// small vocabulary: matrices that keep activations of order 1 (multipliers 1), and A and dt as
// Mamba-2 is initialized: A uniform in [1, 16], dt log-uniform in [0.001, 0.1] before its input.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "bench/fp64_forward.hpp"
#include "executor/cpu/forward.hpp"
#include "executor/sampling.hpp"
#include "model/make_model.hpp"
#include "model/weights.hpp"
#include "tests/cpu/harness.hpp"

namespace {

using namespace hybridstate;
using namespace hybridstate::runtime;
using namespace hybridstate::runtime::cpu;
using fp64::Doubles;

constexpr unsigned threads = 2;
constexpr std::size_t chunk_tokens = 256;
constexpr std::size_t single_tokens = 64;  // before a measured position, fed one at a time
constexpr std::size_t first_position = 512;
constexpr double agreement = 1e-4;  // of the two sides in FP32, else one of them is wrong

// --- models -----------------------------------------------------------------------------------

constexpr const char* shape_name = "0.5b-4-layers";

harness::OwnModel drawn_model() {
  FalconH1Config const published = falcon_preset("falcon-h1-0.5b").config;
  FalconH1Config c;  // every multiplier 1
  c.layers = 4;
  c.vocabulary = 1024;
  c.hidden = published.hidden;
  c.intermediate = published.intermediate;
  c.heads = published.heads;
  c.kv_heads = published.kv_heads;
  c.head_dim = published.head_dim;
  c.rope_theta = published.rope_theta;
  c.ssm_heads = published.ssm_heads;
  c.ssm_head_dim = published.ssm_head_dim;
  c.ssm_state = published.ssm_state;
  c.ssm_groups = published.ssm_groups;
  c.conv_width = published.conv_width;
  c.norm_epsilon = published.norm_epsilon;
  c.gated_norm = published.gated_norm;

  // Inputs of one output of each tensor, in the order in which OwnModel asks for tensors.
  std::vector<double> inputs{1};
  for (std::uint32_t l = 0; l < c.layers; ++l) {
    std::vector<std::uint32_t> layer{1, 1, 1, 1, c.conv_width, c.conv_width, c.hidden};
    if (c.gated_norm) layer.push_back(1);
    for (std::uint32_t const n : {c.ssm_width(), c.hidden, c.hidden, c.hidden, c.query_width(), 1U,
                                  c.hidden, c.hidden, c.intermediate})
      layer.push_back(n);
    inputs.insert(inputs.end(), layer.begin(), layer.end());
  }
  inputs.push_back(1);
  inputs.push_back(c.hidden);

  harness::OwnModel model(c);
  BitGenerator bits(7);
  model.fill(
      [&](std::size_t tensor, std::size_t, int kind) {
        if (kind == 1) return 1 + 0.1 * bits.normal();
        if (kind == 2) return std::log(1 + 15 * bits.uniform());
        if (kind == 3) {
          double const dt = 0.001 * std::pow(100.0, bits.uniform());
          return dt + std::log(-std::expm1(-dt));  // softplus of it is dt
        }
        return bits.normal() / std::sqrt(inputs[tensor]);
      },
      Dtype::bf16);
  return model;
}

// --- the two sides ----------------------------------------------------------------------------

struct Types {
  const char* name;
  LinearInput input;
  Carry carry;
  Dtype ssm;      ///< in which the state is kept between chunks
  Dtype kv_conv;  ///< keys, values, inputs of the convolution
};
constexpr LinearInput as_it_is = LinearInput::fp32;
constexpr LinearInput rounded = LinearInput::bf16;
constexpr Types all_fp32{"fp32  float fp32", as_it_is, Carry::fp32, Dtype::f32, Dtype::f32};
constexpr Types choices[] = {
    all_fp32,
    {"fp32  float bf16-per-token", as_it_is, Carry::bf16_per_token, Dtype::bf16, Dtype::f32},
    {"fp32  float bf16-at-grid", as_it_is, Carry::bf16_at_grid, Dtype::f32, Dtype::f32},
    {"fp32  BF16  fp32", as_it_is, Carry::fp32, Dtype::f32, Dtype::bf16},
    {"fp32  BF16  bf16-per-token", as_it_is, Carry::bf16_per_token, Dtype::bf16, Dtype::bf16},
    {"fp32  BF16  bf16-at-grid", as_it_is, Carry::bf16_at_grid, Dtype::f32, Dtype::bf16},
    {"bf16  float fp32", rounded, Carry::fp32, Dtype::f32, Dtype::f32},
    {"bf16  BF16  fp32", rounded, Carry::fp32, Dtype::f32, Dtype::bf16},
    {"bf16  BF16  bf16-per-token", rounded, Carry::bf16_per_token, Dtype::bf16, Dtype::bf16},
    {"bf16  BF16  bf16-at-grid", rounded, Carry::bf16_at_grid, Dtype::f32, Dtype::bf16},
};

/// What a side leaves at one position.
struct Snapshot {
  std::size_t position = 0;
  std::vector<Doubles> ssm;     ///< per layer: [head][row][element]
  std::vector<Doubles> logits;  ///< of the last positions up to this one
};

Doubles widened(std::span<const float> v) { return {v.begin(), v.end()}; }

class Executor {
 public:
  Executor(const ModelTensors& model, const Types& types, std::size_t tokens)
      : memory_(model.config, memory_options(types, tokens)),
        forward_(model, forward_options(types)),
        logits_(model.config.vocabulary) {}

  Doubles feed(std::span<const TokenId> tokens) {
    ForwardChunk chunk;
    chunk.tokens = tokens;
    chunk.begin = position_;
    chunk.blocks = memory_.blocks(0);
    chunk.source = memory_.state(0, 0);
    position_ += static_cast<Tokens>(tokens.size());
    StateTarget const target{position_, memory_.state(0, 0)};
    chunk.targets = {&target, 1};
    chunk.logits = true;
    forward_.run({&chunk, 1}, memory_.kv(), logits_);
    return widened(logits_);
  }

  Doubles ssm(std::uint32_t layer) const {
    const FalconH1Config& c = forward_.config();
    StateRow const row = memory_.state(0, 0);
    Doubles out;
    for (std::uint32_t h = 0; h < c.ssm_heads; ++h)
      for (std::uint32_t p = 0; p < c.ssm_head_dim; ++p)
        for (std::uint32_t n = 0; n < c.ssm_state; ++n)
          out.push_back(static_cast<double>(memory_.ssm(row, layer, h, p, n)));
    return out;
  }

 private:
  static harness::MemoryOptions memory_options(const Types& types, std::size_t tokens) {
    harness::MemoryOptions o;
    o.kv = o.conv = types.kv_conv;
    o.ssm = types.ssm;
    o.max_tokens = static_cast<std::uint32_t>(tokens);
    o.states = 1;
    return o;
  }
  static ForwardOptions forward_options(const Types& types) {
    ForwardOptions o;
    o.carry = types.carry;
    o.linear_input = types.input;
    o.conv_dtype = types.kv_conv;
    o.max_tokens = chunk_tokens;
    o.threads = threads;
    return o;
  }

  harness::Memory memory_;
  CpuForward forward_;
  std::vector<float> logits_;
  Tokens position_ = 0;
};

/// Feeds all tokens: in chunks, and singly in front of the measured positions.
template <class Side>
std::vector<Snapshot> measure(Side& side, std::span<const TokenId> tokens, std::uint32_t layers,
                              std::span<const std::size_t> positions) {
  std::vector<Snapshot> out;
  std::size_t at = 0;
  for (std::size_t const position : positions) {
    Snapshot s;
    s.position = position;
    std::size_t const singly = position - std::min(position - at, single_tokens);
    while (at < position) {
      std::size_t const count = at < singly ? std::min(chunk_tokens, singly - at) : 1;
      Doubles logits = side.feed(tokens.subspan(at, count));
      at += count;
      if (at > singly) s.logits.push_back(std::move(logits));
    }
    for (std::uint32_t l = 0; l < layers; ++l) s.ssm.push_back(side.ssm(l));
    out.push_back(std::move(s));
  }
  return out;
}

// --- comparison -------------------------------------------------------------------------------

struct Drift {
  double state_mean = 0, state_max = 0, head_max = 0;
  double logits = 0, logit_max = 0, divergence = 0;
  std::size_t same_choice = 0, positions = 0;
};

/// ||a - b|| / ||b||.
double relative(std::span<const double> a, std::span<const double> b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / size);
}

Doubles log_softmax(const Doubles& logits) {
  double const largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double const v : logits) sum += std::exp(v - largest);
  Doubles out;
  for (double const v : logits) out.push_back(v - largest - std::log(sum));
  return out;
}

auto best(const Doubles& logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

Drift compare(const Snapshot& got, const Snapshot& want, std::size_t heads) {
  Drift d;
  for (std::size_t l = 0; l < want.ssm.size(); ++l) {
    std::span<const double> const a = got.ssm[l], b = want.ssm[l];
    double const error = relative(a, b);
    d.state_mean += error / static_cast<double>(want.ssm.size());
    d.state_max = std::max(d.state_max, error);
    std::size_t const size = b.size() / heads;
    for (std::size_t h = 0; h < heads; ++h)
      d.head_max =
          std::max(d.head_max, relative(a.subspan(h * size, size), b.subspan(h * size, size)));
  }
  d.positions = want.logits.size();
  Doubles a, b;
  for (std::size_t i = 0; i < d.positions; ++i) {
    a.insert(a.end(), got.logits[i].begin(), got.logits[i].end());
    b.insert(b.end(), want.logits[i].begin(), want.logits[i].end());
    if (best(got.logits[i]) == best(want.logits[i])) ++d.same_choice;
    Doubles const p = log_softmax(want.logits[i]), q = log_softmax(got.logits[i]);
    for (std::size_t k = 0; k < p.size(); ++k)
      d.divergence += std::exp(p[k]) * (p[k] - q[k]) / static_cast<double>(d.positions);
  }
  d.logits = relative(a, b);
  for (std::size_t i = 0; i < a.size(); ++i)
    d.logit_max = std::max(d.logit_max, std::abs(a[i] - b[i]));
  return d;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int bench(const ModelTensors& model, const std::string& name, std::size_t count) {
  const FalconH1Config& c = model.config;
  std::vector<TokenId> const tokens = harness::random_tokens(count, c.vocabulary, 5);
  Workers workers(threads);

  {
    std::size_t const positions[] = {single_tokens};
    fp64::Forward exact(model, single_tokens, workers);
    Executor executor(model, all_fp32, single_tokens);
    std::span<const TokenId> const few = std::span(tokens).first(single_tokens);
    Snapshot const want = measure(exact, few, c.layers, positions).front();
    Drift const d = compare(measure(executor, few, c.layers, positions).front(), want, c.ssm_heads);
    std::printf("%s, FP32 against FP64 over %zu tokens: logits %.1e, states %.1e\n", name.c_str(),
                single_tokens, d.logits, d.state_max);
    std::fflush(stdout);            // what follows takes minutes
    if (!(d.logits < agreement)) {  // a NaN as well
      std::fprintf(stderr, "drift: the logits differ by more than %.0e: one side is wrong\n",
                   agreement);
      return 1;
    }
  }

  std::vector<std::size_t> positions;
  if (count > first_position) positions.push_back(first_position);
  positions.push_back(count);
  auto start = std::chrono::steady_clock::now();
  std::vector<Snapshot> want;
  {
    fp64::Forward exact(model, count, workers);
    want = measure(exact, tokens, c.layers, positions);
    Doubles memory = exact.memory_tokens();
    std::sort(memory.begin(), memory.end());
    double square = 0;
    for (double const v : want.back().logits.back()) square += v * v;
    std::printf(
        "FP64: %.0f s; a head's state falls to 1/e in %.2g (least), %.2g (median), %.2g "
        "(most) tokens; logits of root mean square %.2f\n",
        seconds_since(start), memory.front(), memory[memory.size() / 2], memory.back(),
        std::sqrt(square / c.vocabulary));
  }
  std::vector<std::vector<Snapshot>> got;
  start = std::chrono::steady_clock::now();
  for (const Types& types : choices) {
    Executor executor(model, types, count);
    got.push_back(measure(executor, tokens, c.layers, positions));
  }
  std::printf("executor (%s, %u threads): %.0f s for %zu passes\n", best_kernels().name, threads,
              seconds_since(start), got.size());

  for (std::size_t i = 0; i < positions.size(); ++i) {
    std::printf("\n%zu tokens\n%-5s %-6s %-15s %10s %10s %10s %10s %10s %7s %10s\n", positions[i],
                "input", "kv,conv", "carry", "state mean", "state max", "worst head", "logits",
                "abs max", "argmax", "KL");
    for (std::size_t k = 0; k < got.size(); ++k) {
      Drift const d = compare(got[k][i], want[i], c.ssm_heads);
      std::printf("%-28s %10.2e %10.2e %10.2e %10.2e %10.2e %4zu/%zu %10.2e\n", choices[k].name,
                  d.state_mean, d.state_max, d.head_max, d.logits, d.logit_max, d.same_choice,
                  d.positions, d.divergence);
    }
  }
  return 0;
}

int usage() {
  std::fprintf(stderr,
               "usage: drift MODEL_FOLDER [TOKENS (8192)]\n"
               "       drift --shape %s [TOKENS (8192)]\n"
               "TOKENS is at least %zu; \"hybridstate make-model\" writes a model\n",
               shape_name, single_tokens);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool const drawn = argc > 1 && std::string(argv[1]) == "--shape";
    int const after = drawn ? 3 : 2;
    if (argc < after || argc > after + 1) return usage();
    if (drawn && std::string(argv[2]) != shape_name) return usage();
    long const count = argc > after ? std::strtol(argv[after], nullptr, 10) : 8192;
    if (count < static_cast<long>(single_tokens) || count > 1'000'000) return usage();
    auto const tokens = static_cast<std::size_t>(count);
    if (drawn) {
      harness::OwnModel const model = drawn_model();
      return bench(model.tensors(), shape_name, tokens);
    }
    FalconH1Model const loaded = FalconH1Model::load(argv[1]);
    return bench(tensors_of(loaded), argv[1], tokens);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "drift: %s\n", e.what());
    return 2;
  }
}
