// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "trace/format.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace hybridstate::runtime {

namespace {

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1U) != 0 ? 0xedb88320U ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}();

void put_string(std::vector<std::uint8_t>& out, std::string_view text) {
  std::size_t const size = std::min<std::size_t>(text.size(), 0xffff);
  put_varint(out, size);
  out.insert(out.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size));
}

// Handles may be absent (-1): shifted by one.
std::uint64_t shifted(std::int32_t handle) { return static_cast<std::uint64_t>(handle) + 1; }

}  // namespace

const char* kind_name(RecordKind kind) {
  constexpr const char* names[] = {"step",  "executed", "enter", "publish", "loss",
                                   "adopt", "allocate", "admit", "preempt", "finish"};
  return names[static_cast<int>(kind) - 1];
}

const char* object_name(ObjectKind object) {
  constexpr const char* names[] = {"none", "attention", "checkpoint", "carrier"};
  return names[static_cast<int>(object)];
}

const char* cause_name(LossCause cause) {
  constexpr const char* names[] = {"none",        "reassigned",  "carrier", "reclaimed",
                                   "invalidated", "failed_step", "cleared", "superseded"};
  return names[static_cast<int>(cause)];
}

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  std::uint32_t c = ~before;
  for (std::uint8_t b : bytes) c = crc_table[(c ^ b) & 0xffU] ^ (c >> 8);
  return ~c;
}

void put_u32(std::vector<std::uint8_t>& out, std::uint32_t v) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<std::uint8_t>(v >> shift));
}
void put_u64(std::vector<std::uint8_t>& out, std::uint64_t v) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<std::uint8_t>(v >> shift));
}
void put_varint(std::vector<std::uint8_t>& out, std::uint64_t v) {
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<std::uint8_t>(v | 0x80U));
  out.push_back(static_cast<std::uint8_t>(v));
}

std::vector<std::uint8_t> encode_header(const TraceHeader& header) {
  std::vector<std::uint8_t> text;
  put_string(text, header.organization);
  put_string(text, header.policy);
  put_string(text, header.note);
  std::vector<std::uint8_t> out(std::begin(trace_magic), std::end(trace_magic));
  put_u32(out, TraceHeader::version);
  put_u32(out, static_cast<std::uint32_t>(out.size() + 4 * 4 + text.size()));
  put_u32(out, header.block_tokens);
  put_u32(out, header.checkpoint_tokens);
  out.insert(out.end(), text.begin(), text.end());
  put_u32(out, crc32(out));
  return out;
}

void encode_record(std::vector<std::uint8_t>& out, const TraceRecord& r, std::uint64_t skipped) {
  out.push_back(static_cast<std::uint8_t>(r.kind));
  put_varint(out, skipped);
  switch (r.kind) {
    case RecordKind::step:
      put_varint(out, r.step);
      put_varint(out, static_cast<std::uint64_t>(r.time_ns));
      put_varint(out, r.running);
      put_varint(out, r.waiting);
      break;
    case RecordKind::executed:
      put_varint(out, static_cast<std::uint64_t>(r.time_ns));
      put_varint(out, r.tokens);
      put_varint(out, r.running);
      break;
    case RecordKind::enter:
      put_varint(out, r.request);
      put_varint(out, r.preemptions);
      put_varint(out, static_cast<std::uint64_t>(r.time_ns));
      put_varint(out, r.tokens);
      put_u64(out, r.salt);
      put_varint(out, r.kept);
      put_varint(out, r.chain.size());
      for (std::uint64_t path : r.chain) put_u64(out, path);
      break;
    case RecordKind::publish:
    case RecordKind::loss:
      out.push_back(static_cast<std::uint8_t>(static_cast<unsigned>(r.object) |
                                              static_cast<unsigned>(r.cause) << 4));
      put_varint(out, r.request);
      put_varint(out, r.boundary);
      put_varint(out, shifted(r.handle));
      put_u64(out, r.path);
      break;
    case RecordKind::adopt:
      put_varint(out, r.request);
      put_varint(out, r.boundary);
      put_varint(out, shifted(r.handle));
      put_u64(out, r.path);
      break;
    case RecordKind::allocate:
      out.push_back(static_cast<std::uint8_t>(r.object));
      put_varint(out, r.request);
      put_varint(out, shifted(r.handle));
      break;
    case RecordKind::admit:
      out.push_back(static_cast<std::uint8_t>(r.cause));
      put_varint(out, r.request);
      put_varint(out, r.tokens);
      put_varint(out, r.boundary);
      put_varint(out, r.attention);
      put_varint(out, r.recurrent);
      put_varint(out, r.joint);
      put_varint(out, shifted(r.handle));
      break;
    case RecordKind::preempt:
    case RecordKind::finish:
      put_varint(out, r.request);
      put_varint(out, r.tokens);
      break;
  }
}

