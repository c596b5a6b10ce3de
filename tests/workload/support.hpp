// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "math/deterministic.hpp"
#include "workload/request.hpp"
#include "workload/trace_options.hpp"

namespace workload_test {

/// A number that changes with every field of every request.
inline std::uint64_t fingerprint(const hybridstate::runtime::Workload& workload) {
  std::uint64_t h = 0;
  auto const add = [&](std::uint64_t x) { h = hybridstate::runtime::mix64(h * 31 + x + 1); };
  for (const auto& r : workload.requests) {
    add(static_cast<std::uint64_t>(r.arrival_ns));
    add(r.prompt_tokens);
    add(r.output_tokens);
    add(r.salt);
    for (const auto& run : r.content) {
      add(run.stream);
      add(run.offset);
      add(run.tokens);
    }
    for (auto const t : r.tokens) add(t);
  }
  return h;
}

/// The sentence of the WorkloadError that f throws; empty when it throws none.
template <class Function>
std::string sentence_of(Function f) {
  try {
    f();
  } catch (const hybridstate::runtime::WorkloadError& error) {
    return error.what();
  }
  return {};
}

/// A folder that lives as long as the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    auto const ticks = std::chrono::steady_clock::now().time_since_epoch().count();
    path_ = std::filesystem::temp_directory_path() /
            ("hybridstate-" + std::to_string(ticks) + "-" + std::to_string(++count));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string write(const std::string& name, std::string_view text) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file << text;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace workload_test
