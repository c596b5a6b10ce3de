// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/simulated.hpp"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "executor/device_error.hpp"

namespace hybridstate::runtime {

namespace {

constexpr std::int64_t ps_per_ms = 1'000'000'000;
constexpr std::int64_t ps_per_us = 1'000'000;
constexpr std::int64_t ps_per_ns = 1'000;

std::int64_t constant(const nlohmann::json& object, const std::string& file, const char* field,
                      std::int64_t unit, bool required) {
  auto const found = object.find(field);
  if (found == object.end()) {
    if (!required) return 0;
    throw DeviceError(file + ": field \"" + field + "\" is missing; a step law needs base_ms, " +
                      "prefill_token_us and decode_request_ms");
  }
  if (!found->is_number() || !(found->get<double>() >= 0) || found->get<double>() > 1e6)
    throw DeviceError(file + ": field \"" + field + "\" must be a number between 0 and 1e6");
  return std::llround(found->get<double>() * static_cast<double>(unit));
}

}  // namespace

const std::vector<StepLaw>& step_laws() {
  static const std::vector<StepLaw> laws = {
      {"a100-40gb", "fitted", 15'400'000'000, 92'000'000, 400'000'000, 0, 1'549},
      {"a100-40gb-long", "estimated", 15'400'000'000, 92'000'000, 180'000'000, 63'000, 1'549},
  };
  return laws;
}

StepLaw find_step_law(std::string_view name_or_file) {
  for (StepLaw const& law : step_laws())
    if (law.name == name_or_file) return law;
  std::string const file(name_or_file);
  std::ifstream in(file);
  if (!in)
    throw DeviceError("device \"" + file +
                      "\" is neither a preset (a100-40gb, a100-40gb-long) nor a readable file");
  std::ostringstream text;  // a folder opens, and its first read throws inside the stream
  text << in.rdbuf();
  nlohmann::json object = nlohmann::json::parse(text.str(), nullptr, false);
  if (object.is_discarded() || !object.is_object())
    throw DeviceError(file + ": not a JSON object with the constants of a step law");
  StepLaw law;
  law.name = object.contains("name") && object["name"].is_string()
                 ? object["name"].get<std::string>()
                 : file;
  law.provenance = "from file";
  law.base_ps = constant(object, file, "base_ms", ps_per_ms, true);
  law.prefill_token_ps = constant(object, file, "prefill_token_us", ps_per_us, true);
  law.decode_request_ps = constant(object, file, "decode_request_ms", ps_per_ms, true);
  law.decode_context_token_ps = constant(object, file, "decode_context_token_ns", ps_per_ns, false);
  law.copied_kib_ps = constant(object, file, "copied_kib_ns", ps_per_ns, false);
  if (law.base_ps + law.prefill_token_ps == 0)
    throw DeviceError(file +
                      ": base_ms and prefill_token_us are both 0, so time would stand still");
  return law;
}

StepLaw estimate_step_law(std::string name, const Roofline& r) {
  auto const seconds = [](double s) { return static_cast<std::int64_t>(std::llround(s * 1e12)); };
  StepLaw law;
  law.name = std::move(name);
  law.provenance = "estimated";
  law.base_ps = seconds(r.weight_bytes / r.bytes_per_second);
  law.prefill_token_ps = seconds(2 * r.parameters / r.flops_per_second);
  law.decode_request_ps = seconds(2 * r.state_bytes / r.bytes_per_second);
  law.decode_context_token_ps = seconds(r.kv_bytes_per_token / r.bytes_per_second);
  law.copied_kib_ps = seconds(2 * 1024 / r.bytes_per_second);
  return law;
}

}  // namespace hybridstate::runtime
