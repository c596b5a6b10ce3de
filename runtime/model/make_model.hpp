// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/falcon_config.hpp"

namespace hybridstate::runtime {

class Progress;

/// A published size, or "tiny".
struct FalconPreset {
  std::string_view name;
  FalconH1Config config;
};

/// "tiny" and every published size of Falcon-H1, in order of size. The published ones have the
/// shapes and multipliers of their config.json; where a multiplier is not known it is 1.
///
/// "tiny" is for tests on a CPU: 4 layers, hidden 64, 1.1 MB in BF16. Its state has the proportions
/// of Falcon-H1-7B at a sixteenth of its bytes, so that it meets the same cases of every
/// organization: 64 B of KV per token and layer make a 32-KiB page; 24 SSM heads of 4 KiB fill
/// exactly 3 member pages, 8 heads each; 3,840 B of convolution state take a 4-KiB slot, 8 to a
/// slab; state and convolution equal 1,596 tokens of KV, hence the same interval of 1,792 tokens
/// for the dual pool. Widths that a reader might mix up differ: heads x head_dim = 32, hidden = 64,
/// SSM width = 384, intermediate = 128; the vocabulary of 500 is no multiple of a vector.
const std::vector<FalconPreset>& falcon_presets();

/// The preset of that name; throws ModelError, which lists the names.
const FalconPreset& falcon_preset(std::string_view name);

/// Elements of all tensors of a configuration.
std::uint64_t parameter_count(const FalconH1Config& config);

struct MakeModelOptions {
  std::uint64_t seed = 0;
  Dtype dtype = Dtype::bf16;
  bool force = false;            ///< replace a model that make_model wrote
  std::string label;             ///< goes into the file's metadata, e.g. the preset's name
  Progress* progress = nullptr;  ///< advanced by bytes
  const std::atomic<bool>* stop = nullptr;  ///< once true, make_model() cleans up and throws
};

struct MadeModel {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  ///< of model.safetensors
};

/// Writes config.json and model.safetensors with random weights: matrices, convolutions and biases
/// N(0, 0.2), norms and D 1 + N(0, 0.2), A_log log(1 + i) + N(0, 0.2), dt_bias uniform in [-4, 0).
/// Every tensor has its own stream of the seed, named after it; the bits are the same on every
/// machine, and a BF16 or F16 file holds the rounded values of the F32 file. Memory is bounded
/// whatever the size. The folder appears in one move when everything is written; on failure nothing
/// is left behind but parents that were missing. A folder that holds anything is refused, and with
/// `force` one that holds anything but these two files. Throws ModelError.
MadeModel make_model(const FalconH1Config& config, const std::filesystem::path& folder,
                     const MakeModelOptions& options);

}  // namespace hybridstate::runtime
