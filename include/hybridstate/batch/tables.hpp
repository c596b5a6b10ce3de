// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <hybridstate/batch/shape.hpp>
#include <hybridstate/cache/concept.hpp>
#include <hybridstate/core/array.hpp>
#include <hybridstate/core/error.hpp>
#include <hybridstate/device/attention_blocks.hpp>
#include <span>
#include <string>

HYBRIDSTATE_NAMESPACE_BEGIN

/// A sequence whose open step (its last reserve) is to run.
struct ScheduledSequence {
  SequenceHandle sequence;
  std::int32_t row = -1;  ///< of the tables; negative: the sequence's own slot
};

/// Why tables were not built; nothing changed then.
enum class BatchRefusal : std::uint8_t {
  none,
  absent_sequence,
  row_out_of_range,
  row_taken,
  absent_block,
  too_many_blocks,
  absent_state,
  no_destination,
  too_many_checkpoints,
  shared_destination,
  overwritten_source,
  too_many_copies,
  shared_block,
};

constexpr const char* sentence(BatchRefusal r) noexcept {
  switch (r) {
    case BatchRefusal::none:
      return "the tables were built";
    case BatchRefusal::absent_sequence:
      return "it names no sequence";
    case BatchRefusal::row_out_of_range:
      return "its row is not one of the tables' rows";
    case BatchRefusal::row_taken:
      return "its row belongs to an earlier sequence of the batch";
    case BatchRefusal::absent_block:
      return "one of its attention blocks is absent";
    case BatchRefusal::too_many_blocks:
      return "it has more attention blocks than a row has columns";
    case BatchRefusal::absent_state:
      return "one of its states is not a state of the organization";
    case BatchRefusal::no_destination:
      return "it has no state to write: reserve its tokens first";
    case BatchRefusal::too_many_checkpoints:
      return "its step leaves more checkpoints than a row has room for";
    case BatchRefusal::shared_destination:
      return "it would write a state that another sequence of the batch writes too";
    case BatchRefusal::overwritten_source:
      return "it would read a state that another sequence of the batch overwrites";
    case BatchRefusal::too_many_copies:
      return "the step copies more blocks than there are rows";
    case BatchRefusal::shared_block:
      return "it would write an attention block that a sequence of the batch writes already";
  }
  return "";
}

struct BatchResult {
  BatchRefusal refusal = BatchRefusal::none;
  std::size_t item = 0;  ///< the scheduled sequence that was refused

  explicit operator bool() const noexcept { return refusal == BatchRefusal::none; }
};

/// `tokens` tokens of a unit to copy before the step's kernels run, in every layer of an attention
/// group: token runs of every head, of keys and of values (KvStrides), from token from_token of
/// unit `from` on to token to_token of unit `to`.
struct UnitCopy {
  std::uint32_t group = 0;
  std::int32_t from = -1;
  std::int32_t from_token = 0;
  std::int32_t to = -1;
  std::int32_t to_token = 0;
  std::int32_t tokens = 0;

  friend constexpr bool operator==(const UnitCopy&, const UnitCopy&) = default;
};

/// One row as the host sees it.
class BatchRow {
 public:
  /// One group of a state: its member pages and its convolution lines.
  struct State {
    std::span<const std::int32_t> pages;
    std::span<const std::int32_t> lines;
  };

  BatchRow(const BatchShape& shape, const std::int32_t* row) noexcept : shape_(shape), row_(row) {}

  std::int32_t valid_until() const noexcept { return row_[BatchShape::valid_until()]; }
  TailPlace tail() const noexcept {
    return {row_[BatchShape::tail()], row_[BatchShape::tail() + 1]};
  }
  std::span<const std::int32_t> blocks(Units group = 0) const noexcept {
    return {row_ + shape_.attention(group), shape_.blocks};
  }
  State source(Units group = 0) const noexcept { return state(shape_.source(group)); }
  State destination(Units group = 0) const noexcept { return state(shape_.destination(group)); }
  State checkpoint(std::uint32_t k, Units group = 0) const noexcept {
    return state(shape_.checkpoint(k, group));
  }
  std::int32_t boundary(std::uint32_t k) const noexcept { return row_[shape_.boundary(k)]; }

