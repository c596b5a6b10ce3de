// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// The background writer: bounded, never waiting, and honest about what is not in the file.

#include <filesystem>
#include <thread>

#include "math/deterministic.hpp"
#include "report/file.hpp"
#include "trace/support.hpp"
#include "workload/support.hpp"

using namespace trace_test;

TEST_CASE("the ring keeps messages whole and in order, or refuses them") {
  ByteRing ring(64);
  CHECK(ring.capacity() == 64);
  std::vector<std::uint8_t> const small(10, 1);
  CHECK(ring.push(1, small));
  CHECK(ring.push(2, small));
  CHECK_FALSE(ring.push(3, small));  // 3 * 22 bytes
  CHECK_FALSE(ring.push(3, std::vector<std::uint8_t>(60, 1)));
  std::uint64_t tag = 0;
  std::vector<std::uint8_t> out;
  CHECK(ring.pop(tag, out));
  CHECK(tag == 1);
  CHECK(out == small);
  CHECK(ring.push(4, {}));
  CHECK(ring.pop(tag, out));
  CHECK(tag == 2);
  CHECK(ring.pop(tag, out));
  CHECK(tag == 4);
  CHECK_FALSE(ring.pop(tag, out));
  // Lengths that wrap around at every place.
  BitGenerator bits(3);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::vector<std::uint8_t> message(bits.below(52));
    for (auto& b : message) b = static_cast<std::uint8_t>(bits.next());
    REQUIRE(ring.push(i, message));
    out.clear();
    REQUIRE(ring.pop(tag, out));
    REQUIRE(tag == i);
    REQUIRE(out == message);
  }
}

TEST_CASE("one thread pushes while another pops") {
  ByteRing ring(1024);
  constexpr std::uint64_t count = 40'000;
  std::uint64_t refused = 0;
  std::thread producer([&] {
    std::vector<std::uint8_t> message;
    for (std::uint64_t i = 0; i < count; ++i) {
      message.assign(i % 97, static_cast<std::uint8_t>(i));
      while (!ring.push(i, message)) {
        ++refused;
        std::this_thread::yield();
      }
    }
  });
  bool right = true;
  std::uint64_t tag = 0;
  std::vector<std::uint8_t> out;
  for (std::uint64_t i = 0; i < count;) {
    out.clear();
    if (!ring.pop(tag, out)) {
      std::this_thread::yield();
      continue;
    }
    right =
        right && tag == i && out == std::vector<std::uint8_t>(i % 97, static_cast<std::uint8_t>(i));
    ++i;
  }
  producer.join();
  CHECK(right);
}

TEST_CASE("what a full ring drops is counted and leaves a gap") {
  std::vector<std::uint8_t> bytes;
  TraceWriterOptions options;
  options.ring_bytes = 256;
  options.hold = true;
  TraceWriter writer(std::make_unique<MemorySink>(bytes), header(), "tiny", options);
  std::uint64_t kept = 0;
  for (Step s = 1; s <= 100; ++s) kept += writer.record(step(s)) ? 1U : 0U;
  CHECK(kept > 0);
  CHECK(kept < 20);
  CHECK(writer.dropped() == 100 - kept);
  TraceEnd const end = writer.close();
  CHECK(end.records == kept);
  CHECK(end.dropped == 100 - kept);
  CHECK(end.write_errors == 0);
  CHECK(writer.problem().find("records were dropped because the ring was full") !=
        std::string::npos);
  TraceCheck const check = read_trace(bytes, "tiny");
  CHECK(check.records == kept);
  CHECK(check.gaps == 100 - kept);
  CHECK(check.problem ==
        std::to_string(100 - kept) + " records were dropped because the writer's ring was full");
}

TEST_CASE("drops in the middle keep the numbers of what follows") {
  std::vector<std::uint8_t> bytes;
  TraceWriterOptions options;
  options.ring_bytes = 256;
  TraceWriter writer(std::make_unique<MemorySink>(bytes), header(), "tiny", options);
  TraceRecord large;
  large.kind = RecordKind::enter;
  large.chain.resize(100);
  CHECK(writer.record(step(1)));
  CHECK_FALSE(writer.record(large));  // never fits this ring
  CHECK_FALSE(writer.record(large));
  CHECK(writer.record(step(2)));
  writer.close();
  std::vector<std::uint64_t> numbers;
  TraceCheck const check =
      read_trace(bytes, "tiny", [&](const TraceRecord& r) { numbers.push_back(r.sequence); });
  CHECK(numbers == std::vector<std::uint64_t>{0, 3});
  CHECK(check.gaps == 2);
  CHECK(check.problem == "2 records were dropped because the writer's ring was full");
}

