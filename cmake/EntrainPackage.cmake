# entrain_package(NAME <part/package> DEPENDS <targets...> [LIBRARIES <targets...>] [ENGINE])
#
# Builds library entrain_<package> from the folder's *.cc and one test program
# entrain_<package>_test from its *_test.cc. ENGINE packages link torch through entrain_torch and
# share its precompiled header. Core packages format text with fmt, in their .cc files only.

add_library(entrain_options INTERFACE)
target_include_directories(entrain_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:include>)
target_compile_features(entrain_options INTERFACE cxx_std_20)
# Who links the installed core chooses warnings of its own.
target_compile_options(
  entrain_options INTERFACE
  "$<BUILD_INTERFACE:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-restrict;-ffp-contract=off>")
if(ENTRAIN_WERROR)
  # GCC 12 sees overlaps and bounds in std::string that are not there.
  target_compile_options(
    entrain_options INTERFACE
    "$<BUILD_INTERFACE:-Werror;-Wno-error=array-bounds;-Wno-error=stringop-overflow>")
endif()
if(ENTRAIN_SANITIZER)
  target_compile_options(entrain_options INTERFACE -fsanitize=${ENTRAIN_SANITIZER}
                                                   -fno-omit-frame-pointer)
  target_link_options(entrain_options INTERFACE -fsanitize=${ENTRAIN_SANITIZER})
  if(ENTRAIN_SANITIZER MATCHES "thread")
    target_compile_options(entrain_options INTERFACE -Wno-tsan)
  else()
    target_compile_options(entrain_options INTERFACE -fno-sanitize-recover=all)
  endif()
endif()

# Makes a test program use the engine's precompiled header. It was compiled with -fPIC, which a program
# must share (CMake would give it -fPIE), or the compiler ignores it with a warning.
function(entrain_use_torch_pch program)
  set_target_properties(${program} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${program} PRIVATE -fPIC)
  target_precompile_headers(${program} REUSE_FROM entrain_torch_pch)
endfunction()

function(entrain_package)
  cmake_parse_arguments(ARG "ENGINE" "NAME" "DEPENDS;LIBRARIES" ${ARGN})
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
    if(sources)
      target_precompile_headers(entrain_${package} REUSE_FROM entrain_torch_pch)
    endif()
  endif()
  if(tests)
    add_executable(entrain_${package}_test ${tests})
    target_link_libraries(entrain_${package}_test PRIVATE entrain_${package} entrain_oracle
                                                          GTest::gtest_main)
    if(ARG_ENGINE)
      entrain_use_torch_pch(entrain_${package}_test)
    endif()
    add_test(NAME ${ARG_NAME} COMMAND entrain_${package}_test)
    set_tests_properties(${ARG_NAME} PROPERTIES LABELS fast TIMEOUT 300)
  endif()
endfunction()
