// How many multiprocessors the device has: the size of a persistent kernel's grid.
#pragma once

#include "kernels/cuda_check.cuh"

namespace regather::kernels {

inline int multiprocessors() {
  static const int count = [] {
    int device = 0;
    int value = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    return value;
  }();
  return count;
}

}  // namespace regather::kernels
