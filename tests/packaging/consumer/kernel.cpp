// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <hybridstate/kernels/page_copy.hpp>
#include <hybridstate/kernels/shell/interpreter.hpp>
#include <vector>

// What a kernel author without a GPU does: the library's own page copy, thread by thread.
int main() {
  using namespace hybridstate::kernels;
  constexpr std::int64_t page = 256;
  std::vector<std::byte> from(4 * page), to(2 * page);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i / page + 1);
  std::vector<std::int32_t> const gathered = {3, 1};
  CopyPages const gather = {from.data(), to.data(), page, page, gathered.data(), nullptr, 2, page};
  bool const runs = with_kernel(
      gather, [](const auto& kernel) { Interpreter(ThreadOrder::shuffled).run(kernel); });
  return runs && to.front() == std::byte{4} && to.back() == std::byte{2} ? 0 : 1;
}
