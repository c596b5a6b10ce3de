// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/small_tensors.hpp"

#include <hybridstate/device/numeric.hpp>

namespace hybridstate::runtime {

std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> out(tensor ? static_cast<std::size_t>(tensor.elements()) : 0);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tensor.at(i);
  return out;
}

std::vector<float> decay_rates(const TensorView& a_log) {
  std::vector<float> rates = values_of(a_log);
  for (float& a : rates) a = -numeric::exp(a);
  return rates;
}

std::vector<float> tap_major(const TensorView& conv, std::size_t channels, std::size_t width) {
  std::vector<float> out(channels * width);
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t tap = 0; tap < width; ++tap)
      out[tap * channels + c] = conv.at(c * width + tap);
  return out;
}

}  // namespace hybridstate::runtime