 private:
  State state(std::int64_t at) const noexcept {
    return {{row_ + at, shape_.members}, {row_ + at + shape_.members, shape_.lines}};
  }

  BatchShape shape_;
  const std::int32_t* row_;
};

/// Turns what a joint cache says about the sequences of a step into rows for kernels: attention
/// units, the source and destination of the recurrent state, checkpoint destinations (BatchShape).
/// Rows live in the caller's memory, e.g. pinned, and stay between steps. A row is a function of
/// its sequence alone, and a row without a sequence holds -1 everywhere: what pads a batch has no
/// address. After each build, `changed()` lists the rows that differ from before, so that a copy on
/// a device (all bits set at the start) follows by copying these.
///
/// A build rewrites rows in place: an upload that still reads them must end first. Nothing is
/// allocated after construction.
template <memory_organization Organization>
class BatchTables {
 public:
  /// `memory`: at least batch_shape(organization, limits).entries() entries, overwritten with -1.
  /// `organization` and `memory` outlive the tables.
  BatchTables(const Organization& organization, const BatchLimits& limits,
              std::span<std::int32_t> memory)
      : organization_(organization), shape_(batch_shape(organization, limits)) {
    std::string sentence = problem(organization, limits);
    if (sentence.empty() && memory.size() < static_cast<std::uint64_t>(shape_.entries()))
      sentence = "batch: the tables take " + std::to_string(shape_.entries()) +
                 " entries, but the memory has " + std::to_string(memory.size());
    if (!sentence.empty()) fail_configuration(sentence);
    entries_ = memory.first(static_cast<std::size_t>(shape_.entries()));
    std::fill(entries_.begin(), entries_.end(), absent);
    item_of_row_ = marks(shape_.rows);
    writer_of_state_ = marks(organization.max_states());
    written_parts_ = FixedArray<std::uint64_t>(organization.max_attention_blocks());
    used_blocks_ = FixedArray<Units>(shape_.rows);
    live_ = FixedArray<std::int32_t>(shape_.rows);
    changed_ = FixedArray<ChangedRow>(shape_.rows);
    copies_ = FixedArray<UnitCopy>(std::size_t{shape_.rows} * shape_.attention_groups);
  }

  const BatchShape& shape() const noexcept { return shape_; }
  std::span<const std::int32_t> entries() const noexcept { return entries_; }
  BatchRow row(std::int32_t r) const noexcept { return {shape_, at(r)}; }
  /// Rows that the last build changed, each once; what it left as it was is not in the list.
  std::span<const ChangedRow> changed() const noexcept { return {changed_.data(), changed_count_}; }
  /// Copies of the step of the last build.
  std::span<const UnitCopy> copies() const noexcept { return {copies_.data(), copy_count_}; }

  /// The tables of a step, between the reserves of its sequences and their next ones (a sequence
  /// without a reserve would offer the state that it adopted for writing). On refusal nothing
  /// changed.
  template <joint_cache Cache>
  BatchResult build(const Cache& cache, std::span<const ScheduledSequence> scheduled) noexcept {
    std::size_t seen = 0;
    BatchResult const result = check(cache, scheduled, seen);
    if (result) write(cache, scheduled);
    for (ScheduledSequence const& s : scheduled.first(seen)) {
      item_of_row_[row_of(s)] = absent;
      for (HeldState const& h : targets(cache, s.sequence))
        writer_of_state_[h.state.value] = absent;
      for (AttentionHandle const a : writable(cache, s.sequence))
        written_parts_[cache.place(a).block.value] = 0;
    }
    return result;
  }

 private:
  static constexpr std::int32_t absent = -1;

  static FixedArray<std::int32_t> marks(std::size_t count) {
    FixedArray<std::int32_t> a(count);
    std::fill_n(a.data(), count, absent);
    return a;
  }
  static std::int32_t row_of(const ScheduledSequence& s) noexcept {
    return s.row < 0 ? s.sequence.value : s.row;
  }
  bool in_range(std::int32_t row) const noexcept {
    return row >= 0 && static_cast<std::uint32_t>(row) < shape_.rows;
  }
  bool known(StateHandle s) const noexcept { return s && s.at() < organization_.max_states(); }
  template <class Cache>
  static std::span<const HeldState> targets(const Cache& cache, SequenceHandle s) noexcept {
    auto const held = cache.states(s);
    return held.subspan(std::min<std::size_t>(cache.first_target(s), held.size()));
  }

