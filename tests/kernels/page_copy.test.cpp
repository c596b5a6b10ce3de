// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/page_copy_case.hpp"

#include <doctest/doctest.h>

#include "kernels/recording.hpp"

using namespace page_copy_test;

TEST_CASE("copies of any size between any addresses") {
  check_lists(every_order);
  CHECK(PageCopy<CopyList>{{nullptr, 0, 100}}.grid().ctas() == 0);
}

TEST_CASE("pages are gathered, scattered and moved between pools of other strides") {
  check_pages(every_order);
}

TEST_CASE("odd ends are read and written once too") {
  constexpr std::int64_t bytes = 70'001;
  Memory source(2 * bytes), destination(2 * bytes);
  for (std::int64_t const skip : {53, 57, 60}) {  // equal modulo 16, modulo 4, neither
    CopyItem const item{source.data() + skip, destination.data() + 37, bytes};
    auto const recording = record(PageCopy<CopyList>{{&item, 1, bytes}},
                                  {{"source", item.source, bytes, bytes, 0},
                                   {"destination", item.destination, bytes, 0, bytes},
                                   {"item", &item, sizeof item, -1, 0}});
    for (std::string const& violation : recording.violations) FAIL_CHECK(violation);
  }
}

TEST_CASE("Falcon-H1-7B pages and composites move with the least traffic, in whole lines") {
  for (std::int64_t const bytes : {std::int64_t{512} << 10, std::int64_t{1'594'368}}) {
    constexpr std::uint32_t units = 3;
    Memory source(units * bytes), destination(units * bytes);
    std::int32_t const from[] = {2, -1, 0}, to[] = {1, 2, 0};
    CopyPages const items{source.data(), destination.data(), bytes, bytes, from, to, units, bytes};
    auto const size = static_cast<std::uint64_t>(units * bytes);
    auto const recording = record(PageCopy<CopyPages>{items},
                                  {{"source", source.data(), size, 2 * bytes, 0, true},
                                   {"destination", destination.data(), size, 0, 2 * bytes, true},
                                   {"tables", from, sizeof from, -1, 0},
                                   {"tables", to, sizeof to, -1, 0}});
    check_traffic("page copy", recording, static_cast<std::uint64_t>(2 * 2 * bytes));
  }
}
