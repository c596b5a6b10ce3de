# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0

# hybridstate_header_tests(<name> LANGUAGE <CXX|CUDA> LIBS <targets> HEADERS <paths under include/>)
# Every header alone and twice (a missing include, a missing guard), with the one-letter macro that
# <complex.h> defines poisoned; then all of them in two translation units linked together (a missing
# inline is a duplicate symbol).
function(hybridstate_header_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LANGUAGE" "LIBS;HEADERS")
  if(arg_LANGUAGE STREQUAL "CUDA")
    set(ext cu)
  else()
    set(ext cpp)
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${name}.gen")
  set(sources "")
  set(all "")
  foreach(header IN LISTS arg_HEADERS)
    string(MAKE_C_IDENTIFIER "${header}" id)
    file(CONFIGURE OUTPUT "${folder}/${id}.${ext}"
         CONTENT "#define I error: macro from <complex.h>\n#include <${header}>\n#include <${header}>\n")
    list(APPEND sources "${folder}/${id}.${ext}")
    string(APPEND all "#include <${header}>\n")
  endforeach()
  foreach(n 1 2)
    file(CONFIGURE OUTPUT "${folder}/all${n}.${ext}"
         CONTENT "${all}int header_test_${n}();\nint header_test_${n}() { return ${n}; }\n")
    list(APPEND sources "${folder}/all${n}.${ext}")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/main.cpp"
       CONTENT "int header_test_1();\nint header_test_2();\nint main() { return header_test_1() + header_test_2() - 3; }\n")
  add_executable(${name} ${sources} "${folder}/main.cpp")
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "headers" TIMEOUT 60)
endfunction()
