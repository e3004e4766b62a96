// What CUDA adds to the runtime: a library of its own beside the program, loaded when a case asks for it, so that
// nothing else depends on CUDA.
#pragma once

#include "comm/launch.h"

namespace regather::kernels::op {
struct Device;
}

namespace regather::train {

// What the library gives by its one function, regather_cuda.
struct CudaLibrary {
  const kernels::op::Device* kernels;
  comm::MakeTransport make_nccl;
};
constexpr const char* kCudaLibrary = "libregather_cuda.so";

// Loads the library, once, and makes GPU number `rank` modulo their number the current one. Throws
// UsageError where there is no such library or no GPU.
const CudaLibrary& use_cuda(int rank);
at::Device current_gpu();

}  // namespace regather::train