  /// The blocks that the open step writes, at least in part.
  template <class Cache>
  static std::span<const AttentionHandle> writable(const Cache& cache, SequenceHandle s) noexcept {
    auto const blocks = cache.blocks(s);
    std::size_t const first =
        std::max(cache.position(s), cache.kv_valid_until(s)) / cache.block_tokens();
    return blocks.subspan(std::min(first, blocks.size()));
  }
  /// 64ths of its block that are the handle's: all, or of a tail the one at which it begins (tails
  /// begin at different ones; how long they are is not said).
  template <class Cache>
  static std::uint64_t parts_of(const Cache& cache, AttentionHandle a) noexcept {
    AttentionPlace const place = cache.place(a);
    if (place.block == a) return ~std::uint64_t{0};
    return std::uint64_t{1} << std::uint64_t{place.offset} * 64 / cache.block_tokens();
  }

  /// Marks rows, written states and written blocks of the first `seen` sequences.
  template <class Cache>
  BatchResult check(const Cache& cache, std::span<const ScheduledSequence> scheduled,
                    std::size_t& seen) noexcept {
    using R = BatchRefusal;
    for (std::size_t i = 0; i < scheduled.size(); ++i) {
      ScheduledSequence const& s = scheduled[i];
      if (!s.sequence) return {R::absent_sequence, i};
      std::int32_t const r = row_of(s);
      if (!in_range(r)) return {R::row_out_of_range, i};
      if (item_of_row_[r] != absent) return {R::row_taken, i};
      auto const blocks = cache.blocks(s.sequence);
      if (blocks.size() > shape_.blocks) return {R::too_many_blocks, i};
      for (AttentionHandle const a : blocks)
        if (!a || cache.place(a).block.at() >= organization_.max_attention_blocks())
          return {R::absent_block, i};
      if (StateHandle const source = cache.source(s.sequence); source && !known(source))
        return {R::absent_state, i};
      auto const written = targets(cache, s.sequence);
      if (written.empty()) return {R::no_destination, i};
      if (written.size() - 1 > shape_.checkpoints) return {R::too_many_checkpoints, i};
      for (HeldState const& h : written) {
        if (!known(h.state)) return {R::absent_state, i};
        if (writer_of_state_[h.state.value] != absent) return {R::shared_destination, i};
      }
      for (HeldState const& h : written)
        writer_of_state_[h.state.value] = static_cast<std::int32_t>(i);
      item_of_row_[r] = static_cast<std::int32_t>(i);
      seen = i + 1;
      for (AttentionHandle const a : writable(cache, s.sequence)) {
        std::uint64_t& marked = written_parts_[cache.place(a).block.value];
        std::uint64_t const parts = parts_of(cache, a);
        if ((marked & parts) != 0) return {R::shared_block, i};
        marked |= parts;
      }
    }
    for (std::size_t i = 0; i < scheduled.size(); ++i)
      if (StateHandle const source = cache.source(scheduled[i].sequence)) {
        std::int32_t const writer = writer_of_state_[source.value];
        if (writer != absent && writer != static_cast<std::int32_t>(i))
          return {R::overwritten_source, i};
      }
    if (cache.copies().size() > shape_.rows) return {R::too_many_copies, 0};
    return {};
  }

  template <class Cache>
  void write(const Cache& cache, std::span<const ScheduledSequence> scheduled) noexcept {
    changed_count_ = copy_count_ = 0;
    for (std::uint32_t i = 0; i < live_count_; ++i)
      if (item_of_row_[live_[i]] == absent) clear(live_[i]);
    live_count_ = 0;
    for (ScheduledSequence const& s : scheduled) {
      live_[live_count_++] = row_of(s);
      write_row(cache, s.sequence, row_of(s));
    }
    for (BlockCopy const& copy : cache.copies()) {
      AttentionPlace const from = cache.place(copy.from);
      AttentionPlace const to = cache.place(copy.to);
      for (Units g = 0; g < shape_.attention_groups; ++g)
        copies_[copy_count_++] = {
            g,
            block(from.block, g),
            static_cast<std::int32_t>(from.offset),
            block(to.block, g),
            static_cast<std::int32_t>(to.offset),
            static_cast<std::int32_t>(copy.tokens),
        };
    }
  }

