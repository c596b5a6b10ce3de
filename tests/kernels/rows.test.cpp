// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/rows_case.hpp"

#include <doctest/doctest.h>

#include "kernels/recording.hpp"
#include "test_scale.hpp"

using namespace rows_test;

TEST_CASE("the steps of a token's row compute the CPU executor's bits") {
  std::uint64_t seed = 1;
  for (std::uint32_t const n :
       {1U, 3U, 4U, 16U, 17U, 60U, 128U, 132U, 255U, 256U, 300U, 1000U, 1280U, 2049U}) {
    if (++seed % 2 == 0 && test_scale() < 0.5) continue;
    CAPTURE(n);
    check_all(every_order, n, {false}, seed);
    if (n % 4 == 0) check_all(every_order, n, {true}, seed + 100);
  }
}

TEST_CASE("a row of the gated norm may be written where it was read") {
  Floats y(2, 640, {}, 5), z(2, 640, {}, 6);
  std::vector<float> const weight = draw(640, 7);
  Floats want = y;
  cpu::GatedNorm const norm{640, 2, weight.data(), true, 1e-6F};
  for (std::uint32_t r = 0; r < 2; ++r) reference().gated_norm(norm, want.row(r), z.row(r));
  GatedNorm<float, true> kernel;
  kernel.y = y.read();
  kernel.z = z.read();
  kernel.weight = weight.data();
  kernel.norm_before_gate = true;
  kernel.epsilon = norm.epsilon;
  kernel.out = y.values.data();
  kernel.out_stride = y.rows().stride;
  kernel.rows = 2;
  kernel.width = 640;
  kernel.groups = 2;
  Interpreter(ThreadOrder::shuffled).run(kernel);
  CHECK(y == want);
}

TEST_CASE("the rows of Falcon-H1-7B move little more than they must") {
  constexpr std::uint32_t rows = 4, hidden = 3072, intermediate = 12288;
  std::vector<float> const weight = draw(hidden, 3);
  auto const region = [](const char* name, const auto& v, bool written) {
    auto const bytes = v.size() * sizeof(v[0]);
    return Region{name, v.data(), bytes, -1, written ? static_cast<std::int64_t>(bytes) : 0};
  };
  std::vector<float> h = draw(rows * hidden, 1), a = draw(rows * hidden, 2);
  std::vector<Bf16> out(rows * hidden);
  {
    RmsNorm<Bf16, true> k;
    k.h = {h.data(), hidden};
    k.a = {a.data(), hidden};
    k.sum = {h.data(), hidden};
    k.weight = weight.data();
    k.epsilon = 1e-5F;
    k.out = out.data();
    k.out_stride = hidden;
    k.rows = rows;
    k.n = hidden;
    check_traffic("residual and norm",
                  record(k, {region("h", h, true), region("a", a, false),
                             region("weight", weight, false), region("out", out, true)}),
                  std::uint64_t{rows} * hidden * (4 + 4 + 4 + 2) + hidden * 4);
  }
  {
    GatedNorm<Bf16, true> k;
    k.y = {h.data(), hidden};
    k.z = {a.data(), hidden};
    k.weight = weight.data();
    k.out = out.data();
    k.out_stride = hidden;
    k.rows = rows;
    k.width = hidden;
    check_traffic("gated norm",
                  record(k, {region("y", h, false), region("z", a, false),
                             region("weight", weight, false), region("out", out, true)}),
                  std::uint64_t{rows} * hidden * (4 + 4 + 2) + hidden * 4);
  }
  {
    EachFour<Scale<true>> k;
    k.x = {h.data(), hidden};
    k.factors = weight.data();
    k.rows = rows;
    k.n = hidden;
    check_traffic("scale", record(k, {region("x", h, true), region("factors", weight, false)}),
                  std::uint64_t{rows} * hidden * 8 + hidden * 4);
  }
  {
    std::vector<Bf16> table(9 * hidden);
    std::int32_t const ids[] = {8, 1, 0, 4};
    EachFour<Embedding<Bf16, true>> k;
    k.table = table.data();
    k.ids = ids;
    k.out = {h.data(), hidden};
    k.rows = rows;
    k.n = hidden;
    check_traffic("embedding",
                  record(k, {region("table", table, false),
                             region("out", h, true),
                             {"ids", ids, sizeof ids, -1, 0}}),
                  std::uint64_t{rows} * hidden * (2 + 4));
  }
  {
    std::vector<float> gate = draw(rows * intermediate, 4), up = draw(rows * intermediate, 5);
    std::vector<Bf16> product(rows * intermediate);
    EachFour<SiluProduct<Bf16, true>> k;
    k.gate = {gate.data(), intermediate};
    k.up = {up.data(), intermediate};
    k.out = product.data();
    k.out_stride = intermediate;
    k.rows = rows;
    k.n = intermediate;
    check_traffic("silu product",
                  record(k, {region("gate", gate, false), region("up", up, false),
                             region("out", product, true)}),
                  std::uint64_t{rows} * intermediate * (4 + 4 + 2));
  }
}
