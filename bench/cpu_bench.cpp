// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The CPU executor's speed as three ratios, each against what the same machine does beside it:
//
//   build/release/hybridstate make-model --preset falcon-h1-0.5b --seed 7 --out out/m05
//   cmake --build build/release --target bench_cpu_bench
//   build/release/bench/cpu_bench out/m05 [ROUNDS] [THREADS] [bf16|fp32]
//
//   decode / read     bytes of weights per second of a decode step with one sequence, over the
//                     bytes per second at which the same threads read a large buffer (the best of
//                     several access patterns)                                     target >= 0.80
//   prefill / peak    multiply-adds per second of the weight matrices in a prefill of 256 tokens,
//                     over those of a loop on registers with the same instruction  target >= 0.50
//   batch 8 / 1       tokens per second of decode steps with eight sequences, over those with one
//                                                                                  target >= 4.0
//
// The two sides of a ratio alternate in every round, and the medians of the rounds' ratios are
// printed: a machine with other work on it slows both sides. The last argument says what the inputs
// of linear layers are rounded to. The weights of a step exclude the
// embedding, of which a step reads one row a token; a tied one is read as the output matrix.

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/cpu/forward.hpp"
#include "model/weights.hpp"
#include "tests/cpu/harness.hpp"

#if defined(__x86_64__)
#define HYBRIDSTATE_BENCH_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define HYBRIDSTATE_BENCH_DOT \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define HYBRIDSTATE_BENCH_AVX2 __attribute__((target("avx2,fma")))
#include <immintrin.h>
#endif

namespace {

using namespace hybridstate;
using namespace hybridstate::runtime;
using namespace hybridstate::runtime::cpu;

double seconds(const std::function<void()>& work) {
  auto const start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  std::size_t const n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

// --- what the machine can do ------------------------------------------------------------------

constexpr std::size_t chain_count = 12;  // enough for two units with a latency of five
constexpr std::size_t peak_steps = std::size_t{1} << 16;

/// Multiply-adds on registers; returns how many were done.
using Peak = std::size_t (*)(float seed, float* out);
/// Reads `streams` neighbouring pieces of `bytes` at once, a line of each in turn.
using Read = float (*)(const float* from, std::size_t streams, std::size_t bytes, bool prefetch);

template <class Vector>
__attribute__((always_inline)) inline std::size_t keep_all(const Vector (&chains)[chain_count],
                                                           float* out, std::size_t products = 1) {
  for (std::size_t i = 0; i < chain_count; ++i)
    std::memcpy(out + i * (sizeof(Vector) / 4), &chains[i], sizeof(Vector));
  return peak_steps * chain_count * (sizeof(Vector) / 4) * products;
}

// NOLINTBEGIN(modernize-loop-convert): the unroll pragma wants counted loops
#if defined(__x86_64__)
HYBRIDSTATE_BENCH_AVX512 std::size_t peak_avx512(float seed, float* out) {
  __m512 const a = _mm512_set1_ps(0.5F + seed);
  __m512 const b = _mm512_set1_ps(seed);
  __m512 c[chain_count];
  for (auto& v : c) v = a;
  for (std::size_t k = 0; k < peak_steps; ++k)
#pragma GCC unroll 12
    for (std::size_t i = 0; i < chain_count; ++i) c[i] = _mm512_fmadd_ps(c[i], a, b);
  return keep_all(c, out);
}
HYBRIDSTATE_BENCH_DOT std::size_t peak_dot(float seed, float* out) {
  auto const a = (__m512bh)_mm512_set1_epi32(0x3f003f00);  // all halves
  __m512 c[chain_count];
  for (auto& v : c) v = _mm512_set1_ps(seed);
  for (std::size_t k = 0; k < peak_steps; ++k)
#pragma GCC unroll 12
    for (std::size_t i = 0; i < chain_count; ++i) c[i] = _mm512_dpbf16_ps(c[i], a, a);
  return keep_all(c, out, 2);
}
HYBRIDSTATE_BENCH_AVX2 std::size_t peak_avx2(float seed, float* out) {
  __m256 const a = _mm256_set1_ps(0.5F + seed);
  __m256 const b = _mm256_set1_ps(seed);
  __m256 c[chain_count];
  for (auto& v : c) v = a;
  for (std::size_t k = 0; k < peak_steps; ++k)
#pragma GCC unroll 12
    for (std::size_t i = 0; i < chain_count; ++i) c[i] = _mm256_fmadd_ps(c[i], a, b);
  return keep_all(c, out);
}
HYBRIDSTATE_BENCH_AVX512 float read_avx512(const float* from, std::size_t streams,
                                           std::size_t bytes, bool prefetch) {
  std::size_t const n = bytes / 4;
  __m512 sum[4] = {};
  for (std::size_t k = 0; k < n; k += 64)
    for (std::size_t s = 0; s < streams; ++s) {
      const float* const at = from + s * n + k;
      if (prefetch)
        for (std::size_t i = 0; i < 4; ++i) __builtin_prefetch(at + streams * n + i * 16);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i)
        sum[i] = _mm512_add_ps(sum[i], _mm512_loadu_ps(at + i * 16));
    }
  float out[16];
  _mm512_storeu_ps(out, _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]),  //
                                      _mm512_add_ps(sum[2], sum[3])));
  return out[0] + out[15];
}
HYBRIDSTATE_BENCH_AVX2 float read_avx2(const float* from, std::size_t streams, std::size_t bytes,
                                       bool prefetch) {
  std::size_t const n = bytes / 4;
  __m256 sum[4] = {};
  for (std::size_t k = 0; k < n; k += 32)
    for (std::size_t s = 0; s < streams; ++s) {
      const float* const at = from + s * n + k;
      if (prefetch)
        for (std::size_t i = 0; i < 2; ++i) __builtin_prefetch(at + streams * n + i * 16);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i)
        sum[i] = _mm256_add_ps(sum[i], _mm256_loadu_ps(at + i * 8));
    }
  float out[8];
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]),  //
                                      _mm256_add_ps(sum[2], sum[3])));
  return out[0] + out[7];
}
#endif
// NOLINTEND(modernize-loop-convert)

