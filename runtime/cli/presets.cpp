// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <hybridstate/geometry/budget.hpp>
#include <hybridstate/geometry/presets.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "executor/simulated.hpp"
#include "report/text_table.hpp"

namespace hybridstate::runtime {

namespace {

using Json = nlohmann::ordered_json;

struct WorkloadKindText {
  const char* spec;
  const char* meaning;
};
constexpr WorkloadKindText workload_kinds[] = {
    {"paper", "drawn by seed: shared contexts and private lengths of the paper's campaigns"},
    {"mooncake:FILE", "a trace with 512-token block ids, one JSON object per line"},
    {"jsonl:FILE",
     "arrival, input tokens or their number, output length; one JSON object per line"},
    {"csv:FILE", "arrival, input length, output length under a line of names"},
};

double ms(std::int64_t ps) { return static_cast<double>(ps) / 1e9; }
double us(std::int64_t ps) { return static_cast<double>(ps) / 1e6; }
double ns(std::int64_t ps) { return static_cast<double>(ps) / 1e3; }

double share(const ModelPreset& preset) {
  return static_cast<double>(preset.attention_ppm) / PoolSplit::whole;
}

Bytes sequence_bytes(const ModelGeometry& m) { return m.composite_bytes() * m.recurrent_layers; }

std::string presets_text() {
  std::vector<std::vector<std::string>> models = {{"model", "attention", "recurrent", "layers",
                                                   "KV B/token", "SSM B", "conv B",
                                                   "state B/sequence", "D0 split"}};
  for (ModelPreset const& preset : presets()) {
    ModelGeometry const& m = preset.geometry;
    models.push_back({std::string(preset.name), std::to_string(m.attention_layers),
                      std::to_string(m.recurrent_layers), std::to_string(preset.total_layers),
                      grouped_count(m.kv_bytes_per_token()), grouped_count(m.ssm_bytes()),
                      grouped_count(m.conv_bytes()), grouped_count(sequence_bytes(m)),
                      preset.attention_ppm == 0 ? "-" : fmt::format("{:.6f}", share(preset))});
  }
  std::vector<std::vector<std::string>> devices = {
      {"device", "step ms", "prefill us/token", "decode ms/request", "context ns/token", "origin"}};
  for (StepLaw const& law : step_laws())
    devices.push_back({law.name, fmt::format("{}", ms(law.base_ps)),
                       fmt::format("{}", us(law.prefill_token_ps)),
                       fmt::format("{}", ms(law.decode_request_ps)),
                       fmt::format("{}", ns(law.decode_context_token_ps)), law.provenance});
  std::string text =
      "models (--model): layers with KV, with recurrent state and all; KV, SSM and convolution "
      "bytes of one layer\nin BF16, recurrent state of one sequence over all layers, published "
      "attention share of D0\n" +
      aligned_table(models) + "\ndevices (--device): constants of the step law\n" +
      aligned_table(devices) + "\nworkloads (--workload)\n";
  for (WorkloadKindText const& kind : workload_kinds)
    text += fmt::format("  {:<13}  {}\n", kind.spec, kind.meaning);
  return text;
}

std::string presets_json() {
  Json root;
  root["schema"] = 1;
  root["models"] = Json::array();
  for (ModelPreset const& preset : presets()) {
    ModelGeometry const& m = preset.geometry;
    Json model;
    model["name"] = preset.name;
    model["attention_layers"] = m.attention_layers;
    model["recurrent_layers"] = m.recurrent_layers;
    model["total_layers"] = preset.total_layers;
    model["kv_bytes_per_token"] = m.kv_bytes_per_token();
    model["ssm_bytes"] = m.ssm_bytes();
    model["conv_bytes"] = m.conv_bytes();
    model["state_bytes_per_sequence"] = sequence_bytes(m);
    if (preset.attention_ppm != 0) model["native_attention_share"] = share(preset);
    root["models"].push_back(model);
  }
  root["devices"] = Json::array();
  for (StepLaw const& law : step_laws()) {
    Json device;
    device["name"] = law.name;
    device["provenance"] = law.provenance;
    device["base_ms"] = ms(law.base_ps);
    device["prefill_token_us"] = us(law.prefill_token_ps);
    device["decode_request_ms"] = ms(law.decode_request_ps);
    device["decode_context_token_ns"] = ns(law.decode_context_token_ps);
    device["copied_kib_ns"] = ns(law.copied_kib_ps);
    root["devices"].push_back(device);
  }
  root["workloads"] = Json::array();
  for (WorkloadKindText const& kind : workload_kinds) {
    Json workload;
    workload["name"] = kind.spec;
    workload["description"] = kind.meaning;
    root["workloads"].push_back(workload);
  }
  return root.dump(2) + "\n";
}

}  // namespace

void add_presets(CLI::App& app, Action& action) {
  CLI::App* const command =
      app.add_subcommand("presets", "List the models, devices and workloads that are built in");
  auto const json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON instead of tables");
  command->footer("examples:\n  hybridstate presets\n  hybridstate presets --json");
  command->callback([json, &action] {
    action = [json] {
      fmt::print("{}", *json ? presets_json() : presets_text());
      return 0;
    };
  });
}

}  // namespace hybridstate::runtime
