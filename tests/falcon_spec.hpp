// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/geometry/presets.hpp>

#include "scheduler/run.hpp"

/// A run of Falcon-H1-7B on the A100-40GB law, its budget still to be chosen.
inline hybridstate::runtime::RunSpec falcon_spec(
    hybridstate::runtime::Arm arm = hybridstate::runtime::Arm::s2) {
  hybridstate::runtime::RunSpec spec;
  hybridstate::ModelPreset const& model = *hybridstate::find_preset("falcon-h1-7b");
  spec.arm = arm;
  spec.model = model.geometry;
  spec.split = {model.attention_ppm};
  spec.law = hybridstate::runtime::find_step_law("a100-40gb");
  return spec;
}
