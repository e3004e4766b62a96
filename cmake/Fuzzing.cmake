# regather_fuzzer(NAME SOURCES a_fuzz.cpp ... [LIBRARIES ...]): a libFuzzer program bin/fuzz/NAME, built only with
# REGATHER_FUZZERS (preset fuzz, target fuzzers). ci/fuzz runs it, from the seeds in tests/*/NAME_seeds if there are any.
if(REGATHER_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "REGATHER_FUZZERS needs clang, not ${CMAKE_CXX_COMPILER_ID}: use the preset 'fuzz'.")
  endif()
  target_compile_options(regather_options INTERFACE -fsanitize=fuzzer-no-link)
  add_custom_target(fuzzers)
endif()

function(regather_fuzzer name)
  if(NOT REGATHER_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name}_fuzz ${ARG_SOURCES})
  target_link_libraries(${name}_fuzz PRIVATE regather::options ${ARG_LIBRARIES})
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name}_fuzz)
  set_target_properties(${name}_fuzz PROPERTIES OUTPUT_NAME ${name}
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/fuzz)
endfunction()
