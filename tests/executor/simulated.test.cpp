// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "executor/simulated.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "executor/device_error.hpp"

using namespace hybridstate::runtime;

namespace {

std::int64_t time_of(const StepLaw& law, std::int64_t scale, std::uint64_t prefill,
                     std::uint64_t decoding = 0, std::uint64_t context = 0,
                     std::uint64_t copied = 0) {
  StepPlan plan;
  plan.prefill_tokens = prefill;
  plan.decode_requests = decoding;
  plan.decode_context_tokens = context;
  plan.copied_bytes = copied;
  return SimulatedExecutor(law, scale).run(plan);
}

/// A file that lives as long as the object.
class DeviceFile {
 public:
  explicit DeviceFile(const std::string& text) {
    static int count = 0;
    auto const ticks = std::chrono::steady_clock::now().time_since_epoch().count();
    path_ = std::filesystem::temp_directory_path() /
            ("hybridstate-device-" + std::to_string(ticks) + "-" + std::to_string(++count));
    std::ofstream(path_) << text;
  }
  ~DeviceFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  DeviceFile(const DeviceFile&) = delete;
  DeviceFile& operator=(const DeviceFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// The sentence of the DeviceError for a device file of this text, its path as "FILE".
std::string complaint(const std::string& text) {
  DeviceFile const file(text);
  try {
    find_step_law(file.path());
  } catch (const DeviceError& error) {
    std::string sentence = error.what();
    auto const at = sentence.find(file.path());
    return at == std::string::npos ? sentence : sentence.replace(at, file.path().size(), "FILE");
  }
  return {};
}

}  // namespace

TEST_CASE("the fitted law of the paper's device, in integers") {
  StepLaw const law = find_step_law("a100-40gb");
  CHECK(law.name == "a100-40gb");
  CHECK(law.provenance == "fitted");
  CHECK(law.base_ps == 15'400'000'000);
  CHECK(law.prefill_token_ps == 92'000'000);
  CHECK(law.decode_request_ps == 400'000'000);
  CHECK(law.decode_context_token_ps == 0);
  CHECK(time_of(law, paged_scale, 0) == 15'400'000);
  CHECK(time_of(law, paged_scale, 2048) == 15'400'000 + 2048 * 92'000);
  CHECK(time_of(law, paged_scale, 0, 20, 1'000'000) == 15'400'000 + 20 * 400'000);
  CHECK(time_of(law, paged_scale, 100, 7) == 15'400'000 + 100 * 92'000 + 7 * 400'000);
  CHECK(time_of(law, contiguous_scale, 100, 7) == 26'852'000);
}

TEST_CASE("copied bytes cost their reads and writes at 85 % of the memory's bandwidth") {
  // 384 tokens of Falcon-H1-7B: 1,024 bytes each in each of 44 layers.
  std::uint64_t const bytes = 384 * 1024;
  for (StepLaw const& law : step_laws()) {
    StepPlan plan;
    SimulatedExecutor const executor(law, paged_scale, 44);
    std::int64_t const without = executor.run(plan);
    plan.copied_bytes = bytes;
    double const expected_ns = 44 * 2.0 * static_cast<double>(bytes) / (1555 * 0.85);
    CHECK(std::abs(static_cast<double>(executor.run(plan) - without) - expected_ns) < 10);
    CHECK(time_of(law, paged_scale, 10, 3, 50, 2048) - time_of(law, paged_scale, 10, 3, 50) == 3);
  }
  CHECK(time_of({"free", "from file", 1'000, 0, 0, 0}, 1000, 0, 0, 0, 1 << 30) == 1);
}

TEST_CASE("the long-context law agrees with the short one at 3,455 tokens of context") {
  StepLaw const law = find_step_law("a100-40gb-long");
  CHECK(law.provenance == "estimated");
  CHECK(law.decode_request_ps == 180'000'000);
  CHECK(law.decode_context_token_ps == 63'000);
  CHECK(time_of(law, paged_scale, 0, 1, 1000) == 15'400'000 + 180'000 + 63'000);
  std::int64_t const at_fit = time_of(law, paged_scale, 0, 1, 3455);
  CHECK(at_fit == 15'400'000 + 180'000 + 217'665);
  CHECK(at_fit - time_of(find_step_law("a100-40gb"), paged_scale, 0, 1, 3455) < 3'000);
}

TEST_CASE("fractions of a nanosecond are dropped once, at the end") {
  StepLaw const law{"tiny", "from file", 1'500, 999, 1, 1};
  CHECK(time_of(law, 1000, 0) == 1);
  CHECK(time_of(law, 1000, 1) == 2);  // 2,499 ps
  CHECK(time_of(law, 1000, 1, 1) == 2);
  CHECK(time_of(law, 980, 1, 1, 1) == 2);
  CHECK(time_of(law, 1000, 1000) == 1000);  // 1,000,500 ps
}

TEST_CASE("a large step does not overflow") {
  // 10^6 tokens of prefill, 10^4 decoding requests over 10^9 tokens of context.
  StepLaw const law = find_step_law("a100-40gb-long");
  CHECK(time_of(law, 1000, 1'000'000, 10'000, 1'000'000'000) ==
        15'400'000 + 92'000'000'000 + 1'800'000'000 + 63'000'000'000);
}

TEST_CASE("every preset is found by its name and takes time") {
  CHECK(step_laws().size() >= 2);
  for (StepLaw const& law : step_laws()) {
    StepLaw const found = find_step_law(law.name);
    CHECK(found.name == law.name);
    CHECK(found.base_ps == law.base_ps);
    CHECK((law.provenance == "fitted" || law.provenance == "estimated"));
    CHECK(time_of(law, paged_scale, 0) > 0);
    CHECK(time_of(law, paged_scale, 1) > time_of(law, paged_scale, 0));
    CHECK(time_of(law, paged_scale, 0, 1, 100) > time_of(law, paged_scale, 0));
  }
}

TEST_CASE("a device file holds the law's constants in the units of its names") {
  DeviceFile const file(R"({"name": "my card", "base_ms": 10, "prefill_token_us": 50.5,
      "decode_request_ms": 0.25, "decode_context_token_ns": 20, "copied_kib_ns": 1.5,
      "comment": "ignored"})");
  StepLaw const law = find_step_law(file.path());
  CHECK(law.name == "my card");
  CHECK(law.provenance == "from file");
  CHECK(law.base_ps == 10'000'000'000);
  CHECK(law.prefill_token_ps == 50'500'000);
  CHECK(law.decode_request_ps == 250'000'000);
  CHECK(law.decode_context_token_ps == 20'000);
  CHECK(law.copied_kib_ps == 1'500);

  DeviceFile const least(R"({"base_ms": 1, "prefill_token_us": 0, "decode_request_ms": 0})");
  StepLaw const plain = find_step_law(least.path());
  CHECK(plain.name == least.path());
  CHECK(plain.decode_context_token_ps == 0);
  CHECK(plain.copied_kib_ps == 0);
  CHECK(time_of(plain, paged_scale, 5, 5, 5) == 1'000'000);
}

TEST_CASE("bad device files are refused with the file and the field") {
  CHECK(complaint("") == "FILE: not a JSON object with the constants of a step law");
  CHECK(complaint("[1, 2]") == "FILE: not a JSON object with the constants of a step law");
  CHECK(complaint("{\"base_ms\": 1,") ==
        "FILE: not a JSON object with the constants of a step law");
  CHECK(
      complaint(R"({"base_ms": 1, "decode_request_ms": 1})") ==
      "FILE: field \"prefill_token_us\" is missing; a step law needs base_ms, prefill_token_us and "
      "decode_request_ms");
  CHECK(complaint(R"({"base_ms": 1, "prefill_token_us": 1})").find("decode_request_ms") !=
        std::string::npos);
  CHECK(complaint(R"({"base_ms": "15", "prefill_token_us": 1, "decode_request_ms": 1})") ==
        "FILE: field \"base_ms\" must be a number between 0 and 1e6");
  CHECK(complaint(R"({"base_ms": 1, "prefill_token_us": -1, "decode_request_ms": 1})") ==
        "FILE: field \"prefill_token_us\" must be a number between 0 and 1e6");
  CHECK(complaint(R"({"base_ms": 1, "prefill_token_us": 1, "decode_request_ms": 1e7})") ==
        "FILE: field \"decode_request_ms\" must be a number between 0 and 1e6");
  CHECK(complaint(R"({"base_ms": 1, "prefill_token_us": 1, "decode_request_ms": 1,
                      "decode_context_token_ns": null})") ==
        "FILE: field \"decode_context_token_ns\" must be a number between 0 and 1e6");
  CHECK(complaint(R"({"base_ms": 0, "prefill_token_us": 0, "decode_request_ms": 1})") ==
        "FILE: base_ms and prefill_token_us are both 0, so time would stand still");
}

TEST_CASE("a name that is neither a preset nor a file is refused") {
  CHECK_THROWS_WITH_AS(find_step_law("b200"),
                       "device \"b200\" is neither a preset (a100-40gb, a100-40gb-long) nor a "
                       "readable file",
                       DeviceError);
  CHECK_THROWS_AS(find_step_law(""), DeviceError);
  // A folder opens on some systems and reads as nothing.
  CHECK_THROWS_AS(find_step_law(std::filesystem::temp_directory_path().string()), DeviceError);
}

TEST_CASE("a roofline proposes constants and says that they are estimated") {
  // 7.6 billion parameters of two bytes, 1.555 TB/s, 312 TFLOP/s.
  Roofline roofline;
  roofline.parameters = 7.6e9;
  roofline.weight_bytes = 15.2e9;
  roofline.kv_bytes_per_token = 45'056;
  roofline.state_bytes = 70e6;
  roofline.bytes_per_second = 1.555e12;
  roofline.flops_per_second = 312e12;
  StepLaw const law = estimate_step_law("a100", roofline);
  CHECK(law.name == "a100");
  CHECK(law.provenance == "estimated");
  CHECK(law.base_ps == 9'774'919'614);           // 15.2e9 / 1.555e12 s
  CHECK(law.prefill_token_ps == 48'717'949);     // 2 * 7.6e9 / 312e12 s
  CHECK(law.decode_request_ps == 90'032'154);    // 2 * 70e6 / 1.555e12 s
  CHECK(law.decode_context_token_ps == 28'975);  // 45,056 / 1.555e12 s
  CHECK(law.copied_kib_ps == 1'317);             // 2 * 1,024 / 1.555e12 s
  // A faster memory helps the parts that read memory, a faster processor the other.
  roofline.bytes_per_second *= 2;
  StepLaw const fast_memory = estimate_step_law("b", roofline);
  CHECK(fast_memory.base_ps == law.base_ps / 2);
  CHECK(fast_memory.prefill_token_ps == law.prefill_token_ps);
}
