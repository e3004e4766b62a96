#include "kernels/context.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda_check.cuh"
#include "kernels/workspace.h"

namespace regather::kernels {

HostCounts::HostCounts() {
  check(cudaEventCreateWithFlags(&fetched_, cudaEventDisableTiming), "cudaEventCreate");
  reserve(4096);
}

HostCounts::~HostCounts() {
  cudaFreeHost(memory_);
  cudaEventDestroy(fetched_);
}

void HostCounts::reserve(size_t bytes) {
  if (bytes <= size_) return;
  cudaFreeHost(memory_);
  memory_ = nullptr;
  size_ = 0;
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  memory_ = static_cast<char*>(memory);
  size_ = bytes;
}

void HostCounts::fetch(const Workspace& space, int64_t starts, Stream stream) {
  const auto bytes = static_cast<size_t>(starts) * sizeof(int32_t);
  reserve(kStarts + bytes);
  check(cudaMemcpyAsync(memory_, space.summary, sizeof(KeptSummary), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  if (starts > 0) {
    check(cudaMemcpyAsync(memory_ + kStarts, space.start, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  }
  check(cudaEventRecord(fetched_, stream), "cudaEventRecord");
}

void HostCounts::wait() { check(cudaEventSynchronize(fetched_), "cudaEventSynchronize"); }

}  // namespace regather::kernels
