# The CUDA parts. A machine without a toolkit is told so here, before CMake's own search fails with less to say.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "REGATHER_CUDA is on, but there is no CUDA compiler: put nvcc on PATH or name it in CUDACXX, "
                      "or use the preset 'cpu', which needs no CUDA.")
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "CUDA architectures")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
