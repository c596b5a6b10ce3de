// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "workload/support.hpp"

namespace cli_test {

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// What one call of the program left behind.
struct Outcome {
  int code = -1;  ///< exit code; -1 when a signal ended it
  std::string out;
  std::string err;
};

/// Calls the program; `arguments` as in a shell.
inline Outcome call(const std::string& arguments) {
  workload_test::TemporaryFolder const folder;
  std::string const out = folder.path() + "/out";
  std::string const err = folder.path() + "/err";
  std::string const line = std::string("'") + HYBRIDSTATE_BINARY + "' " + arguments + " > '" + out +
                           "' 2> '" + err + "'";
  int const status = std::system(line.c_str());
  Outcome outcome;
  if (status != -1 && WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  outcome.out = file_text(out);
  outcome.err = file_text(err);
  return outcome;
}

}  // namespace cli_test
