# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0

# hybridstate_warnings: what the project's own code must compile without.
add_library(hybridstate_warnings INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(hybridstate_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>
    # libstdc++ 12 calls a function that it deprecates itself (std::stable_sort)
    $<$<COMPILE_LANG_AND_ID:CXX,Clang,AppleClang>:-Wno-deprecated-declarations>
    $<$<BOOL:${HYBRIDSTATE_WARNINGS_AS_ERRORS}>:$<$<COMPILE_LANGUAGE:CXX>:-Werror>>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # false alarms of g++ 12 inside std::string concatenation (GCC bug 105651)
    target_compile_options(hybridstate_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
endif()

# hybridstate_own_code: warnings plus what makes results equal on every compiler and machine
# (a fused multiply-add rounds once where two operations round twice).
add_library(hybridstate_own_code INTERFACE)
target_link_libraries(hybridstate_own_code INTERFACE hybridstate_warnings)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(hybridstate_own_code INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
endif()