std::vector<std::uint8_t> encode_frame(FrameKind kind, std::uint32_t records,
                                       std::uint64_t first_sequence,
                                       std::span<const std::uint8_t> payload) {
  std::vector<std::uint8_t> out;
  out.reserve(frame_header_bytes + payload.size());
  put_u32(out, frame_magic);
  put_u32(out, static_cast<std::uint32_t>(payload.size()));
  put_u32(out, records);
  put_u32(out, static_cast<std::uint32_t>(kind));
  put_u64(out, first_sequence);
  put_u32(out, crc32(payload, crc32(out)));
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

std::vector<std::uint8_t> encode_end(const TraceEnd& end) {
  std::vector<std::uint8_t> payload;
  for (std::uint64_t v : {end.records, end.dropped, end.lost, end.write_errors})
    put_u64(payload, v);
  return payload;
}

std::uint8_t ByteReader::u8() {
  auto const one = take(1);
  return one.empty() ? std::uint8_t{0} : one[0];
}
std::uint32_t ByteReader::u32() {
  std::uint32_t v = 0;
  auto const bytes = take(4);
  for (std::size_t i = bytes.size(); i-- > 0;) v = v << 8 | bytes[i];
  return v;
}
std::uint64_t ByteReader::u64() {
  std::uint64_t v = 0;
  auto const bytes = take(8);
  for (std::size_t i = bytes.size(); i-- > 0;) v = v << 8 | bytes[i];
  return v;
}
std::uint64_t ByteReader::varint() {
  std::uint64_t v = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    std::uint8_t const b = u8();
    std::uint64_t const part = b & 0x7fU;
    if (shift == 63 && part > 1) break;
    v |= part << shift;
    if ((b & 0x80U) == 0) return good_ ? v : 0;
  }
  spoil();
  return 0;
}
std::uint32_t ByteReader::varint32() {
  std::uint64_t const v = varint();
  if (v <= std::numeric_limits<std::uint32_t>::max()) return static_cast<std::uint32_t>(v);
  spoil();
  return 0;
}
std::span<const std::uint8_t> ByteReader::take(std::size_t n) {
  if (!good_ || n > left()) {
    spoil();
    return {};
  }
  auto const bytes = bytes_.subspan(at_, n);
  at_ += n;
  return bytes;
}

namespace {

std::int32_t handle_of(ByteReader& in) {
  std::uint64_t const v = in.varint();
  if (v <= 0x80000000ULL) return static_cast<std::int32_t>(static_cast<std::int64_t>(v) - 1);
  in.spoil();
  return -1;
}
std::int64_t time_of(ByteReader& in) {
  std::uint64_t const v = in.varint();
  if (v <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return static_cast<std::int64_t>(v);
  in.spoil();
  return 0;
}
ObjectKind object_of(ByteReader& in, unsigned v) {
  if (v > static_cast<unsigned>(ObjectKind::carrier)) in.spoil();
  return in.good() ? static_cast<ObjectKind>(v) : ObjectKind::none;
}
LossCause cause_of(ByteReader& in, unsigned v) {
  if (v > static_cast<unsigned>(LossCause::superseded)) in.spoil();
  return in.good() ? static_cast<LossCause>(v) : LossCause::none;
}

}  // namespace

bool decode_record(ByteReader& in, TraceRecord& r, std::uint64_t& skipped) {
  unsigned const kind = in.u8();
  if (kind < 1 || kind > record_kinds) return false;
  r.reset(static_cast<RecordKind>(kind));
  skipped = in.varint();
  switch (r.kind) {
    case RecordKind::step:
      r.step = in.varint();
      r.time_ns = time_of(in);
      r.running = in.varint32();
      r.waiting = in.varint32();
      break;
    case RecordKind::executed:
      r.time_ns = time_of(in);
      r.tokens = in.varint32();
      r.running = in.varint32();
      break;
    case RecordKind::enter: {
      r.request = in.varint();
      r.preemptions = in.varint32();
      r.time_ns = time_of(in);
      r.tokens = in.varint32();
      r.salt = in.u64();
      r.kept = in.varint32();
      std::uint64_t const count = in.varint();
      if (!in.good() || count > in.left() / 8) return false;
      for (std::uint64_t i = 0; i < count; ++i) r.chain.push_back(in.u64());
      break;
    }
    case RecordKind::publish:
    case RecordKind::loss: {
      unsigned const both = in.u8();
      r.object = object_of(in, both & 0xfU);
      r.cause = cause_of(in, both >> 4);
      r.request = in.varint();
      r.boundary = in.varint32();
      r.handle = handle_of(in);
      r.path = in.u64();
      break;
    }
    case RecordKind::adopt:
      r.object = ObjectKind::checkpoint;
      r.request = in.varint();
      r.boundary = in.varint32();
      r.handle = handle_of(in);
      r.path = in.u64();
      break;
    case RecordKind::allocate:
      r.object = object_of(in, in.u8());
      r.request = in.varint();
      r.handle = handle_of(in);
      break;
    case RecordKind::admit:
      r.cause = cause_of(in, in.u8());
      r.request = in.varint();
      r.tokens = in.varint32();
      r.boundary = in.varint32();
      r.attention = in.varint32();
      r.recurrent = in.varint32();
      r.joint = in.varint32();
      r.handle = handle_of(in);
      break;
    case RecordKind::preempt:
    case RecordKind::finish:
      r.request = in.varint();
      r.tokens = in.varint32();
      break;
  }
  return in.good();
}

}  // namespace hybridstate::runtime