TEST_CASE("without close() there is no end record") {
  std::vector<std::uint8_t> bytes;
  {
    TraceWriter writer(std::make_unique<MemorySink>(bytes), header(), "crashed");
    for (Step s = 1; s <= 50; ++s) writer.record(step(s));
  }
  TraceCheck const check = read_trace(bytes, "crashed");
  CHECK(check.records == 50);
  CHECK(check.problem ==
        "the file ends after sequence number 49 without an end record: its tail is missing");
}

TEST_CASE("a write that fails for a while loses its frames, and says how many records") {
  std::vector<std::uint8_t> bytes;
  TraceWriterOptions options;
  options.frame_bytes = 64;
  options.hold = true;
  MemorySink::Faults faults;
  faults.fail_from = 3;  // write 0 is the header
  faults.fail_until = 5;
  TraceWriter writer(std::make_unique<MemorySink>(bytes, faults), header(), "flaky", options);
  for (Step s = 1; s <= 200; ++s) writer.record(step(s));
  TraceEnd const end = writer.close();
  CHECK(end.write_errors == 2);
  CHECK(end.lost > 0);
  CHECK(end.records + end.lost == 200);
  CHECK(writer.problem().find("2 writes failed (Input/output error)") != std::string::npos);
  TraceCheck const check = read_trace(bytes, "flaky");
  CHECK(check.records == end.records);
  CHECK(check.gaps == end.lost);
  CHECK(check.end.value_or(TraceEnd{}).write_errors == 2);
  CHECK(check.problem == "2 writes failed and " + std::to_string(end.lost) + " records are lost");
}

TEST_CASE("a full device ends the file where it was good, or where it broke") {
  for (bool const can_cut : {true, false}) {
    CAPTURE(can_cut);
    std::vector<std::uint8_t> bytes;
    TraceWriterOptions options;
    options.frame_bytes = 64;
    options.hold = true;
    MemorySink::Faults faults;
    faults.full_at = 500;
    faults.can_cut = can_cut;
    TraceWriter writer(std::make_unique<MemorySink>(bytes, faults), header(), "full", options);
    for (Step s = 1; s <= 200; ++s) writer.record(step(s));
    TraceEnd const end = writer.close();
    CHECK(end.write_errors > 0);
    CHECK(end.records + end.lost == 200);
    CHECK(writer.problem().find("No space left on device") != std::string::npos);
    TraceCheck const check = read_trace(bytes, "full");
    CHECK(check.records == end.records);
    CHECK_FALSE(check.complete());
  }
}

TEST_CASE("/dev/full and folders are refused before the run") {
  if (std::filesystem::exists("/dev/full"))
    CHECK_THROWS_WITH_AS(TraceWriter(open_trace_file("/dev/full"), header(), "/dev/full"),
                         "Cannot write the trace \"/dev/full\": No space left on device.",
                         ReportError);
  CHECK_THROWS_AS(static_cast<void>(open_trace_file("/nonexistent/t")), ReportError);
  CHECK_THROWS_AS(static_cast<void>(open_trace_file("/")), ReportError);
}

TEST_CASE("a file on disk, larger than a frame") {
  workload_test::TemporaryFolder const folder;
  std::string const path = folder.path() + "/t.trace";
  TraceWriter writer(open_trace_file(path), header(), path);
  for (Step s = 1; s <= 100'000; ++s) REQUIRE(writer.record(step(s, static_cast<std::int64_t>(s))));
  CHECK(writer.close().records == 100'000);
  CHECK(writer.problem() == "");
  TraceCheck const check = read_trace(load_trace(path), path);
  CHECK(check.complete());
  CHECK(check.frames > 2);
  CHECK(check.next_sequence == 100'000);
}
