// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// Instructions per block of lookup, admit and release, for bench/instructions.sh: serves cached
// prompts of 64 blocks from a pool of UNITS units inside counted_requests(), the one function that
// is counted, and prints the number of blocks.
//
//   callgrind_cache UNITS [paper|path-safe] [REQUESTS]

#include <string_view>

#include "cache_fixture.hpp"

namespace hybridstate::bench {

template <class Cache>
[[gnu::noinline]] std::uint64_t counted_requests(Cache& cache, const Prompts& prompts,
                                                 std::uint32_t requests) {
  std::uint64_t sum = 0;
  std::uint32_t i = 0;
  for (std::uint32_t r = 0; r < requests; ++r) {
    sum += cached_request(cache, prompts[i], i);
    i = (i + 7919) % prompts.count();
  }
  return sum;
}

template <class Order>
int count(std::uint32_t units, std::uint32_t requests) {
  Prompts const prompts = sweep_prompts(units);
  auto cache = sweep_cache<Order>(units);
  fill(cache, prompts);
  std::uint64_t const sum = counted_requests(cache, prompts, requests);
  Tokens const joint = joint_of(cache, prompts);
  std::uint64_t const expected = std::uint64_t{requests} * (joint + joint / sweep_block);
  require(sum == expected, "checksum", sum, expected);
  std::printf("%llu\n", static_cast<unsigned long long>(requests) * prompts.blocks());
  return 0;
}

}  // namespace hybridstate::bench

int main(int argc, char** argv) {
  using namespace hybridstate;
  long const units = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 1000;
  long const requests = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 200;
  if (units < 130 || units > 10000000 || requests < 1 || requests > 1000000) {
    std::fprintf(stderr, "callgrind_cache: UNITS is 130 to 10000000, REQUESTS 1 to 1000000\n");
    return 2;
  }
  auto const u = static_cast<std::uint32_t>(units);
  auto const r = static_cast<std::uint32_t>(requests);
  if (argc > 2 && std::string_view(argv[2]) == "path-safe") return bench::count<PathSafeLru>(u, r);
  return bench::count<PaperOrder>(u, r);
}
