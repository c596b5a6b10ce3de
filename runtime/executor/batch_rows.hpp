// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <hybridstate/batch/tables.hpp>
#include <span>
#include <vector>

#include "executor/padded_rows.hpp"

namespace hybridstate::runtime {

/// Gives the sequences of a step rows of the tables: the row of the step before where possible, so
/// that the row need not be uploaded again, and always one of the first padded_rows(), so that a
/// decode step needs no other indirection: its row is its sequence's place in the batch.
class BatchRows {
 public:
  explicit BatchRows(std::uint32_t max_sequences)
      : row_of_slot_(max_sequences, -1), taken_(max_sequences) {}

  /// Sets the row of each; at most max_sequences of them, of different slots.
  void assign(std::span<ScheduledSequence> scheduled) noexcept {
    auto const most = static_cast<std::uint32_t>(taken_.size());
    std::uint32_t const rows = padded_rows(static_cast<std::uint32_t>(scheduled.size()), most);
    std::fill(taken_.begin(), taken_.end(), std::uint8_t{0});
    for (ScheduledSequence& s : scheduled) {
      s.row = row_of_slot_[s.sequence.at()];
      if (s.row < 0) continue;
      auto const row = static_cast<std::uint32_t>(s.row);
      if (row >= rows || taken_[row] != 0)
        s.row = -1;
      else
        taken_[row] = 1;
    }
    std::int32_t free = 0;
    for (ScheduledSequence& s : scheduled) {
      if (s.row < 0) {
        while (taken_[static_cast<std::uint32_t>(free)] != 0) ++free;
        s.row = free++;
      }
      row_of_slot_[s.sequence.at()] = s.row;
    }
  }

 private:
  std::vector<std::int32_t> row_of_slot_;  ///< of the last step that a slot was in
  std::vector<std::uint8_t> taken_;        ///< rows, in this step
};

}  // namespace hybridstate::runtime
