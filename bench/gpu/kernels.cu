// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Device time of the kernels at Falcon-H1-7B's shapes, one layer. A row is the median of several
// replays of a graph whose launches rotate over more memory than a last-level cache holds.
//
//   kernels            prints the table; exit 2 without a device
//   kernels --device   names the device only

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <hybridstate/kernels/attention.hpp>
#include <hybridstate/kernels/convolution.hpp>
#include <hybridstate/kernels/page_copy.hpp>
#include <hybridstate/kernels/shell/cuda.cuh>
#include <hybridstate/kernels/state_update.hpp>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

namespace {

using namespace hybridstate;
using namespace hybridstate::kernels;

constexpr std::uint64_t rotated_bytes = std::uint64_t{512} << 20;
constexpr std::size_t replays = 9;
constexpr float warm_up_ms = 50;  // of replays before the first one that counts: clocks rise

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "kernels: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(2);
}

/// Zeroed device memory and tables, freed together.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (void* p : memory_) cudaFree(p);
  }
  template <class T>
  T* zeros(std::uint64_t count) {
    void* p = nullptr;
    must(cudaMalloc(&p, std::max<std::uint64_t>(1, count * sizeof(T))), "allocation");
    memory_.push_back(p);
    must(cudaMemset(p, 0, count * sizeof(T)), "memset");
    return static_cast<T*>(p);
  }
  std::int32_t* table(const std::vector<std::int32_t>& host) {
    auto* const p = zeros<std::int32_t>(host.size());
    must(cudaMemcpy(p, host.data(), host.size() * 4, cudaMemcpyHostToDevice), "upload");
    return p;
  }

 private:
  std::vector<void*> memory_;
};

/// Seconds of one of `count` launches; launch(i, stream) queues the i-th.
template <class Launch>
double seconds(int count, const Launch& one) {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream), "stream");
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < count; ++i) must(one(i, stream), "launch");
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t executable = nullptr;
  must(cudaGraphInstantiate(&executable, graph, 0), "graph");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> times;
  float warm = 0;
  while (times.size() < replays) {
    must(cudaEventRecord(begin, stream), "event");
    must(cudaGraphLaunch(executable, stream), "graph");
    must(cudaEventRecord(end, stream), "event");
    must(cudaEventSynchronize(end), "kernel");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    if (warm >= warm_up_ms)
      times.push_back(ms);
    else
      warm += ms;
  }
  std::sort(times.begin(), times.end());
  must(cudaEventDestroy(begin), "event");
  must(cudaEventDestroy(end), "event");
  must(cudaGraphExecDestroy(executable), "graph");
  must(cudaGraphDestroy(graph), "graph");
  must(cudaStreamDestroy(stream), "stream");
  return static_cast<double>(times[times.size() / 2]) / 1e3 / count;
}

/// Bytes read and written per second by a copy inside the device.
double copy_bandwidth() {
  std::uint64_t const bytes = rotated_bytes;
  Scratch scratch;
  auto* const from = scratch.zeros<std::byte>(bytes);
  auto* const to = scratch.zeros<std::byte>(bytes);
  double const s = seconds(4, [&](int, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  });
  return 2.0 * static_cast<double>(bytes) / s;
}

constexpr std::uint32_t heads = 24, rows = 128, state = 256;
constexpr std::uint64_t head_bytes = std::uint64_t{rows} * state * 2;
constexpr std::uint64_t state_bytes = heads * head_bytes;
constexpr std::uint64_t page_bytes = 8 * head_bytes, composite_bytes = 1594368;
constexpr std::uint32_t channels = heads * rows + 2 * state;
constexpr std::uint32_t context = 4096;  // of attention

/// States of `sets` batches in one pool, a batch after another, pages in a scattered order.
SsmPages<> scattered(Scratch& scratch, std::byte* base, std::uint32_t states, std::uint32_t members,
                     std::uint64_t stride, std::uint32_t heads_in_page) {
  std::vector<std::int32_t> pages(std::uint64_t{states} * members);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(1));
  return {base, scratch.table(pages), members, static_cast<std::int64_t>(stride),
          MemberMap{head_bytes, 0, heads_in_page, 1, members}};
}

