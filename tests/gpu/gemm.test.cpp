// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <hybridstate/kernels/launch/gemm.hpp>

#include "gpu/device_memory.hpp"
#include "math/deterministic.hpp"

using namespace hybridstate;
using namespace hybridstate::kernels;

namespace {

std::vector<Bf16> draw(std::size_t n, std::uint64_t seed) {
  runtime::BitGenerator bits(seed);
  std::vector<Bf16> v(n);
  for (Bf16& b : v) b = from_float<Bf16>(static_cast<float>(bits.normal()));
  return v;
}

TEST_CASE("cuBLASLt's linears are near the sums in double, and the same at every run") {
  if (!have_device()) return;
  Gemm gemm;
  OnDevice<std::byte> const workspace{std::vector<std::byte>(Gemm::workspace_bytes)};
  for (std::uint32_t const tokens : {1U, 16U, 17U, 100U}) {
    constexpr std::uint32_t rows = 96;
    constexpr std::uint32_t columns = 520;
    constexpr std::size_t x_stride = columns + 8;
    constexpr std::size_t y_stride = rows + 4;
    constexpr float untouched = -3;
    auto const weights = draw(std::size_t{rows} * columns, 1);
    auto const x = draw(tokens * x_stride, 2);
    std::vector<float> y(tokens * y_stride, untouched);
    std::vector<float> again = y;
    OnDevice<Bf16> const device_weights(weights);
    OnDevice<Bf16> const device_x(x);
    OnDevice<float> const device_y(y);
    GemmRows const job{.weights = device_weights.get(),
                       .x = device_x.get(),
                       .x_stride = x_stride,
                       .y = device_y.get(),
                       .y_stride = y_stride,
                       .scale = 0.5F,
                       .tokens = tokens,
                       .rows = rows,
                       .columns = columns};
    must(gemm.prepare(rows, columns, tokens));
    for (std::vector<float>* const to : {&y, &again}) {
      must(gemm.run(job, workspace.get(), nullptr));
      must(cudaDeviceSynchronize());
      device_y.download(*to);
    }
    CHECK(std::memcmp(y.data(), again.data(), y.size() * sizeof(float)) == 0);
    for (std::size_t i = 0; i < y.size(); ++i) {
      std::size_t const row = i % y_stride;
      if (row >= rows) {
        CHECK(y[i] == untouched);
        continue;
      }
      double sum = 0;
      double size = 0;
      for (std::size_t k = 0; k < columns; ++k) {
        double const product = double{to_float(weights[row * columns + k])} *
                               double{to_float(x[i / y_stride * x_stride + k])};
        sum += product;
        size += std::abs(product);
      }
      CHECK(std::abs(double{y[i]} - 0.5 * sum) <= 1e-5 * size);
    }

    GemmRows odd = job;
    odd.x_stride = x_stride + 1;
    CHECK(gemm.run(odd, workspace.get(), nullptr) == cudaErrorInvalidValue);
    odd = job;
    odd.y = device_y.get() + 1;
    CHECK(gemm.run(odd, workspace.get(), nullptr) == cudaErrorInvalidValue);
    CHECK(gemm.run(job, nullptr, nullptr) == cudaErrorInvalidValue);
  }
}

}  // namespace
