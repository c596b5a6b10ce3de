// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// What the shells on a CPU show of a kernel that is wrong.

#include <doctest/doctest.h>

#include <algorithm>
#include <hybridstate/kernels/shell/recorder.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

using namespace hybridstate;
using namespace hybridstate::kernels;

namespace {

/// Adds neighbours through shared memory, with or without the barrier that this needs.
struct Neighbours {
  static constexpr unsigned threads = 64;
  const float* from = nullptr;
  float* to = nullptr;
  bool barrier = true;
  bool part = false;  ///< only half of the threads reach the barrier

  Grid grid() const { return {2, 1, 1}; }
  template <cta_thread T>
  void operator()(T& t) const {
    struct Shared {
      float values[threads];
    };
    auto& shared = t.template shared<Shared>();
    unsigned const i = t.block_x() * threads + t.thread();
    shared.values[t.thread()] = t.template load<float>(from + i);
    if (barrier && !(part && t.thread() >= 32)) t.sync();
    t.store(to + i, shared.values[t.thread()] + shared.values[threads - 1 - t.thread()]);
  }
};

/// All CTAs write the same float.
struct Same : Neighbours {
  template <cta_thread T>
  void operator()(T& t) const {
    t.store(to, t.template load<float>(from + t.thread()));
  }
};

/// Asks for shared memory as two types: on a GPU two places, here one.
struct TwoTypes : Neighbours {
  template <cta_thread T>
  void operator()(T& t) const {
    t.template shared<float>() = 1;
    t.store(to, static_cast<float>(t.template shared<int>()));
  }
};

}  // namespace

TEST_CASE("the interpreter shows a missing barrier, and one that not all threads reach") {
  std::vector<float> in(128), want(128), out(128);
  std::iota(in.begin(), in.end(), 0.0F);
  for (std::size_t i = 0; i < 128; ++i) want[i] = in[i] + in[i / 64 * 64 + 63 - i % 64];
  for (ThreadOrder order : {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    Interpreter(order).run(Neighbours{in.data(), out.data()});
    CHECK(out == want);
    Interpreter(order).run(Neighbours{in.data(), out.data(), false});
    CHECK(out != want);
    CHECK_THROWS_AS(Interpreter(order).run(Neighbours{in.data(), out.data(), true, true}),
                    std::logic_error);
  }
  CHECK_THROWS_AS(Interpreter().run(TwoTypes{{in.data(), out.data()}}), std::logic_error);
}

TEST_CASE("the recorder names accesses outside, CTAs that share a byte, and split lines") {
  std::vector<float> in(128), out(128);
  auto const names = [](const Recording& r, const char* what) {
    return std::any_of(r.violations.begin(), r.violations.end(),
                       [&](const std::string& v) { return v.find(what) != std::string::npos; });
  };
  Region const from{"in", in.data(), 512, 512};
  Region const to{"out", out.data(), 512, -1, 512};
  Neighbours const good{in.data(), out.data()};
  CHECK(record(good, {from, to}).violations.empty());
  CHECK(record(good, {from, to}).traffic.at("in").requested_bytes >= 512);
  CHECK(names(record(good, {from}), "outside all regions"));
  CHECK(names(record(good, {{"in", in.data(), 512, 500}, to}), "512 bytes are read, not 500"));
  Same const same{good};
  CHECK(names(record(same, {from, to}), "CTAs 0 and 1 write byte 0"));
  CHECK(names(record(same, {from, to}), "more than once"));
  Region lines = to;
  lines.whole_lines = true;
  CHECK(names(record(same, {from, lines}), "of the 128 bytes of a line"));
}