template <class States>
double state_update(std::uint32_t batch, const std::vector<States>& sets) {
  Scratch scratch;
  RecurrenceInputs in;
  auto* const x = scratch.zeros<float>(std::uint64_t{batch} * channels);
  in.x = x;
  in.b = x + heads * rows;
  in.c = in.b + state;
  in.stride = channels;
  in.dt = scratch.zeros<float>(std::uint64_t{batch} * heads);
  in.dt_stride = heads;
  in.dt_bias = in.a = in.d = scratch.zeros<float>(heads);
  in.y = scratch.zeros<float>(std::uint64_t{batch} * heads * rows);
  in.y_stride = heads * rows;
  in.heads = heads;
  in.rows = rows;
  auto const count = static_cast<int>(sets.size());
  using Kernel = StateUpdate<Bf16, state, States>;
  std::uint32_t const tile = Kernel::unroll * Kernel::step * (batch < 4 ? 1 : 2);
  return seconds(std::max(count, 32), [&](int i, cudaStream_t stream) {
    States const& s = sets[static_cast<std::size_t>(i % count)];
    return launch(Kernel{in, s, s, States{}, false, batch, tile}, stream);
  });
}

/// One row; `contiguous`: seconds of the same kernel without tables, 0 where there is none.
void print(const char* kernel, const char* addressing, std::uint32_t batch, double bytes, double s,
           double copy, double contiguous = 0) {
  std::printf("%-18s %-12s %5u %10.2f %10.0f %10.3f", kernel, addressing, batch, s * 1e6,
              bytes / s / 1e9, bytes / s / copy);
  if (contiguous > 0) std::printf(" %10.3f", contiguous / s);
  std::printf("\n");
}

void state_updates(double copy) {
  for (std::uint32_t const batch : {1U, 8U, 32U, 64U}) {
    auto const sets = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(2, rotated_bytes / (batch * state_bytes)));
    std::uint32_t const states = sets * batch;
    Scratch scratch;
    auto* const pool = scratch.zeros<std::byte>(states * composite_bytes);
    SsmPages<> const composite = scattered(scratch, pool, states, 1, composite_bytes, heads);
    SsmPages<> const paged = scattered(scratch, pool, states, 3, page_bytes, 8);
    std::vector<ContiguousStates> contiguous_sets;
    std::vector<SsmPages<>> composite_sets, paged_sets;
    for (std::uint32_t i = 0; i < sets; ++i) {
      contiguous_sets.push_back({pool + std::uint64_t{i} * batch * state_bytes,
                                 static_cast<std::int64_t>(state_bytes),
                                 static_cast<std::int64_t>(head_bytes)});
      composite_sets.push_back(composite);
      composite_sets.back().pages += std::uint64_t{i} * batch;
      paged_sets.push_back(paged);
      paged_sets.back().pages += std::uint64_t{i} * batch * 3;
    }
    double const bytes = 2.0 * batch * static_cast<double>(state_bytes);
    double const contiguous = state_update(batch, contiguous_sets);
    print("state update", "contiguous", batch, bytes, contiguous, copy, contiguous);
    print("state update", "composite", batch, bytes, state_update(batch, composite_sets), copy,
          contiguous);
    print("state update", "paged", batch, bytes, state_update(batch, paged_sets), copy, contiguous);
  }
}

/// The states rotate; inputs and outputs stay in the cache, as behind the linear before.
void convolutions(double copy) {
  constexpr std::uint32_t conv_channels = channels, slot = 32768, taps = 4;
  constexpr std::uint64_t line_bytes = std::uint64_t{taps - 1} * conv_channels * 2;
  for (std::uint32_t const batch : {1U, 8U, 32U, 64U}) {
    auto const sets = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(4096, rotated_bytes / (batch * line_bytes)));
    Scratch scratch;
    std::vector<std::int32_t> lines(std::size_t{sets} * batch);
    std::iota(lines.begin(), lines.end(), 0);
    std::shuffle(lines.begin(), lines.end(), std::mt19937_64(2));
    ConvolutionStepJob job;
    job.weights = scratch.zeros<float>(taps * conv_channels);
    job.bias = scratch.zeros<float>(conv_channels);
    job.x = scratch.zeros<float>(std::uint64_t{batch} * conv_channels);
    job.y = scratch.zeros<float>(std::uint64_t{batch} * conv_channels);
    job.x_stride = job.y_stride = job.channels = conv_channels;
    job.source = {scratch.zeros<std::byte>(std::uint64_t{slot} * sets * batch),
                  scratch.table(lines), 1, slot};
    job.sequences = batch;
    double const s = seconds(static_cast<int>(sets), [&](int i, cudaStream_t stream) {
      ConvolutionStepJob one = job;
      one.source.lines += static_cast<std::uint32_t>(i) * batch;
      one.destination = one.source;
      return launch_job(one, stream);
    });
    double const bytes =
        static_cast<double>(batch * (2 * line_bytes + conv_channels * std::uint64_t{8}));
    print("convolution", "slab", batch, bytes, s, copy);
  }
}

