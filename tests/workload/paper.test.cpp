// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "workload/paper.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "math/deterministic.hpp"
#include "support.hpp"

using namespace hybridstate::runtime;
using hybridstate::Tokens;
using workload_test::fingerprint;
using workload_test::sentence_of;

namespace {

double mean_prompt(const Workload& w) {
  double sum = 0;
  for (const Request& r : w.requests) sum += r.prompt_tokens;
  return sum / static_cast<double>(w.requests.size());
}

double mean_output(const Workload& w) {
  double sum = 0;
  for (const Request& r : w.requests) sum += r.output_tokens;
  return sum / static_cast<double>(w.requests.size());
}

/// Streams of first runs that more than one request has.
std::map<std::uint64_t, int> shared_contexts(const Workload& w) {
  std::map<std::uint64_t, int> count;
  for (const Request& r : w.requests) ++count[r.content.at(0).stream];
  std::erase_if(count, [](const auto& entry) { return entry.second == 1; });
  return count;
}

}  // namespace

TEST_CASE("the paper workload is the same on every machine") {
  PaperWorkloadOptions options;
  Workload const w = make_paper_workload(options);
  REQUIRE(w.requests.size() == 300);
  CHECK(w.requests[0].arrival_ns == 54490331);
  CHECK(w.requests[0].prompt_tokens == 3243);
  CHECK(w.requests[0].output_tokens == 27);
  CHECK(w.requests[0].content[0].stream == 5231143353947626386ULL);
  CHECK(w.requests[1].arrival_ns == 430189789);
  CHECK(w.requests[1].prompt_tokens == 3089);
  CHECK(w.requests[1].output_tokens == 352);
  CHECK(fingerprint(w) == 0xbb5b5e8d89ede909ULL);
  options.arrivals = ArrivalProcess::gamma;
  options.burstiness = 0.5;
  options.share = 0.5;
  options.variance_reduction = true;
  options.salts = Salting::isolated;
  apply(LengthPreset::extension, options);
  CHECK(fingerprint(make_paper_workload(options)) == 0xd4201232a89e30deULL);
}

TEST_CASE("equal seeds give equal workloads, different seeds different ones") {
  PaperWorkloadOptions options;
  std::set<std::uint64_t> seen;
  for (options.seed = 42000; options.seed < 42024; ++options.seed) {
    std::uint64_t const once = fingerprint(make_paper_workload(options));
    CHECK(once == fingerprint(make_paper_workload(options)));
    seen.insert(once);
  }
  CHECK(seen.size() == 24);
}

TEST_CASE("a request is well formed") {
  PaperWorkloadOptions options;
  options.requests = 2000;
  options.share = 0.5;
  Workload const w = make_paper_workload(options);
  CHECK(w.name == "paper");
  std::int64_t before = 0;
  std::set<std::uint64_t> privates;
  for (const Request& r : w.requests) {
    CHECK(r.arrival_ns >= before);
    before = r.arrival_ns;
    REQUIRE(r.content.size() == 2);
    CHECK(r.content[0].tokens == 3072);
    CHECK(r.content[0].tokens + r.content[1].tokens == r.prompt_tokens);
    CHECK(r.content[1].tokens >= 4);
    CHECK(r.content[1].tokens <= 4000);
    CHECK(r.output_tokens >= 4);
    CHECK(r.output_tokens <= 1024);
    CHECK(r.salt == 0);
    CHECK(r.tokens.empty());
    privates.insert(r.content[1].stream);
    CHECK(privates.count(r.content[0].stream) == 0);
  }
  CHECK(privates.size() == 2000);
}

TEST_CASE("population means of every length preset") {
  struct Expected {
    LengthPreset preset;
    double input, output;
  };
  for (Expected const e :
       {Expected{LengthPreset::original, 3332, 243}, Expected{LengthPreset::extension, 3365, 261.5},
        Expected{LengthPreset::admission, 3357, 255}}) {
    PaperWorkloadOptions options;
    apply(e.preset, options);
    options.requests = 200'000;
    Workload const w = make_paper_workload(options);
    // Five standard errors; the standard deviations are about 500 and 180.
    CHECK(std::fabs(mean_prompt(w) - e.input) < 5.6);
    CHECK(std::fabs(mean_output(w) - e.output) < 2.0);
  }
  CHECK(parse_length_preset("extension") == LengthPreset::extension);
  CHECK(sentence_of([] { parse_length_preset("long"); }).find("\"long\"") != std::string::npos);
}

TEST_CASE("variance reduction makes each seed's means exact") {
  PaperWorkloadOptions options;
  options.variance_reduction = true;
  for (options.seed = 0; options.seed < 20; ++options.seed) {
    apply(LengthPreset::extension, options);
    Workload const w = make_paper_workload(options);
    CHECK(mean_prompt(w) == doctest::Approx(3365).epsilon(1e-12));
    CHECK(mean_output(w) == doctest::Approx(261.5).epsilon(1e-12));
    for (const Request& r : w.requests) {
      CHECK(r.content[1].tokens >= 4);
      CHECK(r.content[1].tokens <= 4000);
    }
  }
}

