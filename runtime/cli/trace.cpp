// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "report/file.hpp"
#include "trace/analyze.hpp"
#include "trace/export.hpp"
#include "trace/reader.hpp"

namespace hybridstate::runtime {

namespace {

struct TraceCommandOptions {
  std::string file;
  bool json = false;
  bool partial = false;
  std::string jsonl;
  std::string perfetto;
};

int check(const TraceCommandOptions& options) {
  std::vector<std::uint8_t> const bytes = load_trace(options.file);
  TraceCheck const found = read_trace(bytes, options.file);
  fmt::print("{}: {} bytes, {} frames, {} records\n", options.file, found.bytes, found.frames,
             found.records);
  if (!found.header.organization.empty())
    fmt::print("{}, {}, blocks of {} tokens, checkpoints every {}; {}\n", found.header.organization,
               found.header.policy, found.header.block_tokens, found.header.checkpoint_tokens,
               found.header.note);
  for (int kind = 1; kind <= record_kinds; ++kind)
    if (found.of_kind[kind] > 0)
      fmt::print("  {:<9} {:>10}\n", kind_name(static_cast<RecordKind>(kind)), found.of_kind[kind]);
  if (found.end)
    fmt::print("end record: {} records, {} dropped, {} write errors\n", found.end->records,
               found.end->dropped, found.end->write_errors);
  if (found.complete()) {
    fmt::print("complete: sequence numbers 0 to {} without a gap, every check sum right\n",
               found.next_sequence == 0 ? 0 : found.next_sequence - 1);
    return 0;
  }
  std::fflush(stdout);
  fmt::print(stderr, "hybridstate: {} is not complete: {}\n", options.file, found.problem);
  return 1;
}

/// Reads all of the trace; 1 and a sentence when it is not complete and may not be partial.
template <class Visit>
int read(const TraceCommandOptions& options, TraceCheck& found, const Visit& visit) {
  std::vector<std::uint8_t> const bytes = load_trace(options.file);
  // Once for the header and whether it is complete, once for the records.
  found = read_trace(bytes, options.file);
  if (!found.complete()) {
    fmt::print(stderr, "hybridstate: {} is not complete: {}{}\n", options.file, found.problem,
               options.partial ? "" : "; --partial uses what there is");
    if (!options.partial) return 1;
  }
  visit(bytes);
  return 0;
}

int analyze(const TraceCommandOptions& options) {
  TraceCheck found;
  int result = 0;
  int const code = read(options, found, [&](const std::vector<std::uint8_t>& bytes) {
    StateHistoryAnalyzer analyzer(found.header.block_tokens, found.header.checkpoint_tokens);
    read_trace(bytes, options.file, [&](const TraceRecord& r) { analyzer.add(r); });
    Analysis const analysis = analyzer.finish();
    fmt::print("{}", options.json ? analysis_json(found.header, analysis)
                                  : analysis_text(found.header, analysis));
    if (analysis.consistent()) return;
    std::fflush(stdout);
    fmt::print(stderr,
               "hybridstate: {}: the replay differs from the record in {} admissions, {} have no "
               "entry, {} events name unknown objects\n",
               options.file, analysis.mismatches, analysis.unbound_admissions,
               analysis.unmatched_events);
    result = 1;
  });
  return code != 0 ? code : result;
}

int export_files(const TraceCommandOptions& options) {
  if (options.jsonl.empty() && options.perfetto.empty())
    throw UsageError("trace export writes nothing without --jsonl OUT or --perfetto OUT");
  TraceCheck found;
  return read(options, found, [&](const std::vector<std::uint8_t>& bytes) {
    auto const write = [&](const std::string& path, auto out) {
      if (path.empty()) return;
      read_trace(bytes, options.file, [&](const TraceRecord& r) { out.add(r); });
      write_text_atomically(path, out.finish());
    };
    write(options.jsonl, JsonlExport(found.header, found.end));
    write(options.perfetto, PerfettoExport(found.header));
  });
}

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  CLI::App* const trace =
      app.add_subcommand("trace", "Check, analyze or export the state history of a run");
  trace->require_subcommand(1);
  auto const options = std::make_shared<TraceCommandOptions>();
  auto const add = [&](const char* name, const char* what, int (*act)(const TraceCommandOptions&)) {
    CLI::App* const command = trace->add_subcommand(name, what);
    command->add_option("FILE", options->file, "what run --trace wrote")->required();
    command->callback(
        [options, &action, act] { action = [options, act] { return act(*options); }; });
    return command;
  };
  add("check", "Whether the file is whole: check sums, sequence numbers, end record", check);
  CLI::App* const a =
      add("analyze", "Reuse depths at entry and adoption, and what changed them", analyze);
  a->add_flag("--json", options->json, "print JSON, with every admission episode");
  CLI::App* const e = add("export", "The records in other formats", export_files);
  e->add_option("--jsonl", options->jsonl, "one JSON object a line");
  e->add_option("--perfetto", options->perfetto, "trace-event JSON for ui.perfetto.dev");
  for (CLI::App* command : {a, e})
    command->add_flag("--partial", options->partial, "use what an incomplete file holds");
  trace->footer(
      "example:\n  hybridstate run --org S2 --workload paper --budget b83 --trace out/s2.trace\n"
      "  hybridstate trace analyze out/s2.trace");
}

}  // namespace hybridstate::runtime
