// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/dtype.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace hybridstate::runtime;

TEST_CASE("every 16-bit number survives the way to float and back") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    auto const bits = static_cast<std::uint16_t>(i);
    float const b = bf16_to_float(bits);
    float const h = f16_to_float(bits);
    if (std::isnan(b))
      CHECK(std::isnan(bf16_to_float(float_to_bf16(b))));
    else
      CHECK(float_to_bf16(b) == bits);
    if (std::isnan(h))
      CHECK(std::isnan(f16_to_float(float_to_f16(h))));
    else
      CHECK(float_to_f16(h) == bits);
  }
}

TEST_CASE("rounding goes to the nearest, ties to even") {
  static_assert(float_to_bf16(1.0F) == 0x3f80);
  CHECK(float_to_bf16(0x1.01p0F) == 0x3f80);      // halfway between 1 and the next
  CHECK(float_to_bf16(0x1.03p0F) == 0x3f82);      // halfway, the upper one is even
  CHECK(float_to_bf16(0x1.010002p0F) == 0x3f81);  // just above halfway
  CHECK(float_to_bf16(-0.0F) == 0x8000);
  CHECK(float_to_bf16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(float_to_f16(65504.0F) == 0x7bff);
  CHECK(float_to_f16(65519.0F) == 0x7bff);
  CHECK(float_to_f16(65520.0F) == 0x7c00);
  CHECK(float_to_f16(-1e30F) == 0xfc00);
  CHECK(float_to_f16(0x1p-14F) == 0x0400);
  CHECK(float_to_f16(0x1p-24F) == 0x0001);
  CHECK(float_to_f16(0x1p-25F) == 0x0000);  // a tie, 0 is even
  CHECK(float_to_f16(0x1.8p-24F) == 0x0002);
  CHECK(float_to_f16(0x1.ff8p-15F) == 0x03ff);
  CHECK(float_to_f16(0x1.ffep-15F) == 0x0400);  // a subnormal that rounds to a normal number
  CHECK(float_to_f16(0x1.002p0F) == 0x3c00);
  CHECK(float_to_f16(0x1.006p0F) == 0x3c02);
}

TEST_CASE("every float between two F16 numbers goes to one of them, the nearer one") {
  for (std::uint32_t i = 0; i < 0x7bff; ++i) {
    float const low = f16_to_float(static_cast<std::uint16_t>(i));
    float const high = f16_to_float(static_cast<std::uint16_t>(i + 1));
    float const middle = low + (high - low) / 2;
    CHECK(float_to_f16(middle) == (i % 2 == 0 ? i : i + 1));
    CHECK(float_to_f16(std::nextafter(middle, 0.0F)) == i);
    CHECK(float_to_f16(std::nextafter(middle, 1e9F)) == i + 1);
  }
}
