// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hybridstate::runtime {

/// A condition of exact continuation that a run gives up on purpose, to show what then differs.
enum class Condition : std::uint8_t {
  none,  ///< all hold: the exact mode
  /// C1: prefill in the chunk form, whose chunks restart at every cut of the scheduler.
  canonical_partition,
  /// C2: working states stay FP32 while checkpoints are stored in BF16.
  lossless_checkpoint,
  /// C3: the sums of linear layers are split by the number of rows in the product.
  batch_invariance,
  /// C4: prefill in the chunk form, generated tokens in the recurrent one. Chunks of one token, so
  /// that cuts change nothing and only the form does.
  same_provenance,
};

struct ConditionName {
  Condition condition;
  std::string_view name;
};
inline constexpr std::array<ConditionName, 5> condition_names{{
    {Condition::none, "none"},
    {Condition::canonical_partition, "canonical-partition"},
    {Condition::lossless_checkpoint, "lossless-checkpoint"},
    {Condition::batch_invariance, "batch-invariance"},
    {Condition::same_provenance, "same-provenance"},
}};

constexpr std::string_view condition_name(Condition condition) noexcept {
  for (ConditionName const& n : condition_names)
    if (n.condition == condition) return n.name;
  return "";
}
/// Nothing for a name that condition_name() does not give.
constexpr std::optional<Condition> parse_condition(std::string_view name) noexcept {
  for (ConditionName const& n : condition_names)
    if (n.name == name) return n.condition;
  return std::nullopt;
}

/// Tokens of a chunk of prefill; 0: the recurrent form.
constexpr std::uint32_t chunk_length(Condition broken) noexcept {
  if (broken == Condition::canonical_partition) return 256;
  return broken == Condition::same_provenance ? 1 : 0;
}

/// Pieces of the sum of a linear layer with `rows` input rows under a broken C3.
constexpr std::uint32_t sum_pieces(std::uint64_t rows) noexcept {
  if (rows <= 1) return 1;
  return rows < 64 ? 2 : 4;
}

}  // namespace hybridstate::runtime
