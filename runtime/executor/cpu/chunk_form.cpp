// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/cpu/chunk_form.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace hybridstate::runtime::cpu {
namespace {

float dot(const float* a, const float* b, std::size_t n) {
  float sums[8] = {};
  for (std::size_t i = 0; i < n; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// Calls part(address, first element, elements) for the pieces of one row of a stored state.
template <class Part>
void each_part(const SsmPages<>& pages, Dtype dtype, const StateUpdate& j, std::size_t row,
               Part&& part) {
  std::size_t const size = dtype_bytes(dtype);
  for (std::size_t done = 0; done < j.state;) {
    std::size_t const byte = (row * j.state + done) * size;
    std::size_t const count = std::min<std::size_t>(j.state - done, pages.map.run(byte) / size);
    part(pages.addr_ssm(0, static_cast<std::int32_t>(j.head), static_cast<std::int64_t>(byte)),
         done, count);
    done += count;
  }
}

/// One chunk: tokens [first, first + count) of the job.
struct ChunkView {
  const StateUpdate& job;
  std::size_t first;
  std::vector<float> sums;  ///< L_t

  const float* x(std::size_t t) const { return job.x + (first + t) * job.stride; }
  const float* b(std::size_t t) const { return job.b + (first + t) * job.stride; }
  const float* c(std::size_t t) const { return job.c + (first + t) * job.stride; }
  float dt(std::size_t t) const { return job.dt[(first + t) * job.dt_stride]; }
};

/// The state after `count` >= 1 tokens of a chunk that starts from `state`.
void advance(const ChunkView& chunk, std::size_t count, const std::vector<float>& state,
             std::vector<float>& to) {
  std::size_t const n = chunk.job.state;
  float const end = chunk.sums[count - 1];
  float const keep = numeric::exp(end);
  for (std::size_t i = 0; i < state.size(); ++i) to[i] = keep * state[i];
  for (std::size_t s = 0; s < count; ++s) {
    float const weight = numeric::exp(end - chunk.sums[s]) * chunk.dt(s);
    const float* const b = chunk.b(s);
    for (std::size_t row = 0; row < chunk.job.rows; ++row) {
      float const input = weight * chunk.x(s)[row];
      float* const out = to.data() + row * n;
      for (std::size_t i = 0; i < n; ++i) out[i] += input * b[i];
    }
  }
}

void outputs(const ChunkView& chunk, const std::vector<float>& state) {
  StateUpdate const& j = chunk.job;
  std::vector<float> weights(chunk.sums.size());
  for (std::size_t t = 0; t < chunk.sums.size(); ++t) {
    for (std::size_t s = 0; s <= t; ++s)
      weights[s] = numeric::exp(chunk.sums[t] - chunk.sums[s]) * chunk.dt(s) *
                   dot(chunk.b(s), chunk.c(t), j.state);
    float const keep = numeric::exp(chunk.sums[t]);
    for (std::size_t row = 0; row < j.rows; ++row) {
      float inside = 0;
      for (std::size_t s = 0; s <= t; ++s) inside += weights[s] * chunk.x(s)[row];
      float const before = keep * dot(state.data() + row * j.state, chunk.c(t), j.state);
      j.y[(chunk.first + t) * j.y_stride + row] = (before + inside) + j.d * chunk.x(t)[row];
    }
  }
}

}  // namespace

void update_state_in_chunks(const StateUpdate& job, float a, std::uint32_t length,
                            const Kernels& kernels) {
  std::size_t const n = job.state;
  std::vector<float> state(job.rows * n);
  std::vector<float> next(state.size());
  if (job.source != nullptr)
    for (std::size_t row = 0; row < job.rows; ++row)
      each_part(*job.source, job.source_dtype, job, row,
                [&](const void* from, std::size_t at, std::size_t count) {
                  kernels.load(from, job.source_dtype, count, state.data() + row * n + at);
                });
  auto const write = [&](const StateStore& to, const std::vector<float>& from) {
    for (std::size_t row = 0; row < job.rows; ++row)
      each_part(to.pages, to.dtype, job, row, [&](void* at, std::size_t i, std::size_t count) {
        kernels.store(from.data() + row * n + i, to.dtype, count, at);
      });
  };
  std::size_t store = 0;
  for (std::size_t first = 0; first < job.tokens; first += length) {
    std::size_t const count = std::min<std::size_t>(length, job.tokens - first);
    ChunkView chunk{job, first, std::vector<float>(count)};
    float sum = 0;
    for (std::size_t t = 0; t < count; ++t) {
      sum += chunk.dt(t) * a;
      chunk.sums[t] = sum;
    }
    outputs(chunk, state);
    for (; store < job.store_count && job.stores[store].after < first + count; ++store) {
      advance(chunk, job.stores[store].after - first, state, next);
      write(job.stores[store], next);
    }
    advance(chunk, count, state, next);
    state.swap(next);
    bool const on_grid = (job.begin + first + count) % grid_tokens == 0;
    if (job.carry == Carry::bf16_per_token || (job.carry == Carry::bf16_at_grid && on_grid))
      kernels.round(state.data(), Dtype::bf16, state.size());
    for (; store < job.store_count && job.stores[store].after == first + count; ++store)
      write(job.stores[store], state);
  }
}

}  // namespace hybridstate::runtime::cpu