  template <class Cache>
  void write_row(const Cache& cache, SequenceHandle s, std::int32_t r) noexcept {
    Writer w{at(r)};
    w.put(static_cast<std::int32_t>(cache.kv_valid_until(s)));
    put_tail(w, cache, s);
    put_state(w, cache.source(s));
    auto const written = targets(cache, s);
    put_state(w, written.back().state);
    for (std::uint32_t k = 0; k < shape_.checkpoints; ++k) {
      bool const used = k + 1 < written.size();
      w.put(used ? static_cast<std::int32_t>(written[k].boundary) : absent);
      put_state(w, used ? written[k].state : StateHandle{});
    }
    auto const blocks = cache.blocks(s);
    auto const count = static_cast<Units>(blocks.size());
    for (Units g = 0; g < shape_.attention_groups; ++g) {
      w.at = shape_.attention(g);
      for (AttentionHandle const a : blocks) w.put(block(cache.place(a).block, g));
      for (Units c = count; c < used_blocks_[r]; ++c) w.put(absent);
    }
    used_blocks_[r] = count;
    note(w, r);
  }

  /// A row whose sequence left the batch. It held a destination: its content changes.
  void clear(std::int32_t r) noexcept {
    Writer w{at(r)};
    while (w.at < shape_.attention()) w.put(absent);
    for (Units g = 0; g < shape_.attention_groups; ++g) {
      w.at = shape_.attention(g);
      for (Units c = 0; c < used_blocks_[r]; ++c) w.put(absent);
    }
    used_blocks_[r] = 0;
    note(w, r);
  }

  /// Writes entries one after the other and remembers the first and the last that changed.
  struct Writer {
    std::int32_t* row;
    std::int64_t at = 0;
    std::int64_t first = -1;
    std::int64_t last = -1;

    void put(std::int32_t value) noexcept {
      if (row[at] != value) {
        row[at] = value;
        if (first < 0) first = at;
        last = at;
      }
      ++at;
    }
  };

  /// Only a last block can lie inside its unit.
  template <class Cache>
  static void put_tail(Writer& w, const Cache& cache, SequenceHandle s) noexcept {
    TailPlace tail;
    auto const blocks = cache.blocks(s);
    if (!blocks.empty())
      if (AttentionPlace const place = cache.place(blocks.back()); place.offset > 0)
        tail = {static_cast<std::int32_t>((blocks.size() - 1) * cache.block_tokens()),
                static_cast<std::int32_t>(place.offset)};
    w.put(tail.from);
    w.put(tail.shift);
  }
  void put_state(Writer& w, StateHandle s) const noexcept {
    for (Units g = 0; g < shape_.recurrent_groups; ++g)
      for_each_state_entry(organization_, shape_, s, g, [&](std::int32_t e) { w.put(e); });
  }
  std::int32_t block(AttentionHandle a, Units group) const noexcept {
    return static_cast<std::int32_t>(organization_.attention_unit(a, static_cast<int>(group)));
  }
  void note(const Writer& w, std::int32_t r) noexcept {
    if (w.first >= 0)
      changed_[changed_count_++] = {r, static_cast<std::int32_t>(w.first),
                                    static_cast<std::int32_t>(w.last - w.first + 1)};
  }
  std::int32_t* at(std::int32_t row) const noexcept {
    return entries_.data() + row * shape_.row_entries();
  }

  const Organization& organization_;
  BatchShape shape_;
  std::span<std::int32_t> entries_;
  FixedArray<std::int32_t> item_of_row_;      ///< inside a build; absent between builds
  FixedArray<std::int32_t> writer_of_state_;  ///< the same
  FixedArray<std::uint64_t> written_parts_;   ///< 64ths of each block; 0 between builds
  FixedArray<Units> used_blocks_;             ///< columns of a row that hold blocks
  FixedArray<std::int32_t> live_;             ///< rows of the last build
  FixedArray<ChangedRow> changed_;
  FixedArray<UnitCopy> copies_;
  std::uint32_t live_count_ = 0;
  std::uint32_t changed_count_ = 0;
  std::uint32_t copy_count_ = 0;
};

HYBRIDSTATE_NAMESPACE_END
