# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0

# cmake -DROOT=<source tree> -P layering.cmake
# The includes of the public headers point one way:
#   core <- geometry <- pool <- organization <- index <- policy <- cache <- batch
# device/ may include core/ and geometry/ only, and the headers use the standard library alone.
# Kernels see the library through device/ alone. -DSELFTEST=1 -DSCRATCH=<folder> checks the check.
cmake_minimum_required(VERSION 3.25)
set(layers core geometry pool organization index policy cache batch)

# The sentences of all violations under `root`, as a list.
function(find_violations root out)
  set(found "")
  file(GLOB_RECURSE headers RELATIVE "${root}/include/hybridstate" "${root}/include/hybridstate/*.hpp"
       "${root}/include/hybridstate/*.cuh")
  foreach(header IN LISTS headers)
    string(REGEX MATCH "^[^/]+/" layer "${header}") # empty for the umbrella and the version
    string(REPLACE "/" "" layer "${layer}")
    if(layer STREQUAL "device")
      set(allowed core geometry device)
    elseif(layer IN_LIST layers)
      list(FIND layers ${layer} rank)
      math(EXPR count "${rank} + 1")
      list(SUBLIST layers 0 ${count} allowed)
      if(layer STREQUAL "batch")
        list(APPEND allowed device) # a batch fills the rows that the views describe
      endif()
    elseif(layer STREQUAL "")
      set(allowed ${layers} device)
    else()
      list(APPEND found "${header}: '${layer}' is not a layer of the architecture")
      continue()
    endif()
    file(STRINGS "${root}/include/hybridstate/${header}" includes REGEX "^[ \t]*#[ \t]*include")
    foreach(line IN LISTS includes)
      if(line MATCHES "include[ \t]*\"")
        list(APPEND found "${header}: ${line}: public headers are included with <hybridstate/...>")
      elseif(line MATCHES "<hybridstate/([a-z_]+)/")
        if(NOT CMAKE_MATCH_1 IN_LIST allowed)
          list(APPEND found "${header}: ${line}: ${layer} must not depend on ${CMAKE_MATCH_1}")
        endif()
      elseif(line MATCHES "<hybridstate/hybridstate.hpp>")
        list(APPEND found "${header}: ${line}: no header depends on the umbrella")
      elseif(line MATCHES "<hybridstate/version.hpp>")
      elseif(NOT line MATCHES "<[a-z_0-9]+>" AND NOT (layer STREQUAL "device" AND line MATCHES "<cuda"))
        list(APPEND found "${header}: ${line}: public headers use the standard library alone")
      endif()
    endforeach()
  endforeach()
  file(GLOB_RECURSE kernels RELATIVE "${root}" "${root}/kernels/*.cu" "${root}/kernels/*.cuh" "${root}/kernels/*.hpp")
  foreach(kernel IN LISTS kernels)
    file(STRINGS "${root}/${kernel}" includes REGEX "^[ \t]*#[ \t]*include[ \t]*<hybridstate/")
    foreach(line IN LISTS includes)
      if(NOT line MATCHES "<hybridstate/(device|kernels)/" AND NOT kernel MATCHES "/shell/")
        list(APPEND found "${kernel}: ${line}: kernels include device/ alone")
      endif()
    endforeach()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

if(SELFTEST)
  # header, line planted in it, whether the check must object
  foreach(case
      "pool/a.hpp|#include <hybridstate/core/types.hpp>|0"
      "pool/a.hpp|#include <hybridstate/pool/b.hpp>|0"
      "pool/a.hpp|#include <hybridstate/cache/cache.hpp>|1"
      "core/a.hpp|  #  include <hybridstate/geometry/a.hpp>|1"
      "device/a.hpp|#include <hybridstate/pool/a.hpp>|1"
      "device/a.hpp|#include <hybridstate/geometry/a.hpp>|0"
      "cache/a.hpp|#include <hybridstate/batch/a.hpp>|1"
      "cache/a.hpp|#include <fmt/format.h>|1"
      "cache/a.hpp|#include <runtime/report/file.hpp>|1"
      "cache/a.hpp|#include \"a.hpp\"|1"
      "cache/a.hpp|#include <hybridstate/hybridstate.hpp>|1"
      "extra/a.hpp|#include <vector>|1"
      "hybridstate.hpp|#include <hybridstate/batch/a.hpp>|0"
      "../../kernels/a.cu|#include <hybridstate/cache/a.hpp>|1"
      "../../kernels/a.cu|#include <hybridstate/device/a.hpp>|0")
    string(REPLACE "|" ";" case "${case}")
    list(GET case 0 header)
    list(GET case 1 line)
    list(GET case 2 expected)
    file(REMOVE_RECURSE "${SCRATCH}")
    file(WRITE "${SCRATCH}/include/hybridstate/${header}" "${line}\n")
    find_violations("${SCRATCH}" violations)
    list(LENGTH violations count)
    if(NOT count EQUAL expected)
      message(FATAL_ERROR "layering selftest: '${line}' in ${header} gave ${count} violations, ${expected} expected: ${violations}")
    endif()
  endforeach()
  message(STATUS "layering selftest passed")
  return()
endif()

find_violations("${ROOT}" violations)
if(violations)
  list(JOIN violations "\n  " text)
  message(FATAL_ERROR "layering:\n  ${text}")
endif()
message(STATUS "layering: all includes point one way")
