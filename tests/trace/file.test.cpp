// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The bytes of a trace: what is written comes back, and nothing that is missing or damaged passes.

#include "support.hpp"

using namespace trace_test;

namespace {

std::vector<TraceRecord> read_all(std::span<const std::uint8_t> bytes, TraceCheck& check) {
  std::vector<TraceRecord> records;
  check = read_trace(bytes, "t", [&](const TraceRecord& r) { records.push_back(r); });
  return records;
}

std::vector<TraceRecord> several(int rounds) {
  std::vector<TraceRecord> all;
  for (int i = 0; i < rounds; ++i) {
    auto const more = one_of_each();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

TEST_CASE("CRC-32 of its check word") {
  std::string const text = "123456789";
  std::vector<std::uint8_t> const bytes(text.begin(), text.end());
  CHECK(crc32(bytes) == 0xcbf43926U);
  std::span const all(bytes);
  CHECK(crc32(all.subspan(4), crc32(all.first(4))) == 0xcbf43926U);
}

TEST_CASE("every field of every kind comes back, numbered in order") {
  auto const records = several(3);
  TraceCheck check;
  auto const back = read_all(written(records), check);
  CHECK(check.problem == "");
  CHECK(check.complete());
  CHECK(check.header.block_tokens == 512);
  CHECK(check.header.organization == "S2");
  CHECK(check.header.policy == "paper");
  CHECK(check.header.note == "by hand");
  REQUIRE(back.size() == records.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    CAPTURE(i);
    CHECK(same(back[i], records[i]));
    CHECK(back[i].sequence == i);
    CHECK(back[i].step == (i == 0 ? 0 : 1ULL << 40));
  }
  CHECK(check.records == records.size());
  CHECK(check.of_kind[static_cast<int>(RecordKind::publish)] == 6);
  TraceEnd const end = check.end.value_or(TraceEnd{});
  CHECK(end.records == records.size());
  CHECK(end.dropped == 0);
}

TEST_CASE("a trace without records is complete") {
  TraceCheck check;
  CHECK(read_all(written({}), check).empty());
  CHECK(check.problem == "");
}

TEST_CASE("truncated at every byte") {
  auto const records = several(4);
  TraceWriterOptions options;
  options.frame_bytes = 300;
  auto const bytes = written(records, options);
  TraceCheck whole;
  static_cast<void>(read_all(bytes, whole));
  REQUIRE(whole.complete());
  REQUIRE(whole.frames > 5);
  std::size_t longest = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of its own, so that a read past its end is seen.
    std::vector<std::uint8_t> const part(bytes.begin(),
                                         bytes.begin() + static_cast<std::ptrdiff_t>(size));
    TraceCheck check;
    auto const back = read_all(part, check);
    CAPTURE(size);
    CHECK_FALSE(check.complete());
    bool const names_it = check.problem.find("tail is missing") != std::string::npos ||
                          check.problem.find("inside its header") != std::string::npos ||
                          check.problem == "the file is empty";
    CHECK(names_it);
    CHECK_FALSE(check.end.has_value());
    // Whole frames are still good, and only those.
    CHECK(back.size() >= longest);
    longest = back.size();
    bool prefix = back.size() <= records.size();
    for (std::size_t i = 0; prefix && i < back.size(); ++i) prefix = same(back[i], records[i]);
    CHECK(prefix);
  }
  CHECK(longest == records.size());  // only the end record was missing
}

TEST_CASE("damaged at every byte") {
  TraceWriterOptions options;
  options.frame_bytes = 300;
  auto const bytes = written(several(4), options);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] ^= 0x10U;
    CAPTURE(at);
    bool noticed = false;
    try {
      TraceCheck check;
      static_cast<void>(read_all(damaged, check));
      noticed = !check.complete();
    } catch (const TraceError&) {
      noticed = at < 12;  // the magic or the version
    }
    CHECK(noticed);
  }
}

TEST_CASE("bytes after the end, a frame that is missing, and another version") {
  TraceWriterOptions options;
  options.frame_bytes = 300;
  auto const records = several(4);
  auto bytes = written(records, options);
  auto longer = bytes;
  longer.push_back(0);
  CHECK(read_trace(longer, "t").problem == "1 bytes follow the end record");

  // The second frame removed: its check sums are right, its numbers are not.
  std::vector<std::size_t> frames;
  for (std::size_t i = 0; i + 4 <= bytes.size(); ++i)
    if (bytes[i] == 'H' && bytes[i + 1] == 'S' && bytes[i + 2] == 'F' && bytes[i + 3] == 'R')
      frames.push_back(i);
  REQUIRE(frames.size() > 4);
  auto without = bytes;
  without.erase(without.begin() + static_cast<std::ptrdiff_t>(frames[1]),
                without.begin() + static_cast<std::ptrdiff_t>(frames[2]));
  TraceCheck const check = read_trace(without, "t");
  CHECK(check.gaps > 0);
  CHECK(check.problem.find("the end record counts") == 0);

  bytes[8] = 2;
  CHECK_THROWS_WITH_AS(static_cast<void>(read_trace(bytes, "t")),
                       "\"t\" is a trace of version 2; this program reads version 1.", TraceError);
  std::string const other = "{\"schema\": 1}";
  CHECK_THROWS_WITH_AS(static_cast<void>(read_trace(
                           std::vector<std::uint8_t>(other.begin(), other.end()), "x.json")),
                       "\"x.json\" is no state-history trace: it does not begin with \"HSTRACE\".",
                       TraceError);
}

TEST_CASE("files that cannot be read") {
  CHECK_THROWS_WITH_AS(static_cast<void>(load_trace("/nonexistent/t")),
                       "Cannot read the trace \"/nonexistent/t\": there is no such file.",
                       TraceError);
  CHECK_THROWS_AS(static_cast<void>(load_trace("/")), TraceError);
}
