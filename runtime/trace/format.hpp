// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes of a state-history trace (docs/trace.md): a header, frames of records, and an end
// frame.

#include <cstddef>
#include <cstdint>
#include <hybridstate/core/observer.hpp>
#include <hybridstate/core/types.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hybridstate::runtime {

enum class RecordKind : std::uint8_t {
  step = 1,  ///< a scheduler step begins
  executed,  ///< the step is over
  enter,     ///< a request joins the line: new, or preempted
  publish,
  loss,
  adopt,
  allocate,
  admit,
  preempt,
  finish,
};
inline constexpr int record_kinds = 10;
const char* kind_name(RecordKind kind);
const char* object_name(ObjectKind object);
const char* cause_name(LossCause cause);

/// One record. Fields that its kind does not have keep their defaults.
struct TraceRecord {
  RecordKind kind = RecordKind::step;
  ObjectKind object = ObjectKind::none;  ///< publish, loss, allocate
  LossCause cause = LossCause::none;     ///< loss; admit: cleared when everything cached had to go
  std::uint64_t sequence = 0;
  std::uint64_t step = 0;
  std::int64_t time_ns = 0;  ///< step, executed, enter
  std::uint64_t request = 0;
  std::uint64_t path = 0;  ///< publish, loss, adopt: names the prefix, PrefixNode::path
  std::uint64_t salt = 0;  ///< enter
  std::int32_t handle = -1;
  Tokens boundary = 0;            ///< publish, loss, adopt; admit: the adopted J
  Tokens tokens = 0;              ///< known (enter, admit), committed (preempt, finish), prefill
  Tokens attention = 0;           ///< admit: A of the lookup
  Tokens recurrent = 0;           ///< admit: R of the lookup
  Tokens joint = 0;               ///< admit: J of the lookup
  std::uint32_t preemptions = 0;  ///< enter: of this request so far
  std::uint32_t running = 0;      ///< step; executed: decoding requests
  std::uint32_t waiting = 0;      ///< step
  /// enter: full blocks whose paths an earlier enter of this request gave; `chain` goes on there.
  std::uint32_t kept = 0;
  std::vector<std::uint64_t> chain;  ///< enter: paths of the full blocks after the kept ones

  /// Starts over as an empty record of a kind; the chain's memory is used again.
  void reset(RecordKind new_kind) noexcept {
    std::vector<std::uint64_t> empty = std::move(chain);
    empty.clear();
    *this = TraceRecord{};
    kind = new_kind;
    chain = std::move(empty);
  }
};

struct TraceHeader {
  static constexpr std::uint32_t version = 1;
  Tokens block_tokens = 0;
  Tokens checkpoint_tokens = 0;
  std::string organization;
  std::string policy;
  std::string note;  ///< workload and seed, for people
};

/// What the writer knew when it closed the file.
struct TraceEnd {
  std::uint64_t records = 0;       ///< in the file
  std::uint64_t dropped = 0;       ///< not recorded because the ring was full
  std::uint64_t lost = 0;          ///< recorded, but in frames that could not be written
  std::uint64_t write_errors = 0;  ///< writes that failed
};

// --- encoding --------------------------------------------------------------------------------

inline constexpr char trace_magic[8] = {'H', 'S', 'T', 'R', 'A', 'C', 'E', '\n'};
inline constexpr std::uint32_t frame_magic = 0x52465348;  ///< "HSFR"
inline constexpr std::size_t frame_header_bytes = 28;
inline constexpr std::uint32_t most_frame_bytes = 1U << 30;
enum class FrameKind : std::uint32_t { records = 0, end = 1 };

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);

void put_u32(std::vector<std::uint8_t>& out, std::uint32_t v);
void put_u64(std::vector<std::uint8_t>& out, std::uint64_t v);
void put_varint(std::vector<std::uint8_t>& out, std::uint64_t v);

std::vector<std::uint8_t> encode_header(const TraceHeader& header);
/// Appends kind, the sequence numbers skipped before it, and its fields; not the sequence itself.
void encode_record(std::vector<std::uint8_t>& out, const TraceRecord& record,
                   std::uint64_t skipped);
/// Frame header and payload in one piece.
std::vector<std::uint8_t> encode_frame(FrameKind kind, std::uint32_t records,
                                       std::uint64_t first_sequence,
                                       std::span<const std::uint8_t> payload);
std::vector<std::uint8_t> encode_end(const TraceEnd& end);

// --- decoding --------------------------------------------------------------------------------

/// Reads forward through bytes; past the end, or at bytes that mean nothing, it becomes bad and
/// gives zeros.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::size_t position() const noexcept { return at_; }
  std::size_t left() const noexcept { return bytes_.size() - at_; }
  bool good() const noexcept { return good_; }
  std::uint8_t u8();
  std::uint32_t u32();
  std::uint64_t u64();
  std::uint64_t varint();
  /// A varint that must fit.
  std::uint32_t varint32();
  std::span<const std::uint8_t> take(std::size_t n);
  void spoil() noexcept { good_ = false; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

/// One record; `skipped` as encode_record() got it. False when the bytes are no record. Step and
/// sequence are the caller's, except the step of a step record.
bool decode_record(ByteReader& in, TraceRecord& record, std::uint64_t& skipped);

}  // namespace hybridstate::runtime
