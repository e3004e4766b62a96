// The library for CUDA, seen from the runtime.
#include "comm/nccl.h"
#include "kernels/op/device.h"
#include "train/cuda_library.h"

extern "C" __attribute__((visibility("default"))) const regather::train::CudaLibrary* regather_cuda() {
  static const regather::train::CudaLibrary library{&regather::kernels::op::cuda_device(), regather::comm::make_nccl};
  return &library;
}
