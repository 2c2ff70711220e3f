# Installs the core of BUILD into a fresh folder, then configures, builds and runs
# examples/assign_batch against it. Torch is needed nowhere. DEPS: where the libraries that the core needs
# lie, if not among the system's.
set(folder ${BUILD}/install_test)
file(REMOVE_RECURSE ${folder})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

if(DEPS)
  set(ENV{CMAKE_PREFIX_PATH} ${DEPS})
endif()
set(flags "")
if(SANITIZER)
  set(flags "-fsanitize=${SANITIZER}")
endif()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${folder}/prefix --component core)
# From a copy, so that nothing of this tree can be included by accident.
file(COPY ${SOURCE}/examples/assign_batch DESTINATION ${folder})
run(${CMAKE_COMMAND} -S ${folder}/assign_batch -B ${folder}/build
    -D CMAKE_PREFIX_PATH=${folder}/prefix -D CMAKE_CXX_COMPILER=${COMPILER}
    -D CMAKE_CXX_FLAGS=${flags})
run(${CMAKE_COMMAND} --build ${folder}/build)
run(${folder}/build/assign_batch)
foreach(word "sequential: step time" "entrain: step time" "slot 0:")
  if(NOT output MATCHES "${word}")
    message(FATAL_ERROR "'${word}' is missing in:\n${output}")
  endif()
endforeach()

file(STRINGS ${folder}/prefix/lib/cmake/entrain/entrainConfigVersion.cmake version
     REGEX "set\\(PACKAGE_VERSION \"${VERSION}\"\\)")
if(NOT version)
  message(FATAL_ERROR "the installed package does not say version ${VERSION}")
endif()
file(GLOB_RECURSE headers ${folder}/prefix/include/*)
foreach(header ${headers})
  if(NOT header MATCHES "/include/entrain/core/.*\\.h$")
    message(FATAL_ERROR "not a header of the core: ${header}")
  endif()
endforeach()
file(REMOVE_RECURSE ${folder})
