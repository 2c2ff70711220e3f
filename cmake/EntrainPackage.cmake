# entrain_package(NAME <part/package> DEPENDS <targets...> [LIBRARIES <targets...>] [ENGINE] [SECONDS <number>])
#
# Builds library entrain_<package> from the folder's *.cc and one test program
# entrain_<package>_test from its *_test.cc. ENGINE packages link torch through entrain_torch and
# share its precompiled header; the others share that of entrain_core_pch. Core packages format text
# with fmt, in their .cc files only.
#
# Compile time is mostly that of headers, so that up to ENTRAIN_UNITY files of a package are compiled
# as one: names in their anonymous namespaces have to differ. -DENTRAIN_UNITY=1 compiles each by itself,
# core without precompiled headers, so that a missing #include is found (tools/check.sh does).

add_library(entrain_options INTERFACE)
target_include_directories(entrain_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:include>)
target_compile_features(entrain_options INTERFACE cxx_std_20)
# Core is compiled with -fPIC (precompiled headers are shared), which keeps GCC from inlining what another
# library might replace; nothing here is replaced, and assigners are a twentieth faster.
# Who links the installed core chooses warnings of its own. Switched off is where GCC 12 sees overlaps and
# bounds in std::string that are not there, and what it says of a class in a header, since it takes each
# of the .cc files that are compiled as one for a header.
target_compile_options(
  entrain_options INTERFACE
  "$<BUILD_INTERFACE:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-ffp-contract=off;-fno-semantic-interposition>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Clang alone knows which mutex guards what. Switched off is what its -Wconversion and -Wall hold more than
  # GCC's: signs, and braces around the array of a std::array.
  target_compile_options(
    entrain_options INTERFACE "$<BUILD_INTERFACE:-Wthread-safety;-Wno-sign-conversion;-Wno-missing-braces>")
else()
  target_compile_options(
    entrain_options INTERFACE "$<BUILD_INTERFACE:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow>")
endif()
if(ENTRAIN_UNITY GREATER 1 AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(entrain_options INTERFACE "$<BUILD_INTERFACE:-Wno-subobject-linkage>")
endif()
if(ENTRAIN_WERROR)
  target_compile_options(entrain_options INTERFACE "$<BUILD_INTERFACE:-Werror>")
endif()
if(ENTRAIN_SANITIZER)
  target_compile_definitions(entrain_options INTERFACE "$<BUILD_INTERFACE:ENTRAIN_SANITIZED>")  # tests/oracle/case_count.h
  target_compile_options(entrain_options INTERFACE -fsanitize=${ENTRAIN_SANITIZER}
                                                   -fno-omit-frame-pointer)
  target_link_options(entrain_options INTERFACE -fsanitize=${ENTRAIN_SANITIZER})
  if(NOT ENTRAIN_SANITIZER MATCHES "thread")
    # The address sanitizer stops at null pointers, too; their own check is a sixth of the compile time.
    target_compile_options(entrain_options INTERFACE -fno-sanitize=null
                                                     -fno-sanitize-recover=all)
  endif()
endif()

# Compiles the target's files in batches of ENTRAIN_UNITY.
function(entrain_compile_together target)
  if(ENTRAIN_UNITY GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${ENTRAIN_UNITY})
  endif()
endfunction()

# Gives the target the precompiled header of `owner`, where there is one. That was compiled with -fPIC,
# which a program must share (CMake would give it -fPIE), or the compiler ignores it with a warning.
function(entrain_precompiled target owner)
  if(NOT TARGET ${owner})
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# Half of a build of everything is code of tests, which is run once: less optimised it compiles in six tenths
# of the time (benchmarks/results/build_time_2core_202611.md). The same precompiled headers serve.
function(entrain_compile_lightly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Everything with the label `fast`: tests of a package and of properties.
add_custom_target(fast_tests)

# A library that owns a precompiled header. Its definitions have to be those of the targets that use it, as
# far as these headers read them (fmt's).
function(entrain_pch name libraries)
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cc "// Owner of a precompiled header.\n")
  add_library(${name} STATIC ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE entrain_options ${libraries})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

set(entrain_common_headers <algorithm> <chrono> <filesystem> <functional> <map> <numeric> <optional> <set>
    <span> <string> <string_view> <vector> <nlohmann/json.hpp>)
if(ENTRAIN_UNITY GREATER 1)
  entrain_pch(entrain_core_pch fmt::fmt ${entrain_common_headers} <fmt/format.h>)
endif()
if(ENTRAIN_UNITY GREATER 1 AND ENTRAIN_TESTS)
  entrain_pch(entrain_test_pch GTest::gtest ${entrain_common_headers} <gtest/gtest.h>)
endif()

function(entrain_package)
  cmake_parse_arguments(ARG "ENGINE" "NAME;SECONDS" "DEPENDS;LIBRARIES" ${ARGN})
  get_filename_component(package ${ARG_NAME} NAME)
  set(folder ${CMAKE_SOURCE_DIR}/entrain/${ARG_NAME})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(NOT ARG_ENGINE)
    list(APPEND ARG_LIBRARIES fmt::fmt)
  endif()
  if(NOT sources)
    add_library(entrain_${package} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(entrain_${package} STATIC ${sources})
    set(scope PUBLIC)
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND entrain_)
  target_link_libraries(entrain_${package} ${scope} entrain_options ${ARG_DEPENDS})
  if(sources)
    # Private, so that their definitions do not reach engine units: torch ships another fmt, and a
    # precompiled header is only reused under equal definitions.
    target_link_libraries(entrain_${package} PRIVATE ${ARG_LIBRARIES})
  endif()
  if(ARG_ENGINE)
    target_link_libraries(entrain_${package} ${scope} entrain_torch)
    set(library_pch entrain_torch_pch)
    set(test_pch entrain_torch_pch)
  else()
    set(library_pch entrain_core_pch)
    set(test_pch entrain_test_pch)
  endif()
  if(sources)
    entrain_compile_together(entrain_${package})
    entrain_precompiled(entrain_${package} ${library_pch})
  endif()
  if(tests AND ENTRAIN_TESTS)
    add_executable(entrain_${package}_test ${tests})
    target_link_libraries(entrain_${package}_test PRIVATE entrain_${package} entrain_oracle
                                                          GTest::gtest_main)
    entrain_compile_together(entrain_${package}_test)
    entrain_precompiled(entrain_${package}_test ${test_pch})
    entrain_compile_lightly(entrain_${package}_test)
    add_test(NAME ${ARG_NAME} COMMAND entrain_${package}_test)
    set_tests_properties(${ARG_NAME} PROPERTIES LABELS fast TIMEOUT 900)
    if(ARG_SECONDS)
      set_tests_properties(${ARG_NAME} PROPERTIES COST ${ARG_SECONDS})
    endif()
    if(ARG_ENGINE AND ENTRAIN_SANITIZER MATCHES address)
      # Torch is not instrumented and frees nothing of its own at exit. Tests ask for memory that nobody has,
      # and for signals that the program itself handles.
      set_tests_properties(${ARG_NAME} PROPERTIES ENVIRONMENT
        "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=0:handle_abort=0")
    endif()
    add_dependencies(fast_tests entrain_${package}_test)
  endif()
endfunction()
