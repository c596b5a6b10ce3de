// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0

// --executor: the CPU's own kernels, or those of a GPU.
#include <doctest/doctest.h>

#include <string>

#include "cli/process.hpp"

using cli_test::call;
using cli_test::Outcome;

namespace {

struct Model {
  workload_test::TemporaryFolder folder;

  Model() {
    REQUIRE(call("make-model --preset tiny --seed 7 --out '" + folder.path() + "/m'").code == 0);
  }
  std::string option() const { return " --model '" + folder.path() + "/m'"; }
  Outcome generate(const std::string& options) const {
    return call("generate" + option() + " --prompt-ids 1,2,3,4,5 --max-tokens 3" + options);
  }
};

bool refused(const Outcome& o, const std::string& words) {
  CAPTURE(o.err);
  return o.code == 2 && o.out.empty() && o.err.find(words) != std::string::npos &&
         o.err.find('\n') == o.err.size() - 1;
}

}  // namespace

TEST_CASE("the GPU's kernels, interpreted, generate the CPU's ids in every organization") {
  Model const model;
  for (std::string const carry : {"bf16-per-token", "fp32", "bf16-at-grid"}) {
    Outcome const cpu = model.generate(" --carry " + carry);
    REQUIRE(cpu.code == 0);
    for (std::string const org : {"S0", "S1", "S2", "D0"}) {
      CAPTURE(org);
      // Prefill in chunks of two tokens, then decode.
      Outcome const got = model.generate(" --executor interpreted --token-budget 2 --carry " +
                                         carry + " --org " + org);
      CAPTURE(got.err);
      CHECK(got.code == 0);
      CHECK(got.out == cpu.out);
    }
  }
}

TEST_CASE("an executor that is not there, or cannot do it, says so in a sentence") {
  Model const model;
  CHECK(refused(model.generate(" --executor gpu"), "use cpu, cuda or interpreted"));
  CHECK(refused(model.generate(" --linear fast"), "use exact or cublaslt"));
  CHECK(refused(model.generate(" --linear cublaslt"), "add --executor cuda"));
  CHECK(
      refused(model.generate(" --linear cublaslt --executor interpreted"), "add --executor cuda"));
  CHECK(refused(call("compare --requests 2 --linear cublaslt"), "add --executor cuda"));
  CHECK(refused(call("verify --linear cublaslt --executor cuda" + model.option()),
                "verify compares bits"));
  CHECK(refused(call("verify --executor interpreted --conditions" + model.option()),
                "--executor cpu only"));
  CHECK(refused(call("compare --requests 2 --executor gpu" + model.option()),
                "use simulated, cpu, cuda or interpreted"));
  Outcome const cuda = model.generate(" --executor cuda");
  CHECK((cuda.code == 0 || refused(cuda, "CUDA")));  // with a device, without one, or without CUDA
}
