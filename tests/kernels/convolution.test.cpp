// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/convolution_case.hpp"

#include <doctest/doctest.h>

#include "kernels/recording.hpp"

using namespace convolution_test;

TEST_CASE("the convolution's decode step computes the CPU executor's bits") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (bool const bf16 : {true, false})
      for (unsigned const v : {8U, 1U}) {
        CAPTURE(seed);
        check_decode(every_order, bf16, v, seed);
      }
}

TEST_CASE("the convolution of runs of tokens leaves the CPU executor's states at boundaries") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    for (bool const bf16 : {true, false})
      for (unsigned const v : {8U, 1U}) {
        CAPTURE(seed);
        check_runs(every_order, bf16, v, seed);
      }
}

TEST_CASE("the convolution of Falcon-H1-7B moves little more than it must") {
  ConvCase c;
  c.channels = 3584;
  c.gap = 32768 - c.state_bytes();  // lines of the slab
  for (int s = 0; s < 4; ++s) c.add(1, {1});
  c.draw(1);
  auto const regions = [&](ConvCase& of, std::int64_t read, std::int64_t written) {
    auto const size = [](const auto& v) { return v.size() * sizeof(v[0]); };
    return std::vector<Region>{
        {"states", of.pool.data(), size(of.pool), read, written},
        {"weights", of.weights.data(), size(of.weights), -1, 0},
        {"bias", of.bias_values.data(), size(of.bias_values), -1, 0},
        {"inputs", of.x.data(), size(of.x), -1, 0},
        {"outputs", of.y.data(), size(of.y), 0, static_cast<std::int64_t>(size(of.y))},
        {"tokens", of.token_begin.data(), size(of.token_begin), -1, 0},
        {"stores", of.store_begin.data(), size(of.store_begin), -1, 0},
        {"boundaries", of.store_after.data(), size(of.store_after), -1, 0}};
  };
  std::uint64_t const shared = std::uint64_t{5} * c.channels * 4;
  std::int64_t const states = 4 * c.state_bytes();
  check_traffic("convolution, decode", record_job(c.step_job(), regions(c, states, states)),
                shared + 2 * static_cast<std::uint64_t>(states) + 4 * 2 * 4 * c.channels);

  ConvCase run;
  run.channels = c.channels;
  run.add(200, {64, 200});
  run.draw(2);
  std::int64_t const state = run.state_bytes();
  check_traffic(
      "convolution, 200 tokens", record_job(run.runs_job(), regions(run, state, 2 * state)),
      shared + 3 * static_cast<std::uint64_t>(state) + std::uint64_t{200} * 2 * 4 * c.channels);
}
