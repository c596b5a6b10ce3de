// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/organization/recurrent_paged.hpp>

#include "scheduler/run_template.hpp"
#include "trace/session.hpp"

namespace hybridstate::runtime {

RunResult run_traced_recurrent_paged(const RunSpec& spec, const Workload& workload,
                                     const BlockIds& ids) {
  return run_with<TraceSession>(spec, workload, ids, paged_scale, [&](PoolUnits units) {
    return RecurrentPaged<>(layout_of(spec), units[0]);
  });
}

}  // namespace hybridstate::runtime
