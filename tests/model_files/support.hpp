// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/make_model.hpp"
#include "model/safetensors.hpp"
#include "model/weights.hpp"

namespace hybridstate::runtime {

/// A folder of its own for one test, removed at the end.
class TestFolder {
 public:
  TestFolder() {
    static std::atomic<int> counter{0};
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("hybridstate-model-files-{}-{}", ::getpid(), counter++);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::uint64_t fnv1a(const std::string& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (char const c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// The sentence of the ModelError that `f` throws; empty when it throws none.
template <class F>
std::string sentence_of(F&& f) {
  try {
    f();
  } catch (const ModelError& error) {
    return error.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The number of damaged inputs that a test tries; HYBRIDSTATE_FUZZ_FACTOR multiplies it.
inline int fuzz_runs(int usual) {
  const char* const factor = std::getenv("HYBRIDSTATE_FUZZ_FACTOR");
  return usual * (factor != nullptr ? std::max(1, std::atoi(factor)) : 1);
}

/// A tensor with its data, to be written to a file of the test's own making.
struct LooseTensor {
  std::string name;
  Dtype dtype = Dtype::bf16;
  TensorShape shape;
  std::string data;
};

inline std::string with_length(const std::string& header, const std::string& data = {}) {
  std::uint64_t const length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + data;
}

inline std::string safetensors_text(const std::vector<LooseTensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (LooseTensor const& t : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", t.name, dtype_name(t.dtype), t.shape.text(),
                          data.size(), data.size() + t.data.size());
    data += t.data;
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  return with_length(header, data);
}

inline std::vector<LooseTensor> loose_tensors(const std::filesystem::path& folder) {
  Checkpoint const checkpoint = Checkpoint::open(folder);
  std::vector<LooseTensor> tensors;
  for (Checkpoint::Tensor const& t : checkpoint.tensors())
    tensors.push_back({t.name, t.view.dtype, t.view.shape,
                       std::string(static_cast<const char*>(t.view.data), t.view.bytes())});
  return tensors;
}

/// A model of every optional part that still loads in no time.
inline FalconH1Config small_config() {
  FalconH1Config c = falcon_preset("tiny").config;
  c.layers = 2;
  c.hidden = 16;
  c.intermediate = 24;
  c.vocabulary = 31;
  c.ssm_heads = 6;
  c.ssm_head_dim = 4;
  c.ssm_state = 8;
  return c;
}

}  // namespace hybridstate::runtime
