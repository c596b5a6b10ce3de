// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/organization/native_dual_pool.hpp>

#include "scheduler/run_template.hpp"
#include "trace/session.hpp"

namespace hybridstate::runtime {

RunResult run_traced_native_dual_pool(const RunSpec& spec, const Workload& workload,
                                      const BlockIds& ids) {
  return run_with<TraceSession>(spec, workload, ids, contiguous_scale, [&](PoolUnits units) {
    return NativeDualPool<>(layout_of(spec), units);
  });
}

}  // namespace hybridstate::runtime
