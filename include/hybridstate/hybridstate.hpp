// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// One include for engines; kernels include <hybridstate/device/device.hpp> alone.

#include <hybridstate/batch/tables.hpp>
#include <hybridstate/batch/views.hpp>
#include <hybridstate/cache/joint_cache.hpp>
#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/layout.hpp>
#include <hybridstate/geometry/model.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <hybridstate/geometry/storage_model.hpp>
#include <hybridstate/organization/coarse_page.hpp>
#include <hybridstate/organization/conv_slab_packed.hpp>
#include <hybridstate/organization/native_dual_pool.hpp>
#include <hybridstate/organization/recurrent_paged.hpp>
#include <hybridstate/policy/greedy_dual.hpp>
#include <hybridstate/policy/reclaim_order.hpp>
#include <hybridstate/version.hpp>
