// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Predicted traffic of the kernels at Falcon-H1-7B's shapes, one layer: every access of every
// thread is recorded on the CPU. Nothing here is measured on a GPU.
//
//   kernel_traffic          prints the table; exit 1 if a kernel breaks one of its access rules or
//                           moves more than 1.02 x the bytes that it must

#include <fmt/format.h>

#include <hybridstate/kernels/shell/recorder.hpp>

#include "kernels/state_case.hpp"

namespace {

using namespace hybridstate;
using namespace hybridstate::kernels;

constexpr double most = 1.02;
bool passed = true;

/// Prints one row. `least`: bytes that any kernel would have to move.
void row(const std::string& kernel, const std::string& organization, std::uint32_t batch,
         std::uint64_t least, const Recording& recording) {
  Traffic const t = recording.total();
  double const ratio = static_cast<double>(t.memory_bytes()) / static_cast<double>(least);
  fmt::print("{:<16} {:<12} {:>5} {:>14} {:>14} {:>8.4f} {:>14}\n", kernel, organization, batch,
             least, t.memory_bytes(), ratio, t.requested_bytes);
  for (std::string const& v : recording.violations) fmt::print("  {}\n", v);
  passed = passed && recording.violations.empty() && ratio <= most;
}

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
  with_kernel(job, [&](const auto& kernel) {
    row("state update", organization, batch, least, record(kernel, regions));
  });
}

}  // namespace

int main() {
  fmt::print("predicted from recorded addresses, Falcon-H1-7B, one layer; not measured on a GPU\n");
  fmt::print("{:<16} {:<12} {:>5} {:>14} {:>14} {:>8} {:>14}\n", "kernel", "addressing", "batch",
             "least bytes", "memory bytes", "ratio", "requested");
  for (std::uint32_t const batch : {1U, 4U}) {
    state_update("composite", 24, batch);
    state_update("paged", 8, batch);
  }
  return passed ? 0 : 1;
}