std::size_t peak_scalar(float seed, float* out) {
  float c[chain_count];
  for (float& v : c) v = seed;
  for (std::size_t k = 0; k < peak_steps; ++k)
    for (float& v : c) v = numeric::fused(v, 0.5F + seed, seed);
  return keep_all(c, out);
}
float read_scalar(const float* from, std::size_t streams, std::size_t bytes, bool) {
  std::uint64_t sum = 0;
  for (std::size_t k = 0; k < streams * bytes / 8; ++k) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + 2 * k, 8);
    sum += word;
  }
  return static_cast<float>(sum);
}

struct Machine {
  Peak peak = peak_scalar;
  Read read = read_scalar;

  /// For a model whose linears take such inputs.
  explicit Machine([[maybe_unused]] LinearInput input) {
#if defined(__x86_64__)
    if (available(Isa::avx512)) {
      peak = peak_avx512;
      read = read_avx512;
      if (input == LinearInput::bf16 && available(Isa::avx512_bf16)) peak = peak_dot;
    } else if (available(Isa::avx2)) {
      peak = peak_avx2;
      read = read_avx2;
    }
#endif
  }
};

volatile float sink = 0;  // what the loops computed, so that they are not left out

/// Zero bytes in the largest pages that the system gives.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    void* const data =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      std::fprintf(stderr, "cpu_bench: %zu bytes of memory for the read test are not there\n",
                   bytes);
      std::exit(1);
    }
#if defined(MADV_HUGEPAGE)
    ::madvise(data, bytes, MADV_HUGEPAGE);
#endif
    std::memset(data, 1, bytes);
    data_ = static_cast<float*>(data);
  }
  ~Buffer() { ::munmap(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const float* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  float* data_ = nullptr;
  std::size_t bytes_;
};

struct Pattern {
  std::size_t streams, bytes;  ///< pieces read side by side and their size
  bool prefetch;
};
constexpr std::array<Pattern, 6> patterns = {{{1, 1U << 18, false},
                                              {1, 1U << 12, true},
                                              {4, 1U << 16, false},
                                              {8, 1U << 15, false},
                                              {8, 2048, true},
                                              {16, 1U << 14, false}}};
constexpr std::size_t item_bytes = 1U << 18;

/// Bytes per second of the best pattern.
double read_speed(Workers& workers, const Machine& machine, const Buffer& buffer,
                  std::array<double, patterns.size()>& best) {
  double fastest = 0;
  std::size_t const items = buffer.bytes() / item_bytes - 1;  // prefetches stay inside
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const Pattern& p = patterns[i];
    double const time = seconds([&] {
      workers.run(items, [&](std::size_t item) {
        std::size_t const step = p.streams * p.bytes;
        float sum = 0;
        for (std::size_t at = 0; at < item_bytes; at += step)
          sum += machine.read(buffer.data() + (item * item_bytes + at) / 4, p.streams, p.bytes,
                              p.prefetch);
        if (sum == 1) sink = sum;
      });
    });
    double const speed = static_cast<double>(items * item_bytes) / time;
    best[i] = std::max(best[i], speed);
    fastest = std::max(fastest, speed);
  }
  return fastest;
}

