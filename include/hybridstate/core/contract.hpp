// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <hybridstate/core/config.hpp>

HYBRIDSTATE_NAMESPACE_BEGIN

namespace detail {

/// Prints the broken precondition with up to two values and ends the process. Out of line so that a
/// check costs its caller one compare and one cold branch.
[[noreturn]] inline void contract_failed(const char* sentence, const char* file, int line,
                                         long long a, long long b) noexcept {
  std::fprintf(stderr, "hybridstate: contract broken: %s (values %lld, %lld) at %s:%d\n", sentence,
               a, b, file, line);
  std::abort();
}

}  // namespace detail

HYBRIDSTATE_NAMESPACE_END

/// HYBRIDSTATE_EXPECT(condition, "what must hold", value, value): a precondition of the caller.
#if HYBRIDSTATE_HARDENED
#define HYBRIDSTATE_EXPECT(condition, sentence, a, b) \
  (static_cast<bool>(condition)                       \
       ? static_cast<void>(0)                         \
       : ::hybridstate::detail::contract_failed(      \
             sentence, __FILE__, __LINE__, static_cast<long long>(a), static_cast<long long>(b)))
#else
#define HYBRIDSTATE_EXPECT(condition, sentence, a, b) static_cast<void>(0)
#endif
