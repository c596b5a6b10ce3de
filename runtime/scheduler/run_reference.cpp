// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <hybridstate/organization/conv_slab_packed.hpp>

#include "scheduler/run_template.hpp"

namespace hybridstate::runtime {

namespace {

/// Units that hold every block and checkpoint that the workload could ever leave behind.
Units units_for_everything(const StateLayout& layout, const Workload& workload) {
  std::uint64_t units = 64;
  std::uint64_t states = 0;
  for (Request const& r : workload.requests) {
    Tokens const tokens = r.prompt_tokens + r.output_tokens;
    units += std::uint64_t{ceil_div(tokens, layout.block_tokens())} * layout.attention_groups();
    states += tokens / layout.checkpoint_tokens() + 2;
  }
  units += states * layout.members() * layout.recurrent_groups();
  units += states * layout.recurrent_groups() / std::max<Units>(1, layout.slots_per_slab()) + 64;
  return static_cast<Units>(units);
}

}  // namespace

RunResult run_reference(const RunSpec& spec, const Workload& workload, const BlockIds& ids) {
  StateLayout const layout = layout_of(spec);
  CacheOptions options = cache_options(spec, workload);
  options.bare_nodes_per_unit = 0;  // every node keeps its unit: nothing is ever reclaimed
  ConvSlabPacked<> organization(layout, units_for_everything(layout, workload));
  ByteExactGate gate;
  gate.token_bytes = static_cast<double>(organization.attention_payload_bytes_per_token());
  gate.state_bytes = static_cast<double>(organization.state_payload_bytes());
  // A slab page at the front would be taken with cached slots in it.
  JointCache<ConvSlabPacked<>> cache(std::move(organization), options,
                                     PaperOrder{SlabPosition::back});
  RunResult result;
  if (spec.arm == Arm::infinite) {
    FixedHeadroom open;
    result = serve_simulated(spec, workload, ids, cache, open, paged_scale);
    result.budget = "infinite";
    return result;
  }
  gate.capacity = static_cast<double>(nominal_layer_bytes(spec));
  result = serve_simulated(spec, workload, ids, cache, gate, paged_scale);
  return result;
}

}  // namespace hybridstate::runtime
