// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/workload.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace hybridstate::runtime {

WorkloadSpec parse_workload_spec(std::string_view text) {
  if (text == "paper") return {};
  std::size_t const colon = text.find(':');
  if (colon != std::string_view::npos && colon + 1 < text.size()) {
    std::string_view const kind = text.substr(0, colon);
    std::string file(text.substr(colon + 1));
    if (kind == "mooncake") return {WorkloadKind::mooncake, std::move(file)};
    if (kind == "jsonl") return {WorkloadKind::jsonl, std::move(file)};
    if (kind == "csv") return {WorkloadKind::csv, std::move(file)};
  }
  throw WorkloadError(fmt::format(
      "the workload \"{}\" is unknown; there are paper, mooncake:FILE, jsonl:FILE and csv:FILE",
      detail::shown(text)));
}

Workload make_workload(const WorkloadSpec& spec, const WorkloadOptions& options) {
  switch (spec.kind) {
    case WorkloadKind::paper:
      return make_paper_workload(options.paper);
    case WorkloadKind::mooncake:
      return read_mooncake(spec.file, options.trace);
    case WorkloadKind::jsonl:
      return read_jsonl(spec.file, options.trace);
    case WorkloadKind::csv:
      return read_csv(spec.file, options.trace);
  }
  return {};
}

Workload make_workload(std::string_view spec, const WorkloadOptions& options) {
  return make_workload(parse_workload_spec(spec), options);
}

WorkloadTotals totals(const Workload& workload) noexcept {
  WorkloadTotals result;
  result.requests = workload.requests.size();
  for (const Request& request : workload.requests) {
    result.prompt_tokens += request.prompt_tokens;
    result.output_tokens += request.output_tokens;
    result.longest_prompt = std::max(result.longest_prompt, request.prompt_tokens);
    result.last_arrival_ns = std::max(result.last_arrival_ns, request.arrival_ns);
  }
  return result;
}

std::string heading(const Workload& workload) {
  WorkloadTotals const t = totals(workload);
  std::string text = fmt::format("{}; {} requests", workload.description, t.requests);
  if (workload.dropped != 0) text += fmt::format(" ({} dropped)", workload.dropped);
  if (workload.clipped != 0) text += fmt::format(" ({} clipped)", workload.clipped);
  if (t.requests == 0) return text;
  auto const n = static_cast<double>(t.requests);
  return text + fmt::format(", mean input {:.1f}, mean output {:.1f}, last arrival {:.1f} s",
                            static_cast<double>(t.prompt_tokens) / n,
                            static_cast<double>(t.output_tokens) / n,
                            static_cast<double>(t.last_arrival_ns) * 1e-9);
}

}  // namespace hybridstate::runtime
