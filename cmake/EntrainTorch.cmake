# The torch wheel of the project's own .venv, as target entrain_torch, with include folders as
# SYSTEM. Torch's own CMake package is avoided: it adds definitions and probes that an engine
# without CUDA sources does not want.
execute_process(
  COMMAND ${ENTRAIN_PYTHON} -c "import torch, os; print(os.path.dirname(torch.__file__)); print(torch.__version__); \
import sysconfig; print(sysconfig.get_paths()['include']); print(sysconfig.get_config_var('EXT_SUFFIX'))"
  OUTPUT_VARIABLE torch_output
  RESULT_VARIABLE torch_result
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR "ENTRAIN_ENGINE is ON, but ${ENTRAIN_PYTHON} cannot import torch. "
                      "Run 'make setup', or configure with the 'core' preset.")
endif()
string(REPLACE "\n" ";" torch_output "${torch_output}")
list(GET torch_output 0 torch_folder)
list(GET torch_output 1 ENTRAIN_TORCH_VERSION)
message(STATUS "torch ${ENTRAIN_TORCH_VERSION}")

add_library(entrain_torch INTERFACE)
target_include_directories(entrain_torch SYSTEM INTERFACE
  ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
target_link_directories(entrain_torch INTERFACE ${torch_folder}/lib)
target_link_libraries(entrain_torch INTERFACE torch_cpu c10)
if(EXISTS ${torch_folder}/lib/libtorch_cuda.so)
  # Kept although nothing refers to it by name: loading it registers the CUDA kernels.
  target_link_options(entrain_torch INTERFACE "LINKER:--push-state,--no-as-needed"
                      ${torch_folder}/lib/libtorch_cuda.so "LINKER:--pop-state")
endif()
target_link_options(entrain_torch INTERFACE "LINKER:-rpath,${torch_folder}/lib")
target_compile_definitions(entrain_torch INTERFACE ENTRAIN_TORCH_VERSION="${ENTRAIN_TORCH_VERSION}")

entrain_pch(entrain_torch_pch entrain_torch ${entrain_common_headers} <ATen/ATen.h>
            <torch/csrc/autograd/custom_function.h>)

list(GET torch_output 2 python_include)
list(GET torch_output 3 python_suffix)
set(ENTRAIN_PYTHON_INCLUDE ${python_include} CACHE INTERNAL "headers of ENTRAIN_PYTHON")
set(ENTRAIN_PYTHON_SUFFIX ${python_suffix} CACHE INTERNAL "of extension modules")

# Makes a MODULE library one that this Python imports, with torch's own pybind11. Torch is loaded by
# then, so that nothing is linked that the interpreter has.
function(entrain_python_module target)
  if(NOT EXISTS ${ENTRAIN_PYTHON_INCLUDE}/Python.h)
    message(FATAL_ERROR "${ENTRAIN_PYTHON_INCLUDE}/Python.h is missing: the Python package needs the headers of "
                        "${ENTRAIN_PYTHON} (Debian: python3-dev). Run 'make setup'.")
  endif()
  target_include_directories(${target} SYSTEM PRIVATE ${ENTRAIN_PYTHON_INCLUDE})
  target_link_libraries(${target} PRIVATE entrain_options entrain_torch)
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX "${ENTRAIN_PYTHON_SUFFIX}"
                                             CXX_VISIBILITY_PRESET hidden)
endfunction()
