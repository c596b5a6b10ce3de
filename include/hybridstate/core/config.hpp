// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hybridstate/version.hpp>

#if __cplusplus < 202002L
#error \
    "hybridstate needs C++20; for .cu files pass -std=c++20 (CMake before 3.25.2: target_compile_options)"
#endif

// Everything lives in a versioned inline namespace, so that two libraries built against different
// versions can meet in one process.
#define HYBRIDSTATE_NAMESPACE_BEGIN \
  namespace hybridstate {           \
  inline namespace HYBRIDSTATE_NAMESPACE_VERSION {
#define HYBRIDSTATE_NAMESPACE_END \
  }                               \
  }

#if defined(__CUDACC__)
#define HYBRIDSTATE_HD __host__ __device__
#else
#define HYBRIDSTATE_HD
#endif

#if defined(__cpp_exceptions) && __cpp_exceptions >= 199711L
#define HYBRIDSTATE_EXCEPTIONS 1
#else
#define HYBRIDSTATE_EXCEPTIONS 0
#endif

// For the few small functions of the hot path that compilers would call once per block.
#if defined(__GNUC__) && defined(__OPTIMIZE__)
#define HYBRIDSTATE_INLINE [[gnu::always_inline]] inline
#define HYBRIDSTATE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define HYBRIDSTATE_INLINE inline
#define HYBRIDSTATE_INLINE_LAMBDA
#endif

// Contract checks: on in debug builds, and in any build that defines HYBRIDSTATE_HARDENED=1.
#if !defined(HYBRIDSTATE_HARDENED)
#if defined(NDEBUG)
#define HYBRIDSTATE_HARDENED 0
#else
#define HYBRIDSTATE_HARDENED 1
#endif
#endif