/// Multiply-adds per second of all threads.
double peak_speed(Workers& workers, const Machine& machine) {
  std::size_t const items = std::size_t{workers.threads()} * 64;
  std::size_t each = 0;
  double const time = seconds([&] {
    workers.run(items, [&](std::size_t item) {
      alignas(64) float out[chain_count * 16];
      std::size_t const done = machine.peak(static_cast<float>(item) * 1e-6F, out);
      if (item == 0) each = done;
      if (out[0] == 2) sink = out[0];
    });
  });
  return static_cast<double>(each * items) / time;
}

// --- the executor -----------------------------------------------------------------------------

constexpr std::uint32_t prompt_tokens = 256;
constexpr std::uint32_t decode_batch = 8;
constexpr std::uint32_t decode_steps = 8;

struct Weights {
  double matrix_elements = 0;  ///< of the layers
  double head_elements = 0;    ///< of the output matrix
  double step_bytes = 0;       ///< that a decode step reads
};
Weights weights_of(const ModelTensors& model) {
  Weights w;
  for (const LayerWeights& l : model.layers)
    for (const TensorView* t :
         {&l.q, &l.k, &l.v, &l.o, &l.in_proj, &l.out_proj, &l.gate, &l.up, &l.down}) {
      w.matrix_elements += static_cast<double>(t->elements());
      w.step_bytes += static_cast<double>(t->bytes());
    }
  w.head_elements = static_cast<double>(model.lm_head.elements());
  w.step_bytes += static_cast<double>(model.lm_head.bytes());
  return w;
}

/// Sequences in memory of their own, each with a prompt of `prompt_tokens`.
class Serving {
 public:
  Serving(const ModelTensors& model, unsigned threads, LinearInput input)
      : forward_(model, options(threads, input)),
        memory_(model.config, memory_options()),
        tokens_(harness::random_tokens(max_position, model.config.vocabulary, 5)),
        logits_(std::size_t{decode_batch} * model.config.vocabulary) {}

  /// The prompt of one sequence in one chunk.
  double prefill(std::uint32_t sequence) {
    return seconds([&] { step(sequence, 1, 0, prompt_tokens); });
  }
  /// One token more for each of the first `batch` sequences, `decode_steps` times.
  double decode(std::uint32_t batch) {
    return seconds([&] {
      for (std::uint32_t i = 0; i < decode_steps; ++i) step(0, batch, prompt_tokens + i, 1);
    });
  }

 private:
  static constexpr std::uint32_t max_position = prompt_tokens + decode_steps;

  static ForwardOptions options(unsigned threads, LinearInput input) {
    ForwardOptions o;
    o.linear_input = input;
    o.max_tokens = prompt_tokens;
    o.threads = threads;
    return o;
  }
  static harness::MemoryOptions memory_options() {
    harness::MemoryOptions o;
    o.kv = o.ssm = o.conv = Dtype::bf16;
    o.max_tokens = max_position;
    o.sequences = decode_batch;
    o.states = 2;
    return o;
  }

  /// A step of one chunk for each of `count` sequences. The states of the prompt and of the decode
  /// steps are different ones, so that every round computes the same.
  void step(std::uint32_t first, std::uint32_t count, std::uint32_t begin, std::uint32_t tokens) {
    std::vector<StateTarget> targets(count);
    std::vector<ForwardChunk> chunks(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      ForwardChunk& c = chunks[i];
      c.tokens = std::span(tokens_).subspan(begin, tokens);
      c.begin = begin;
      c.blocks = memory_.blocks(first + i);
      c.source = memory_.state(first + i, begin > prompt_tokens ? 1 : 0);
      targets[i] = {begin + tokens, memory_.state(first + i, begin == 0 ? 0 : 1)};
      c.targets = {&targets[i], 1};
      c.logits = true;
    }
    forward_.run(chunks, memory_.kv(), logits_);
  }

