// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampling_case.hpp"

#include <doctest/doctest.h>

#include "kernels/recording.hpp"

using namespace sampling_test;

TEST_CASE("the drawn tokens are the CPU sampler's") { check_sampling(every_order); }

TEST_CASE("every draw between the first and the last random number finds its token") {
  SamplingCase c(1, 7, 1);
  c.logits = {1, 3, 1, -200, 3, 0, 1, 0};
  SampleRows j;
  auto const drawn = [&](SamplingRow o) {
    c.draws.resize(1);
    j = c.job();
    c.rows[0] = o;
    with_kernel(j, [](const auto& kernel) { Interpreter(ThreadOrder::forward).run(kernel); });
    return c.ids[0];
  };
  constexpr std::uint64_t last = ~std::uint64_t{0};
  CHECK(drawn({1, 0, 1, 0}) == 0);
  CHECK(drawn({1, 0, 1, last}) == 6);
  CHECK(drawn({1, 2, 1, 0}) == 1);
  CHECK(drawn({1, 2, 1, last / 2}) == 1);
  CHECK(drawn({1, 2, 1, last / 2 + 1}) == 4);
  CHECK(drawn({1, 2, 1, last}) == 4);
  CHECK(drawn({1, 3, 1, 0}) == 0);  // of three equal ones the first
  CHECK(drawn({1, 3, 1, last}) == 4);
  CHECK(drawn({1, 4, 1, last}) == 4);
  CHECK(drawn({1, 5, 1, last}) == 6);
  CHECK(drawn({1, 5, 0.5, last}) == 4);
  CHECK(drawn({1, 5, 1e-30, last}) == 1);
  CHECK(drawn({1, 5, -1, last}) == 1);

  c.logits = {3, 1, 1, 3, 0, 0, 0, 0};
  CHECK(drawn({1, 3, 1, last / 9 * 5}) == 3);  // the second of two equal ones is left out
}

TEST_CASE("a draw reads and writes its own row only, in place too") {
  constexpr std::uint32_t n = 4096;
  SamplingCase c(2, n, 0);
  std::mt19937_64 random(3);
  for (float& f : c.logits) f = static_cast<float>(random() % 1000) / 100;
  c.draws.resize(2);
  for (Draw& d : c.draws) d.options = {0.8, 50, 0.9, 4};
  SampleRows job = c.job();
  job.scratch = {c.logits.data(), static_cast<std::int64_t>(n)};
  auto const bytes = c.logits.size() * sizeof(float);
  std::vector<float> const before = c.logits;
  Recording const recording =
      record(Sample<true>{job}, {{"logits", c.logits.data(), bytes, -1, -1},
                                 {"options", c.rows.data(), 2 * sizeof(SamplingRow), -1, -1},
                                 {"ids", c.ids.data(), 2 * sizeof(std::int32_t), 0, 8}});
  for (std::size_t r = 0; r < 2; ++r)
    CHECK(c.ids[r] == static_cast<std::int32_t>(runtime::Sampler().sample(
                          std::span(before).subspan(r * n, n), c.draws[r].options, 0)));
  for (auto const& violation : recording.violations) CHECK_MESSAGE(false, violation);
}

TEST_CASE("no kernel draws from nothing") {
  SampleRows job;
  auto const taken = [&] { return with_kernel(job, [](const auto&) {}); };
  job.rows = 1;
  CHECK_FALSE(taken());
  job.n = most_sampled + 1;
  CHECK_FALSE(taken());
  job.n = most_sampled;
  CHECK(taken());
  job.rows = 1U << 31;
  CHECK_FALSE(taken());
}
