// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "report/result.hpp"

namespace hybridstate::runtime::testing {

constexpr std::int64_t second = 1'000'000'000;

/// A completed request with times in seconds.
inline RequestRecord request(double arrival, double first_token, double finished, Tokens prompt,
                             Tokens output) {
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
  RequestRecord record;
  record.arrival_ns = ns(arrival);
  record.admitted_ns = ns(arrival);
  record.first_token_ns = ns(first_token);
  record.finished_ns = ns(finished);
  record.prompt_tokens = prompt;
  record.output_tokens = output;
  return record;
}

/// Two requests over ten seconds with `output` tokens in all; all other values are small and known.
inline RunResult small_run(std::string organization, std::uint64_t seed, Tokens output) {
  RunResult run;
  run.organization = std::move(organization);
  run.policy = "paper";
  run.executor = "simulated";
  run.device = "a100-40gb";
  run.seed = seed;
  run.budget = "b63";
  run.budget_bytes = 63 * 524288;
  run.total_bytes = 44 * run.budget_bytes;
  run.pool_units = {63};
  run.pool_bytes = {run.budget_bytes};
  run.block_tokens = 512;
  run.checkpoint_tokens = 512;
  run.cap = 63;
  run.span_ns = 10 * second;
  run.steps = 4;
  run.c_once = 1500;
  run.admissions = 3;
  run.preemptions = 1;
  run.allocated_bytes_mean = 4.0 * 1024 * 1024;
  run.payload_bytes_mean = 3.0 * 1024 * 1024;
  run.running_median = 2;
  run.waiting_median = 1;
  run.requests.push_back(request(0, 1, 5, 1000, output / 2));
  run.requests.push_back(request(2, 5, 10, 2000, output - output / 2));
  run.requests[1].index = 1;
  run.requests[1].adopted_tokens = 1536;
  run.requests[1].attention_tokens = 1536;
  run.requests[1].recurrent_tokens = 2000;
  for (std::uint32_t i = 0; i < 4; ++i) {
    TimelineSample sample;
    sample.time_ns = i * 3 * second;
    sample.step = i;
    sample.running = i;
    sample.waiting = 3 - i;
    sample.attention_referenced = (i + 1) * 1024 * 1024;
    sample.ssm_referenced = 2 * 1024 * 1024;
    sample.conv_referenced = 1024 * 1024;
    sample.cached = 512 * 1024;
    sample.keyless = (8 - i) * 1024 * 1024;
    run.timeline.push_back(sample);
  }
  return run;
}

inline Comparison small_comparison() {
  Comparison comparison;
  comparison.workload_name = "paper";
  comparison.workload_description = "2 requests <made> & \"small\"";
  comparison.model = "falcon-h1-1.5b";
  comparison.heading = {"budget b63", "cap: 63", "rate 3"};
  for (const std::string organization : {"S0", "S2", "D0", "infinite", "byte-exact bound"}) {
    const Tokens more = organization == "S0" ? 0 : organization == "S2" ? 100 : 200;
    // Seed 1: 200 tokens at S0; seed 2: 400.
    comparison.runs.push_back(small_run(organization, 1, 200 + more));
    comparison.runs.push_back(small_run(organization, 2, 400 + more));
    if (organization == "D0") {
      for (std::size_t back = 1; back <= 2; ++back) {
        RunResult& run = comparison.runs[comparison.runs.size() - back];
        run.pool_units = {3256, 29};
        run.pool_bytes = {17 * 1024 * 1024, 14 * 1024 * 1024};
        run.stranded_fraction = 0.125;
      }
    }
  }
  return comparison;
}

/// A folder of its own, gone at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::random_device random;
    path_ = std::filesystem::temp_directory_path() /
            ("hybridstate-report-" + std::to_string(random()) + "-" + std::to_string(random()));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace hybridstate::runtime::testing
