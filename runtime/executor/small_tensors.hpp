// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "model/safetensors.hpp"

// Tensors that every forward pass holds in FP32, whatever they are stored as.

namespace hybridstate::runtime {

/// Exactly; empty where the model has no such tensor.
std::vector<float> values_of(const TensorView& tensor);

/// A = -exp(A_log), of each head.
std::vector<float> decay_rates(const TensorView& a_log);

/// The convolution's weights from [channels][width] to [width][channels].
std::vector<float> tap_major(const TensorView& conv, std::size_t channels, std::size_t width);

}  // namespace hybridstate::runtime
