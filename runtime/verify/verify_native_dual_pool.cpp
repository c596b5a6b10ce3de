// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/organization/native_dual_pool.hpp>

#include "verify/verify_template.hpp"

namespace hybridstate::runtime::verify {

Counts verify_native_dual_pool(const Scenario& s, const VerifyModel& model,
                               const std::vector<Reference>& references, const Drive& drive) {
  StateLayout const layout = layout_of(s, model.config());
  return verify_in(s, model, references, drive,
                   [&](PoolUnits units) { return NativeDualPool<>(layout, units); });
}

}  // namespace hybridstate::runtime::verify