TEST_CASE("paired designs: rate, share and length of the run leave the rest as it was") {
  PaperWorkloadOptions options;
  Workload const base = make_paper_workload(options);
  PaperWorkloadOptions changed = options;
  changed.rate = 0.8;
  changed.share = 0.25;
  changed.requests = 500;
  changed.salts = Salting::isolated;
  Workload const other = make_paper_workload(changed);
  std::set<std::uint64_t> shared;
  for (auto const& [stream, n] : shared_contexts(base)) shared.insert(stream);
  for (std::size_t i = 0; i < base.requests.size(); ++i) {
    const Request& a = base.requests[i];
    const Request& b = other.requests[i];
    CHECK(a.prompt_tokens == b.prompt_tokens);
    CHECK(a.output_tokens == b.output_tokens);
    CHECK(a.content[1].stream == b.content[1].stream);
    CHECK(std::fabs(static_cast<double>(a.arrival_ns) * (3 / 0.8) -
                    static_cast<double>(b.arrival_ns)) < 10);
    // A request that still shares has the same context as before.
    if (shared.count(b.content[0].stream) != 0) CHECK(a.content[0].stream == b.content[0].stream);
    CHECK(b.salt == i + 1);
  }
}

TEST_CASE("shares of 0, one half and 1") {
  PaperWorkloadOptions options;
  options.requests = 4000;
  options.share = 0;
  CHECK(shared_contexts(make_paper_workload(options)).empty());
  options.share = 1;
  auto const all = shared_contexts(make_paper_workload(options));
  CHECK(all.size() == 8);
  int total = 0;
  for (auto const& [stream, n] : all) total += n;
  CHECK(total == 4000);
  options.share = 0.5;
  auto const half = shared_contexts(make_paper_workload(options));
  CHECK(half.size() == 8);
  total = 0;
  for (auto const& [stream, n] : half) {
    total += n;
    CHECK(all.count(stream) == 1);
  }
  CHECK(std::abs(total - 2000) < 160);
}

TEST_CASE("contexts follow Zipf's law and repeats come on top") {
  PaperWorkloadOptions options;
  options.requests = 100'000;
  Workload const w = make_paper_workload(options);
  std::vector<int> counts;
  for (auto const& [stream, n] : shared_contexts(w)) counts.push_back(n);
  std::sort(counts.rbegin(), counts.rend());
  REQUIRE(counts.size() == 8);
  ZipfTable const table(8, 1.1);
  double chance = 0;  // that two independent draws agree
  for (std::uint32_t k = 0; k < 8; ++k) {
    double const p = table.probability(k);
    chance += p * p;
    CHECK(std::fabs(counts[k] / 1e5 - p) < 0.01);
  }
  int repeats = 0;
  for (std::size_t i = 1; i < w.requests.size(); ++i)
    repeats += w.requests[i].content[0].stream == w.requests[i - 1].content[0].stream ? 1 : 0;
  CHECK(std::fabs(repeats / 1e5 - (0.05 + 0.95 * chance)) < 0.008);
}

