# The CUDA parts. A machine without a toolkit is told so here, before CMake's own search fails with less to say.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "REGATHER_CUDA is on, but there is no CUDA compiler: put nvcc on PATH or name it in CUDACXX, "
                      "or use the preset 'cpu', which needs no CUDA.")
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_ARCHITECTURES 80 90a CACHE STRING "CUDA architectures; 90a, since wgmma is no part of 90")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# CUTLASS is headers only; ci/setup --cuda brings them from the wheel nvidia-cutlass.
set(REGATHER_CUTLASS ${PROJECT_SOURCE_DIR}/.deps/cutlass/cutlass_library/source CACHE PATH "CUTLASS 4.2")
find_path(REGATHER_CUTLASS_INCLUDE cutlass/cutlass.h HINTS ${REGATHER_CUTLASS}/include)
if(NOT REGATHER_CUTLASS_INCLUDE)
  message(FATAL_ERROR "REGATHER_CUDA is on, but CUTLASS's headers are not at ${REGATHER_CUTLASS}: run 'ci/setup --cuda', "
                      "or name a folder with CUTLASS 4.2's include folder in REGATHER_CUTLASS.")
endif()
add_library(regather_cutlass INTERFACE)
add_library(regather::cutlass ALIAS regather_cutlass)
target_include_directories(regather_cutlass SYSTEM INTERFACE ${REGATHER_CUTLASS_INCLUDE})
