# Imported targets straight on a torch wheel. find_package(Torch) would need a CUDA toolkit and would put
# libtorch_cuda into every binary; libtorch_cpu alone needs only the CUPTI and CUDA runtime libraries.
set(REGATHER_TORCH_VERSION 2.11.0)
if(DEFINED ENV{REGATHER_TORCH} AND NOT REGATHER_TORCH)
  set(REGATHER_TORCH $ENV{REGATHER_TORCH})
endif()
set(REGATHER_TORCH "${REGATHER_TORCH}" CACHE PATH
    "A folder that holds torch/ (a site-packages folder); default: what ci/setup unpacks under .deps")
set(REGATHER_SITE ${REGATHER_TORCH})
if(NOT REGATHER_SITE)
  set(REGATHER_SITE ${PROJECT_SOURCE_DIR}/.deps/site)
endif()
set(REGATHER_TORCH_ROOT ${REGATHER_SITE}/torch)
if(NOT EXISTS ${REGATHER_TORCH_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no torch under '${REGATHER_SITE}': expected torch/lib/libtorch_cpu.so there. "
                      "Run ci/setup, or set REGATHER_TORCH to a site-packages folder with torch ${REGATHER_TORCH_VERSION}.")
endif()

# The stand-in gloo headers (src/comm/gloo_headers) declare classes whose layout belongs to one version of torch.
set(REGATHER_TORCH_FOUND "")
# The first is where torch 2.11 keeps its number, the second where older versions do.
foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS ${REGATHER_TORCH_ROOT}/include/${header} AND NOT REGATHER_TORCH_FOUND)
    file(STRINGS ${REGATHER_TORCH_ROOT}/include/${header} REGATHER_TORCH_FOUND
         REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
  endif()
endforeach()
list(TRANSFORM REGATHER_TORCH_FOUND REPLACE "[^0-9]" "")
list(JOIN REGATHER_TORCH_FOUND "." REGATHER_TORCH_FOUND)
if(NOT REGATHER_TORCH_FOUND VERSION_EQUAL REGATHER_TORCH_VERSION)
  message(FATAL_ERROR "torch '${REGATHER_TORCH_FOUND}' at '${REGATHER_TORCH_ROOT}': expected ${REGATHER_TORCH_VERSION}, "
                      "the version that the collective headers were checked against. Install that version there.")
endif()

file(GLOB REGATHER_CUDA_LIBS ${REGATHER_SITE}/nvidia/*/lib ${REGATHER_SITE}/nvidia/cu13/lib)
set(REGATHER_TORCH_RPATH ${REGATHER_TORCH_ROOT}/lib ${REGATHER_CUDA_LIBS})

add_library(regather_torch INTERFACE)
add_library(regather::torch ALIAS regather_torch)
foreach(name IN ITEMS c10 torch_cpu)
  add_library(regather_torch_${name} SHARED IMPORTED)
  set_target_properties(regather_torch_${name} PROPERTIES IMPORTED_LOCATION ${REGATHER_TORCH_ROOT}/lib/lib${name}.so
                                                          IMPORTED_NO_SONAME OFF)
  target_link_libraries(regather_torch INTERFACE regather_torch_${name})
endforeach()
target_include_directories(regather_torch SYSTEM INTERFACE ${REGATHER_TORCH_ROOT}/include
                                                           ${REGATHER_TORCH_ROOT}/include/torch/csrc/api/include)
# torch's include folder holds a newer fmt than Debian's library; its own headers must then be the whole of it.
target_compile_definitions(regather_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO FMT_HEADER_ONLY)
# libtorch_cpu leaves symbols of the CUDA libraries to be found at run time.
target_link_options(regather_torch INTERFACE -Wl,--allow-shlib-undefined)
set(CMAKE_BUILD_RPATH ${REGATHER_TORCH_RPATH})
