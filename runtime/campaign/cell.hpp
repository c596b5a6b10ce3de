// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <hybridstate/policy/retention.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/run.hpp"
#include "workload/paper.hpp"

namespace hybridstate::runtime {

/// How often each shared context is asked for.
enum class Popularity : std::uint8_t {
  skewed,   ///< the paper's workload: Zipf 1.1, and 5 % repeats of the previous request's context
  uniform,  ///< every context alike, no repeats
};

/// One run of a campaign: every setting that decides its result, and nothing else. Two experiments
/// that ask for equal settings share the cell.
struct Cell {
  std::string executor = "sim";        ///< "sim", or what computes a real model: "cpu", "cuda", …
  std::string model = "falcon-h1-7b";  ///< preset; cpu: name and digest of the model's folder
  std::string law = "a100-40gb";       ///< step law; "none" under cpu
  Arm arm = Arm::s2;
  std::string policy = "paper";  ///< as in --policy
  std::string budget = "b63";    ///< "b<N>", bytes per layer, "<N>GiB" over all layers, or "none"
  std::uint32_t attention_ppm = 0;  ///< D0's split; 0: the model's published one
  std::uint32_t cap = 63;
  double headroom = 0;             ///< f
  std::uint32_t pin_distinct = 0;  ///< K of pinning at preemption; 0: off
  Retention retention;
  std::string workload = "paper";  ///< or "mooncake:" and the digest of the file
  std::uint32_t requests = 300;    ///< 0: all of a trace
  double rate = 3;                 ///< requests per second; 0: all at once
  double share = 1;                ///< q
  LengthPreset lengths = LengthPreset::original;
  Popularity popularity = Popularity::skewed;
  ArrivalProcess arrivals = ArrivalProcess::poisson;
  bool variance_reduction = false;
  bool isolate = false;  ///< a salt for each request: nothing is shared
  bool trace = false;    ///< record and analyze the state history
  std::uint64_t seed = 0;
};

/// Name and value of every setting, always all of them, in a fixed order.
std::vector<std::pair<std::string, std::string>> settings_of(const Cell& cell);

/// "name=value" of all settings, separated by spaces: equal cells have equal texts, others do not.
std::string canonical_text(const Cell& cell);

/// 16 hexadecimal digits of the canonical text: the cell's address.
std::string cell_id(const Cell& cell);

/// What a person would call the cell, and its address: the name of its file without ".json".
std::string cell_stem(const Cell& cell);

/// Expected cost against other cells, for handing out the longest first.
double cell_cost(const Cell& cell);

/// 64 bits of a text (FNV-1a, finished by mix64) in hexadecimal.
std::string digest_of(std::string_view text);

}  // namespace hybridstate::runtime
