// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "executor/device/forward.hpp"

namespace harness {

/// A device's forward pass for chunks whose spans nobody wrote from tables: writes the tables.
class WithTables final : public hybridstate::runtime::ForwardPass {
 public:
  using Forward = hybridstate::runtime::device::DeviceForward;
  using Chunks = std::span<const hybridstate::runtime::ForwardChunk>;
  using Kv = hybridstate::runtime::KvArena;

  WithTables(std::unique_ptr<Forward> forward, std::uint32_t rows) : forward_(std::move(forward)) {
    shape_.rows = rows;
  }

  const Forward& forward() const { return *forward_; }
  const hybridstate::runtime::FalconH1Config& config() const noexcept override {
    return forward_->config();
  }
  void run(Chunks chunks, const Kv& kv, std::span<float> logits) override {
    forward_->run(with_rows(chunks), kv, logits);
  }
  void choose(Chunks chunks, const Kv& kv, const hybridstate::runtime::SamplingOptions& sampling,
              std::span<hybridstate::TokenId> choices) override {
    forward_->choose(with_rows(chunks), kv, sampling, choices);
  }
  std::byte* allocate(std::size_t bytes) override { return forward_->allocate(bytes); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    forward_->copy(to, from, bytes);
  }

 private:
  /// Chunk i in row i, unless it names one.
  Chunks with_rows(Chunks chunks) {
    chunks_.assign(chunks.begin(), chunks.end());
    if (entries_.empty()) {
      auto const& target = chunks.front().targets.front().row;
      shape_.blocks = static_cast<hybridstate::Units>(chunks.front().blocks.size());
      shape_.members = static_cast<hybridstate::Units>(target.pages.size());
      shape_.lines = static_cast<hybridstate::Units>(target.lines.size());
      shape_.checkpoints = 4;
      entries_.assign(static_cast<std::size_t>(shape_.entries()), -1);
    }
    std::vector<std::int32_t> const before = entries_;
    std::fill(entries_.begin(), entries_.end(), -1);
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      auto& c = chunks_[i];
      if (c.row < 0) c.row = static_cast<std::int32_t>(i);
      std::int32_t* const row = entries_.data() + c.row * shape_.row_entries();
      row[hybridstate::BatchShape::valid_until()] = static_cast<std::int32_t>(c.kv_valid_until);
      row[hybridstate::BatchShape::tail()] = c.tail.from;
      row[hybridstate::BatchShape::tail() + 1] = c.tail.shift;
      if (c.begin > 0) put(c.source, row + shape_.source());
      put(c.targets.back().row, row + shape_.destination());
      std::copy(c.blocks.begin(), c.blocks.end(), row + shape_.attention());
    }
    changed_.clear();
    for (std::uint32_t r = 0; r < shape_.rows; ++r) {
      auto const at = static_cast<std::size_t>(r * shape_.row_entries());
      auto const n = static_cast<std::size_t>(shape_.row_entries());
      if (!std::equal(&entries_[at], &entries_[at] + n, &before[at]))
        changed_.push_back({static_cast<std::int32_t>(r), 0, static_cast<std::int32_t>(n)});
    }
    forward_->update_tables({shape_, entries_, changed_});
    return chunks_;
  }
  void put(const hybridstate::runtime::StateRow& state, std::int32_t* to) const {
    to = std::copy(state.pages.begin(), state.pages.end(), to);
    std::copy(state.lines.begin(), state.lines.end(), to);
  }

  std::unique_ptr<Forward> forward_;
  hybridstate::BatchShape shape_;
  std::vector<std::int32_t> entries_;
  std::vector<hybridstate::ChangedRow> changed_;
  std::vector<hybridstate::runtime::ForwardChunk> chunks_;
};

}  // namespace harness
