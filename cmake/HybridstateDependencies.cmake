# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0
include(FetchContent)
option(HYBRIDSTATE_FETCH_MISSING "Download dependencies that find_package cannot locate" OFF)

# hybridstate_dependency(<package> <minimum> <target> <git repository> <git tag>)
# An installed package first; sources named by FETCHCONTENT_SOURCE_DIR_<PACKAGE> second; a download
# only when asked for. The library itself needs none of them.
function(hybridstate_dependency package minimum target repository tag)
  if(TARGET ${target})
    return()
  endif()
  find_package(${package} ${minimum} CONFIG QUIET GLOBAL)
  if(TARGET ${target})
    message(STATUS "hybridstate: ${package} ${${package}_VERSION} from ${${package}_DIR}")
    return()
  endif()
  string(TOUPPER ${package} upper)
  if(NOT HYBRIDSTATE_FETCH_MISSING AND NOT FETCHCONTENT_SOURCE_DIR_${upper})
    message(FATAL_ERROR "hybridstate: ${package} >= ${minimum} not found. Install it, set ${package}_DIR, "
                        "or configure with -DHYBRIDSTATE_FETCH_MISSING=ON.")
  endif()
  # keep a fetched dependency out of this project's install tree and test list
  set(FMT_INSTALL OFF)
  set(DOCTEST_NO_INSTALL ON)
  set(DOCTEST_WITH_TESTS OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(JSON_Install OFF)
  set(JSON_BuildTests OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  FetchContent_Declare(${package} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON SYSTEM)
  FetchContent_MakeAvailable(${package})
endfunction()
