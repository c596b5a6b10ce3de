// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "model/make_model.hpp"
#include "model/weights.hpp"
#include "test_scale.hpp"
#include "verify/verify.hpp"

namespace verify_tests {

using namespace hybridstate;
using namespace hybridstate::runtime;

/// The tiny model, made once.
class TinyModel {
 public:
  TinyModel()
      : folder_(std::filesystem::temp_directory_path() /
                ("hybridstate-verify-" +
                 std::to_string(static_cast<unsigned long long>(
                     std::filesystem::file_time_type::clock::now().time_since_epoch().count())))) {
    MakeModelOptions options;
    options.seed = 7;
    make_model(falcon_preset("tiny").config, folder_, options);
    model_.emplace(FalconH1Model::load(folder_));
  }
  ~TinyModel() {
    model_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  verify::VerifyModel model() const { return {&*model_, 1}; }
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
  std::optional<FalconH1Model> model_;
};
inline const TinyModel& tiny() {
  static const TinyModel model;
  return model;
}

}  // namespace verify_tests
