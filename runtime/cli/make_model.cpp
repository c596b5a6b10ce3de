// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/command.hpp"
#include "model/make_model.hpp"
#include "report/progress.hpp"

namespace hybridstate::runtime {

namespace {

struct MakeModelChoice {
  std::string preset = "tiny";
  std::uint64_t seed = 0;
  std::string out;
  std::string dtype = "bf16";
  bool force = false;
};

Dtype parse_dtype(const std::string& word) {
  if (word == "bf16") return Dtype::bf16;
  if (word == "f16") return Dtype::f16;
  if (word == "f32") return Dtype::f32;
  throw UsageError(fmt::format("--dtype: '{}' is not known; choose bf16, f16 or f32", word));
}

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

int make(const MakeModelChoice& choice) {
  MakeModelOptions options;
  options.seed = choice.seed;
  options.dtype = parse_dtype(choice.dtype);
  options.force = choice.force;
  options.label = choice.preset;
  const FalconPreset& preset = falcon_preset(choice.preset);
  Progress progress(choice.preset, parameter_count(preset.config) * dtype_bytes(options.dtype));
  options.progress = &progress;
  options.stop = &interrupted;  // an unfinished file of many gigabytes is removed
  for (int const signal : {SIGINT, SIGTERM})
    std::signal(signal, [](int) { interrupted.store(true, std::memory_order_relaxed); });
  auto const start = std::chrono::steady_clock::now();
  MadeModel const made = make_model(preset.config, choice.out, options);
  std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - start;
  progress.finish();
  double const megabytes = static_cast<double>(made.bytes) / 1e6;
  fmt::print(
      "{}: {} with random {} weights of seed {}, {:.1f} million parameters, {:.1f} MB in {:.1f} "
      "s\n",
      choice.out, choice.preset, choice.dtype, choice.seed,
      static_cast<double>(made.parameters) / 1e6, megabytes, taken.count());
  return 0;
}

}  // namespace

void add_make_model(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand(
      "make-model", "Write a random checkpoint in a published model's layout and shapes");
  auto const choice = std::make_shared<MakeModelChoice>();
  std::string names;
  for (FalconPreset const& preset : falcon_presets())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  command->add_option("--preset", choice->preset, names)->capture_default_str();
  command->add_option("--seed", choice->seed, "equal seeds give equal files")
      ->capture_default_str();
  command->add_option("--out", choice->out, "the folder to create")->required();
  command->add_option("--dtype", choice->dtype, "bf16, f16 or f32")->capture_default_str();
  command->add_flag("--force", choice->force, "replace a model that make-model wrote there");
  command->footer("example:\n  hybridstate make-model --preset tiny --seed 7 --out out/m");
  command->callback([choice, &action] { action = [choice] { return make(*choice); }; });
}

}  // namespace hybridstate::runtime
