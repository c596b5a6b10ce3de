// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hybridstate::runtime {

/// Sine and cosine of an angle in [0, 2^20], within 2 ulp of a float and with the same bits
/// everywhere.
struct SineCosine {
  float sine = 0;
  float cosine = 0;
};
SineCosine sine_cosine(float angle) noexcept;

/// The angles of rotary embeddings: position * theta^(-2i / head_dim), the product in float as
/// Hugging Face forms it.
class Rotation {
 public:
  Rotation() = default;
  Rotation(double theta, std::uint32_t head_dim);

  std::size_t half() const noexcept { return frequencies_.size(); }
  void fill(std::uint32_t position, float* cosines, float* sines) const noexcept;

 private:
  std::vector<float> frequencies_;
};

}  // namespace hybridstate::runtime
