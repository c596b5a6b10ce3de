// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/organization/coarse_page.hpp>

#include "verify/verify_template.hpp"

namespace hybridstate::runtime::verify {

Counts verify_coarse_page(const Scenario& s, const VerifyModel& model,
                          const std::vector<Reference>& references, const Drive& drive) {
  StateLayout const layout = layout_of(s, model.config());
  return verify_in(s, model, references, drive,
                   [&](PoolUnits units) { return CoarsePage<>(layout, units[0]); });
}

}  // namespace hybridstate::runtime::verify