  CpuForward forward_;
  harness::Memory memory_;
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
};

int bench(const std::string& folder, std::size_t rounds, unsigned threads, LinearInput wanted) {
  FalconH1Model const loaded = FalconH1Model::load(folder);
  ModelTensors const model = tensors_of(loaded);
  Weights const weights = weights_of(model);
  LinearInput const input = input_of(model.lm_head.dtype, wanted);  // of the other matrices, too
  Machine const machine(input);
  Workers workers(threads);
  Buffer const buffer(std::size_t{1} << 29);
  Serving serving(model, threads, input);
  for (std::uint32_t s = 0; s < decode_batch; ++s) serving.prefill(s);
  serving.decode(decode_batch);

  std::array<double, patterns.size()> by_pattern{};
  std::vector<double> read, decode, decode_ratio, batch, batch_ratio, peak, prefill, prefill_ratio;
  for (std::size_t r = 0; r < rounds; ++r) {
    read.push_back(read_speed(workers, machine, buffer, by_pattern));
    double const one = serving.decode(1);
    decode.push_back(weights.step_bytes * decode_steps / one);
    decode_ratio.push_back(decode.back() / read.back());
    batch.push_back(decode_batch * decode_steps / serving.decode(decode_batch));
    batch_ratio.push_back(batch.back() / (decode_steps / one));
    peak.push_back(peak_speed(workers, machine));
    double const prompt = serving.prefill(0);
    prefill.push_back((weights.matrix_elements * prompt_tokens + weights.head_elements) / prompt);
    prefill_ratio.push_back(prefill.back() / peak.back());
  }

  std::printf("%s, linear input %s, %u threads, %s, %zu rounds; %.1f MB of weights a step\n",
              folder.c_str(), linear_input_name(input), workers.threads(), best_kernels().name,
              rounds, weights.step_bytes / 1e6);
  std::printf("read, best of each pattern (streams x bytes):");
  for (std::size_t i = 0; i < patterns.size(); ++i)
    std::printf(" %zux%zu%s %.1f", patterns[i].streams, patterns[i].bytes,
                patterns[i].prefetch ? "p" : "", by_pattern[i] / 1e9);
  std::printf(" GB/s\n\n");
  auto const row = [](const char* name, double a, double b, const char* unit,
                      const std::vector<double>& ratios, double target) {
    auto const [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    std::printf("%-16s %8.1f %8.1f %-8s %6.3f  %5.3f-%5.3f  %5.2f  %s\n", name, a, b, unit,
                median(ratios), *low, *high, target, median(ratios) >= target ? "met" : "missed");
  };
  std::printf("%-16s %8s %8s %-8s %6s  %11s  %6s\n", "ratio", "above", "below", "unit", "median",
              "range", "target");
  row("decode / read", median(decode) / 1e9, median(read) / 1e9, "GB/s", decode_ratio, 0.80);
  row("prefill / peak", median(prefill) / 1e9, median(peak) / 1e9, "GFMA/s", prefill_ratio, 0.50);
  row("batch 8 / 1", median(batch), median(decode) / weights.step_bytes, "tokens/s", batch_ratio,
      4.0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  long const rounds = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 9;
  long const threads = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 2;
  std::optional<LinearInput> const input = linear_input_named(argc > 4 ? argv[4] : "bf16");
  if (argc < 2 || argc > 5 || !input || rounds < 1 || rounds > 1000 || threads < 1 ||
      threads > 1024) {
    std::fprintf(stderr,
                 "usage: cpu_bench MODEL_FOLDER [ROUNDS (9)] [THREADS (2)] [bf16|fp32 (bf16)]; "
                 "\"hybridstate make-model\" writes a model\n");
    return 2;
  }
  try {
    return bench(argv[1], static_cast<std::size_t>(rounds), static_cast<unsigned>(threads), *input);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cpu_bench: %s\n", e.what());
    return 2;
  }
}
