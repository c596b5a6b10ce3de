// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Predicted traffic of the kernels at Falcon-H1-7B's shapes, one layer: every access of every
// thread is recorded on the CPU. Nothing here is measured on a GPU.
//
//   kernel_traffic          prints the table; exit 1 if a kernel breaks one of its access rules or
//                           moves more than 1.02 x the bytes that it must

#include <fmt/format.h>

#include <hybridstate/kernels/attention.hpp>
#include <hybridstate/kernels/convolution.hpp>
#include <hybridstate/kernels/linear.hpp>
#include <hybridstate/kernels/page_copy.hpp>
#include <hybridstate/kernels/shell/recorder.hpp>

#include "kernels/state_case.hpp"

namespace {

using namespace hybridstate;
using namespace hybridstate::kernels;

constexpr double most = 1.02;
bool passed = true;

/// Records all kernels of a job and prints one row. `least`: bytes that any kernel would have to
/// move.
template <class Job>
void row(const std::string& kernel, const std::string& addressing, std::uint32_t batch,
         const Job& job, const std::vector<Region>& regions, std::uint64_t least) {
  Recording const recording = record_job(job, regions);
  Traffic const t = recording.total();
  double const ratio = static_cast<double>(t.memory_bytes()) / static_cast<double>(least);
  fmt::print("{:<18} {:<12} {:>5} {:>14} {:>14} {:>8.4f} {:>14}\n", kernel, addressing, batch,
             least, t.memory_bytes(), ratio, t.requested_bytes);
  for (std::string const& v : recording.violations) fmt::print("  {}\n", v);
  passed = passed && recording.violations.empty() && ratio <= most;
}

/// Memory of a kernel, at the start of a line.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count, T value = {})
      : lines_(count * sizeof(T) / sizeof(Line) + 1), count_(count) {
    std::fill_n(data(), count, value);
  }
  T* data() { return reinterpret_cast<T*>(lines_.data()); }
  Region region(const char* name) { return {name, data(), count_ * sizeof(T)}; }

 private:
  std::vector<Line> lines_;
  std::size_t count_;
};

std::uint64_t bytes_of(const auto& v) { return v.size() * sizeof(v[0]); }

void state_update(const char* organization, std::uint32_t heads_per_page, std::uint32_t batch) {
  StateCase c;
  c.sequences = batch;
  c.heads = 24;
  c.rows = 128;
  c.state = 256;
  c.page_gap = heads_per_page == c.heads ? 21504 : 0;  // a composite ends with its conv state
  c.spare_pages = 0;
  c.whole_heads(heads_per_page);
  c.draw(batch);
  std::uint64_t const state = batch * c.heads * c.head_bytes();
  auto const states = static_cast<std::int64_t>(state);
  std::vector<Region> const regions = {{"states", c.bytes(), c.pool_bytes(), states, states, true},
                                       {"x, B, C", c.inputs.data(), bytes_of(c.inputs)},
                                       {"dt", c.dt.data(), bytes_of(c.dt)},
                                       {"dt bias", c.dt_bias.data(), bytes_of(c.dt_bias)},
                                       {"A", c.a.data(), bytes_of(c.a)},
                                       {"D", c.d.data(), bytes_of(c.d)},
                                       {"y", c.y.data(), bytes_of(c.y)}};
  StateUpdateJob job;
  job.in = c.recurrence();
  job.source = job.destination = c.view(c.destination);
  job.sequences = batch;
  job.state = c.state;
  std::uint64_t least = 2 * state;
  for (std::size_t i = 1; i < regions.size(); ++i) least += regions[i].bytes;
  row("state update", organization, batch, job, regions, least);
}

/// Falcon-H1-7B: 3,584 channels, 4 taps.
void convolution(std::uint32_t batch) {
  constexpr std::uint32_t channels = 3584, taps = 4, slot = 32768;
  Buffer<Bf16> pool(std::size_t{batch} * slot / 2);
  Buffer<float> weights(std::size_t{taps} * channels), bias(channels);
  Buffer<float> x(std::size_t{batch} * channels), y(std::size_t{batch} * channels);
  std::vector<std::int32_t> lines(batch);
  std::iota(lines.rbegin(), lines.rend(), 0);
  ConvolutionStepJob job;
  job.weights = weights.data();
  job.bias = bias.data();
  job.x = x.data();
  job.y = y.data();
  job.x_stride = job.y_stride = job.channels = channels;
  job.source = job.destination = {reinterpret_cast<std::byte*>(pool.data()), lines.data(), 1, slot};
  job.sequences = batch;
  Region states = pool.region("states");
  states.read_once = states.written_once = std::int64_t{batch} * (taps - 1) * channels * 2;
  row("convolution", "slab", batch, job,
      {states,
       weights.region("weights"),
       bias.region("bias"),
       x.region("x"),
       y.region("y"),
       {"lines", lines.data(), bytes_of(lines)}},
      std::uint64_t{batch} * channels * ((taps - 1) * 4 + 8) + (taps + 1) * channels * 4);
}

