// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "report/file.hpp"
#include "report/result.hpp"
#include "report/summary.hpp"

namespace hybridstate::runtime {

/// A named value of one run, as JSON and CSV carry it. std::monostate: the value does not exist.
using FieldValue =
    std::variant<std::monostate, std::uint64_t, double, std::string, std::vector<std::uint64_t>>;
using Field = std::pair<std::string, FieldValue>;

/// All values of one run in their fixed order. Names that vLLM's serving bench has are its names
/// and mean the same; the others are ours.
std::vector<Field> run_fields(const RunResult& run);

/// One JSON object of them; values that do not exist are left out.
nlohmann::ordered_json object_of(const std::vector<Field>& fields);

/// A cell of a CSV line, in quotes where it has to be.
std::string csv_cell(std::string_view text);

/// The whole comparison:
///   {"schema": 1, "workload": {"name", "description", "excluded_requests"}, "model",
///    "settings": {name: value}, "runs": [one object per run, see run_fields()],
///    "rows": [one object per organization and policy: means and gains over its seeds]}
/// Equal comparisons give equal bytes: numbers are printed as the shortest text that reads back as
/// the same number, keys have a fixed order, values that do not exist are left out, and nothing
/// about the machine, the time or the folders is in it.
std::string json_text(const Comparison& comparison);

/// One line per run under a line of names, the same names and order as in JSON. Values that do not
/// exist are empty; lists are joined by ";".
std::string csv_text(const Comparison& comparison);

/// One line per request of a run; times in nanoseconds of the run's clock, empty = never happened.
std::string requests_csv_text(const RunResult& run);

/// One line per timeline sample of a run.
std::string timeline_csv_text(const RunResult& run);

void write_json(const std::filesystem::path& path, const Comparison& comparison);
void write_csv(const std::filesystem::path& path, const Comparison& comparison);

/// Writes two files per run into a folder, which is created when it is missing:
/// "S2-paper-seed42000.requests.csv" and "S2-paper-seed42000.timeline.csv". Runs that differ only
/// in other settings get a number: "S2-paper-seed42000-2.requests.csv".
void write_run_files(const std::filesystem::path& folder, const Comparison& comparison);

/// The file names of write_run_files() without their endings, one per run.
std::vector<std::string> run_file_stems(const Comparison& comparison);

/// A finite number as the shortest text that reads back as the same number and shows that it is a
/// floating-point one ("3.0"); "null" for what JSON cannot say.
std::string number_text(double value);

}  // namespace hybridstate::runtime
