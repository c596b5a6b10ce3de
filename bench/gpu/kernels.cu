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
constexpr int replays = 9;

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "kernels: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(2);
}

/// Device memory, zeroed; freed with the process.
template <class T>
T* zeros(std::uint64_t count) {
  void* p = nullptr;
  must(cudaMalloc(&p, count * sizeof(T)), "allocation");
  must(cudaMemset(p, 0, count * sizeof(T)), "memset");
  return static_cast<T*>(p);
}
std::int32_t* table(const std::vector<std::int32_t>& host) {
  auto* const p = zeros<std::int32_t>(host.size());
  must(cudaMemcpy(p, host.data(), host.size() * 4, cudaMemcpyHostToDevice), "upload");
  return p;
}

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
  for (int i = 0; i <= replays; ++i) {
    must(cudaEventRecord(begin, stream), "event");
    must(cudaGraphLaunch(executable, stream), "graph");
    must(cudaEventRecord(end, stream), "event");
    must(cudaEventSynchronize(end), "kernel");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i > 0) times.push_back(ms);  // the first one warms up
  }
  std::sort(times.begin(), times.end());
  must(cudaGraphExecDestroy(executable), "graph");
  must(cudaGraphDestroy(graph), "graph");
  must(cudaStreamDestroy(stream), "stream");
  return static_cast<double>(times[times.size() / 2]) / 1e3 / count;
}

/// Bytes read and written per second by a copy inside the device.
double copy_bandwidth() {
  std::uint64_t const bytes = rotated_bytes;
  auto* const from = zeros<std::byte>(bytes);
  auto* const to = zeros<std::byte>(bytes);
  double const s = seconds(4, [&](int, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  });
  must(cudaFree(from), "free");
  must(cudaFree(to), "free");
  return 2.0 * static_cast<double>(bytes) / s;
}

constexpr std::uint32_t heads = 24, rows = 128, state = 256;
constexpr std::uint64_t head_bytes = std::uint64_t{rows} * state * 2;
constexpr std::uint64_t state_bytes = heads * head_bytes;
constexpr std::uint64_t page_bytes = 8 * head_bytes, composite_bytes = 1594368;
constexpr std::uint32_t channels = heads * rows + 2 * state;

/// States of `sets` batches in one pool, a batch after another, pages in a scattered order.
SsmPages<> scattered(std::byte* base, std::uint32_t states, std::uint32_t members,
                     std::uint64_t stride, std::uint32_t heads_in_page) {
  std::vector<std::int32_t> pages(std::uint64_t{states} * members);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(1));
  return {base, table(pages), members, static_cast<std::int64_t>(stride),
          MemberMap{head_bytes, 0, heads_in_page, 1, members}};
}

template <class States>
double state_update(std::uint32_t batch, const std::vector<States>& sets) {
  RecurrenceInputs in;
  auto* const x = zeros<float>(std::uint64_t{batch} * channels);
  in.x = x;
  in.b = x + heads * rows;
  in.c = in.b + state;
  in.stride = channels;
  in.dt = zeros<float>(std::uint64_t{batch} * heads);
  in.dt_stride = heads;
  in.dt_bias = in.a = in.d = zeros<float>(heads);
  in.y = zeros<float>(std::uint64_t{batch} * heads * rows);
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

void state_updates(double copy) {
  for (std::uint32_t const batch : {1U, 8U, 32U, 64U}) {
    auto const sets = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(2, rotated_bytes / (batch * state_bytes)));
    std::uint32_t const states = sets * batch;
    auto* const pool = zeros<std::byte>(states * composite_bytes);
    SsmPages<> const composite = scattered(pool, states, 1, composite_bytes, heads);
    SsmPages<> const paged = scattered(pool, states, 3, page_bytes, 8);
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
    auto const print = [&](const char* addressing, double s) {
      std::printf("%-16s %-12s %5u %10.2f %10.0f %10.3f %10.3f\n", "state update", addressing,
                  batch, s * 1e6, bytes / s / 1e9, bytes / s / copy, contiguous / s);
    };
    print("contiguous", contiguous);
    print("composite", state_update(batch, composite_sets));
    print("paged", state_update(batch, paged_sets));
    must(cudaFree(pool), "free");
  }
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
  std::printf("%-16s %-12s %5s %10s %10s %10s %10s\n", "kernel", "addressing", "batch", "us",
              "GB/s", "of copy", "contig./it");
  state_updates(copy);
  return 0;
}