/// Falcon-H1-7B: 12 query heads on 2 KV heads of 128, `context` tokens in blocks. Side by side:
/// pieces of so many tokens.
void attention(const char* addressing, std::uint32_t block, std::uint32_t context,
               std::uint32_t batch, std::uint32_t piece_tokens) {
  constexpr std::uint32_t kv_heads = 2, group = 6, dim = 128;
  std::uint32_t const blocks = context / block;
  std::int64_t const head = std::int64_t{block} * dim * 2;
  Buffer<Bf16> pool(std::size_t{batch} * context * kv_heads * dim * 2);
  Buffer<float> q(std::size_t{batch} * kv_heads * group * dim), out = q;
  std::vector<std::int32_t> units(std::size_t{batch} * blocks);
  std::iota(units.rbegin(), units.rend(), 0);
  std::vector<std::int32_t> const position(batch, static_cast<std::int32_t>(context - 1));
  AttentionJob job;
  AttentionBatch& b = job.batch;
  b.blocks = {reinterpret_cast<std::byte*>(pool.data()),
              units.data(),
              blocks,
              2 * head * kv_heads,
              {dim * 2, head, head * kv_heads, static_cast<std::int32_t>(block)}};
  b.position = position.data();
  b.q = q.data();
  b.out = out.data();
  b.q_stride = b.out_stride = kv_heads * group * dim;
  b.sequences = batch;
  b.kv_heads = kv_heads;
  b.group = group;
  job.head_dim = dim;
  Buffer<std::byte> results(
      piece_tokens == 0 ? 0
                        : piece_results_bytes(batch, kv_heads * group, dim, context, piece_tokens));
  if (piece_tokens != 0)
    job.results =
        piece_results(results.data(), batch, kv_heads * group, dim, context, piece_tokens);
  Region kv = pool.region("units");
  kv.read_once = static_cast<std::int64_t>(kv.bytes);
  kv.whole_lines = true;
  row(piece_tokens == 0             ? "attention"
      : piece_tokens == span_tokens ? "attention, spans"
                                    : "attention, splits",
      addressing, batch, job,
      {kv,
       q.region("q"),
       out.region("out"),
       {"position", position.data(), bytes_of(position)},
       {"tables", units.data(), bytes_of(units)},
       results.region("results")},
      kv.bytes + 2 * q.region("").bytes);
}

void linear(std::uint32_t tokens) {
  constexpr std::uint32_t rows = 1024, columns = 3072;
  Buffer<Bf16> weights(std::size_t{rows} * columns);
  Buffer<float> x(std::size_t{tokens} * columns), y(std::size_t{tokens} * rows);
  LinearJob job;
  job.weights = weights.data();
  job.x = {x.data(), columns};
  job.y = {y.data(), rows};
  job.tokens = tokens;
  job.rows = rows;
  job.columns = columns;
  std::vector<Region> const regions = {weights.region("weights"), x.region("x"), y.region("y")};
  std::uint64_t least = 0;
  for (Region const& r : regions) least += r.bytes;
  row("linear", "BF16 weights", tokens, job, regions, least);
}

void page_copy(std::uint32_t pages) {
  constexpr std::int64_t page = 524288;
  Buffer<std::byte> from(pages * page), to(pages * page);
  std::vector<std::int32_t> order(pages);
  std::iota(order.rbegin(), order.rend(), 0);
  CopyPages const job{from.data(), to.data(), page, page, order.data(), nullptr, pages, page};
  Region source = from.region("source");
  Region destination = to.region("destination");
  source.read_once = destination.written_once = pages * page;
  source.whole_lines = destination.whole_lines = true;
  row("page copy", "gather", pages, job,
      {source, destination, {"table", order.data(), bytes_of(order)}}, 2 * pages * page);
}

}  // namespace

int main() {
  fmt::print("predicted from recorded addresses, Falcon-H1-7B, one layer; not measured on a GPU\n");
  fmt::print("{:<18} {:<12} {:>5} {:>14} {:>14} {:>8} {:>14}\n", "kernel", "addressing", "batch",
             "least bytes", "memory bytes", "ratio", "requested");
  for (std::uint32_t const batch : {1U, 4U}) {
    state_update("composite", 24, batch);
    state_update("paged", 8, batch);
  }
  convolution(4);
  for (std::uint32_t const piece_tokens : {0U, span_tokens}) {
    attention("pages of 512", 512, 4096, 2, piece_tokens);
    attention("units of 16", 16, 4096, 2, piece_tokens);
  }
  linear(1);
  linear(8);
  page_copy(4);
  return passed ? 0 : 1;
}