/// A decode step over `context` tokens of each sequence, in units of `block` of them.
double attention(std::uint32_t batch, std::uint32_t block, std::uint32_t piece_tokens) {
  constexpr std::uint32_t kv_heads = 2, group = 6, dim = 128;
  std::uint64_t const sequence = std::uint64_t{context} * kv_heads * dim * 4;
  auto const sets =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(2, rotated_bytes / (batch * sequence)));
  std::uint32_t const blocks = context / block;
  std::vector<std::int32_t> units(std::size_t{sets} * batch * blocks);
  std::iota(units.begin(), units.end(), 0);
  if (blocks > 1) std::shuffle(units.begin(), units.end(), std::mt19937_64(3));
  std::int64_t const head = std::int64_t{block} * dim * 2;
  std::size_t const results =
      piece_tokens == 0 ? 0
                        : piece_results_bytes(batch, kv_heads * group, dim, context, piece_tokens);
  Scratch scratch;
  auto* const pool = scratch.zeros<std::byte>(sets * batch * sequence);
  AttentionJob job;
  AttentionBatch& b = job.batch;
  b.blocks = {pool,
              scratch.table(units),
              blocks,
              2 * head * kv_heads,
              {dim * 2, head, head * kv_heads, static_cast<std::int32_t>(block)}};
  b.position =
      scratch.table(std::vector<std::int32_t>(batch, static_cast<std::int32_t>(context - 1)));
  b.q = scratch.zeros<float>(std::uint64_t{batch} * kv_heads * group * dim);
  b.out = scratch.zeros<float>(std::uint64_t{batch} * kv_heads * group * dim);
  b.q_stride = b.out_stride = kv_heads * group * dim;
  b.sequences = batch;
  b.kv_heads = kv_heads;
  b.group = group;
  job.head_dim = dim;
  if (piece_tokens != 0)
    job.results = piece_results(scratch.zeros<std::byte>(results), batch, kv_heads * group, dim,
                                context, piece_tokens);
  return seconds(static_cast<int>(std::max(sets, 16U)), [&](int i, cudaStream_t stream) {
    AttentionJob one = job;
    one.batch.blocks.units += static_cast<std::uint32_t>(i) % sets * batch * blocks;
    return launch_job(one, stream);
  });
}

void attentions(double copy) {
  struct Form {
    const char* name;
    std::uint32_t piece_tokens;
  };
  for (std::uint32_t const batch : {1U, 8U, 32U, 64U}) {
    double const bytes = 4.0 * batch * context * 2 * 128;
    for (Form const form : {Form{"attention", 0}, Form{"attention, spans", span_tokens},
                            Form{"attention, splits", split_tokens}}) {
      double const contiguous = attention(batch, context, form.piece_tokens);
      print(form.name, "contiguous", batch, bytes, contiguous, copy, contiguous);
      print(form.name, "pages of 512", batch, bytes, attention(batch, 512, form.piece_tokens), copy,
            contiguous);
      if (form.piece_tokens == span_tokens)
        print(form.name, "units of 16", batch, bytes, attention(batch, 16, form.piece_tokens), copy,
              contiguous);
    }
  }
}

void page_copies(double copy) {
  constexpr std::int64_t page = page_bytes;
  constexpr auto pages = static_cast<std::uint32_t>(rotated_bytes / page_bytes);
  Scratch scratch;
  auto* const from = scratch.zeros<std::byte>(rotated_bytes);
  auto* const to = scratch.zeros<std::byte>(rotated_bytes);
  std::vector<std::int32_t> order(pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(4));
  CopyPages const job{from, to, page, page, scratch.table(order), nullptr, pages, page};
  double const s = seconds(4, [&](int, cudaStream_t stream) { return launch_job(job, stream); });
  print("page copy", "gather", pages, 2.0 * static_cast<double>(rotated_bytes), s, copy);
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  cudaError_t const status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    std::fprintf(stderr, "kernels: no CUDA device: %s\n",
                 cudaGetErrorString(status != cudaSuccess ? status : cudaErrorNoDevice));
    return 2;
  }
  cudaDeviceProp device{};
  must(cudaGetDeviceProperties(&device, 0), "device");
  if (argc == 2 && std::string_view(argv[1]) == "--device") {
    std::printf("%s\n", device.name);
    return 0;
  }
  double const copy = copy_bandwidth();
  std::printf("%s: copy %.0f GB/s read and written\n", device.name, copy / 1e9);
  std::printf("%-18s %-12s %5s %10s %10s %10s %10s\n", "kernel", "addressing", "batch", "us",
              "GB/s", "of copy", "contig./it");
  state_updates(copy);
  convolutions(copy);
  attentions(copy);
  page_copies(copy);
  return 0;
}