TEST_CASE("every arrival process keeps the mean rate") {
  PaperWorkloadOptions options;
  options.requests = 60'000;
  options.rate = 3;
  for (ArrivalProcess const p :
       {ArrivalProcess::poisson, ArrivalProcess::gamma, ArrivalProcess::on_off}) {
    options.arrivals = p;
    options.burstiness = 0.5;
    Workload const w = make_paper_workload(options);
    double const seconds = static_cast<double>(w.requests.back().arrival_ns) * 1e-9;
    CHECK(std::fabs(60'000 / seconds / 3 - 1) < 0.03);
  }
}

TEST_CASE("bursts are silent in their pauses") {
  PaperWorkloadOptions options;
  options.requests = 3000;
  options.arrivals = ArrivalProcess::on_off;
  for (const Request& r : make_paper_workload(options).requests) {
    double const seconds = static_cast<double>(r.arrival_ns) * 1e-9;
    CHECK(std::fmod(seconds, 20) <= 5.0 + 1e-9);
  }
  options.off_seconds = 0;
  Workload const continuous = make_paper_workload(options);
  options.arrivals = ArrivalProcess::poisson;
  Workload const poisson = make_paper_workload(options);
  for (std::size_t i = 0; i < 3000; ++i)
    CHECK(std::abs(continuous.requests[i].arrival_ns - poisson.requests[i].arrival_ns) <= 1);
}

TEST_CASE("gamma gaps have the coefficient of variation of their shape") {
  PaperWorkloadOptions options;
  options.requests = 60'000;
  options.arrivals = ArrivalProcess::gamma;
  for (double const shape : {0.25, 1.0, 4.0}) {
    options.burstiness = shape;
    Workload const w = make_paper_workload(options);
    double sum = 0, squares = 0;
    for (std::size_t i = 1; i < w.requests.size(); ++i) {
      double const gap =
          static_cast<double>(w.requests[i].arrival_ns - w.requests[i - 1].arrival_ns) * 1e-9;
      sum += gap;
      squares += gap * gap;
    }
    double const n = static_cast<double>(w.requests.size() - 1);
    double const cv = std::sqrt(squares / n - sum / n * (sum / n)) / (sum / n);
    CHECK(cv == doctest::Approx(1 / std::sqrt(shape)).epsilon(0.04));
  }
}

TEST_CASE("all at once and given times") {
  PaperWorkloadOptions options;
  options.requests = 3;
  options.arrivals = ArrivalProcess::all_at_once;
  options.rate = 0;  // plays no part
  for (const Request& r : make_paper_workload(options).requests) CHECK(r.arrival_ns == 0);
  options.arrivals = ArrivalProcess::fixed;
  options.arrival_seconds = {0, 0.5, 2};
  Workload const w = make_paper_workload(options);
  CHECK(w.requests[1].arrival_ns == 500'000'000);
  CHECK(w.requests[2].arrival_ns == 2'000'000'000);
}

TEST_CASE("bad parameters are named") {
  auto const complaint = [](auto change) {
    PaperWorkloadOptions options;
    change(options);
    return sentence_of([&] { make_paper_workload(options); });
  };
  using O = PaperWorkloadOptions;
  double const nan = std::numeric_limits<double>::quiet_NaN();
  auto const has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(complaint([](O& o) { o.requests = 0; }), "requests is 0"));
  CHECK(has(complaint([](O& o) { o.rate = 0; }), "request rate is 0"));
  CHECK(has(complaint([](O& o) { o.rate = -3; }), "request rate is -3"));
  CHECK(has(complaint([&](O& o) { o.rate = nan; }), "request rate"));
  CHECK(has(complaint([](O& o) { o.rate = 1e-300; }), "clock's range"));
  CHECK(has(complaint([](O& o) { o.share = 1.5; }), "1.5"));
  CHECK(has(complaint([&](O& o) { o.share = nan; }), "[0, 1]"));
  CHECK(has(complaint([](O& o) { o.repeat_probability = -0.1; }), "repeat"));
  CHECK(has(complaint([](O& o) { o.contexts = 0; }), "contexts is 0"));
  CHECK(has(complaint([](O& o) { o.private_mean = 4; }), "strictly between"));
  CHECK(has(complaint([](O& o) { o.private_mean = 4000; }), "strictly between"));
  CHECK(has(complaint([](O& o) { o.output_min = 0; }), "output lengths"));
  CHECK(has(complaint([](O& o) { o.output_max = 2; }), "output lengths"));
  CHECK(has(complaint([](O& o) { o.output_shape = 0; }), "shape"));
  CHECK(has(complaint([](O& o) { o.private_truncation = 0; }), "truncation"));
  CHECK(has(complaint([](O& o) { o.private_sigma = 1e6; }), "sigma"));
  CHECK(has(complaint([](O& o) { o.context_tokens = 1U << 31; }), "too long"));
  CHECK(has(complaint([](O& o) {
              o.arrivals = ArrivalProcess::gamma;
              o.burstiness = 0;
            }),
            "burstiness"));
  CHECK(has(complaint([](O& o) {
              o.arrivals = ArrivalProcess::on_off;
              o.off_seconds = -1;
            }),
            "pause"));
  CHECK(has(complaint([](O& o) { o.arrivals = ArrivalProcess::fixed; }), "0 arrival times"));
  CHECK(has(complaint([](O& o) {
              o.arrivals = ArrivalProcess::fixed;
              o.requests = 2;
              o.arrival_seconds = {3, 2};
            }),
            "2 s follows 3 s"));
}

TEST_CASE("the description names every parameter") {
  PaperWorkloadOptions options;
  CHECK(describe(options) ==
        "300 requests, poisson 3/s, share 1, 8 contexts of 3072 tokens (zipf 1.1, "
        "repeat 0.05), private mean 260 (sigma 1.7, |z| <= 2.3, 4..4000), output mean 243 (gamma "
        "1.9, 4..1024), seed 42000");
  options.arrivals = parse_arrival_process("on-off");
  options.salts = Salting::isolated;
  std::string const text = describe(options, false);
  CHECK(text.find("bursts 3/s (5 s on, 15 s off)") != std::string::npos);
  CHECK(text.find("isolated salts") != std::string::npos);
  CHECK(text.find("seed") == std::string::npos);
  CHECK(sentence_of([] { parse_arrival_process("weekly"); }).find("on-off") != std::string::npos);
}
