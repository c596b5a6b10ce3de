// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <exception>
#include <hybridstate/core/error.hpp>

#include "cli/command.hpp"
#include "executor/device_error.hpp"
#include "model/hf_config.hpp"
#include "model/model_error.hpp"
#include "report/file.hpp"
#include "trace/reader.hpp"
#include "version_text.hpp"
#include "workload/trace_options.hpp"

namespace hybridstate::runtime {

namespace {

constexpr const char* examples =
    R"(examples:
  hybridstate compare --workload paper --budget b63
  hybridstate compare --workload mooncake:conversation_trace.jsonl --memory 20GiB
              --rate-scale 0.25 --max-context 32768:drop --html out/mooncake.html
  hybridstate run --org S2 --workload paper --budget b83 --headroom 0.27 --out out/s2
  hybridstate plan --model falcon-h1-7b --budget b63
  hybridstate plan --config config.json --memory 40GiB --weights 15.2GB
  hybridstate presets
  hybridstate campaign run Q1 --out out/q1
  hybridstate make-model --preset tiny --seed 7 --out out/m

Times come from a step law unless an executor says otherwise, and are then marked "simulated".)";

int fail(int code, const std::string& sentence) {
  fmt::print(stderr, "hybridstate: {}\n", sentence);
  return code;
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app("Memory organizations for serving hybrid attention/SSM language models",
               "hybridstate");
  app.set_version_flag("--version", "hybridstate " + version_text());
  app.require_subcommand(1);
  app.footer(examples);
  Action action;
  add_compare(app, action);
  add_run(app, action);
  add_plan(app, action);
  add_presets(app, action);
  add_make_model(app, action);
  add_generate(app, action);
  add_trace(app, action);
  add_verify(app, action);
  add_campaign(app, action);
  add_report(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(2, fmt::format("{}; see hybridstate --help", error.what()));
  }
  try {
    return action();
  } catch (const UsageError& error) {
    return fail(2, error.what());
  } catch (const ConfigError& error) {
    return fail(2, error.what());
  } catch (const WorkloadError& error) {
    return fail(2, error.what());
  } catch (const DeviceError& error) {
    return fail(2, error.what());
  } catch (const ModelError& error) {
    return fail(2, error.what());
  } catch (const ReportError& error) {
    return fail(2, error.what());
  } catch (const TraceError& error) {
    return fail(2, error.what());
  } catch (const ConfigurationError& error) {
    return fail(2, error.what());
  } catch (const std::bad_alloc&) {
    return fail(2, "the run needs more memory than this machine has; lower --memory or --limit");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}

}  // namespace hybridstate::runtime
