// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "report/progress.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

using namespace hybridstate::runtime;

namespace {

std::string content(std::FILE* file) {
  std::fflush(file);
  std::fseek(file, 0, SEEK_SET);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

}  // namespace

TEST_CASE("a progress line shows share and time left") {
  CHECK(progress_line("runs", 5, 10, 20, 60).find(" 50 %  20 s left") != std::string::npos);
  CHECK(progress_line("runs", 1, 10, 60, 60).find("9:00 min left") != std::string::npos);
  CHECK(progress_line("runs", 0, 10, 5, 60).find("left") == std::string::npos);
  CHECK(progress_line("runs", 12, 10, 5, 60).find("100 %") != std::string::npos);
  CHECK(progress_line("runs", 3, 0, 5, 60) == "runs  3  5 s");
  for (std::size_t width = 0; width < 80; ++width) {
    CHECK(progress_line("a long label", 5, 10, 2, width).size() <= width);
  }
}

TEST_CASE("nothing is drawn outside a terminal") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  CHECK_FALSE(is_terminal(file));
  {
    Progress progress("runs", 3, file);
    CHECK_FALSE(progress.interactive());
    progress.advance(3);
    CHECK(progress.done() == 3);
  }
  CHECK(content(file).empty());
  std::fclose(file);
}

TEST_CASE("the line is wiped at the end and threads may share the bar") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    Progress progress("runs", 400, file, true);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 100; ++k) progress.advance();
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(progress.done() == 400);
  }
  const std::string text = content(file);
  std::fclose(file);
  CHECK(text.starts_with("\rruns"));
  CHECK(text.ends_with("\r\x1b[K"));
  CHECK(text.find('\n') == std::string::npos);
}
