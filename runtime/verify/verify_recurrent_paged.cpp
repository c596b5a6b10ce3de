// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/organization/recurrent_paged.hpp>

#include "verify/verify_template.hpp"

namespace hybridstate::runtime::verify {

Counts verify_recurrent_paged(const Scenario& s, const VerifyModel& model,
                              const std::vector<Reference>& references, const Drive& drive) {
  StateLayout const layout = layout_of(s, model.config());
  return verify_in(s, model, references, drive,
                   [&](PoolUnits units) { return RecurrentPaged<>(layout, units[0]); });
}

}  // namespace hybridstate::runtime::verify
