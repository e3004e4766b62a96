// Device memory for tests and measurements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda_check.cuh"

namespace regather::kernels::testing {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) : count_(count) {
    if (count > 0) check(cudaMalloc(&data_, static_cast<size_t>(count) * sizeof(T)), "cudaMalloc");
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(static_cast<int64_t>(values.size())) {
    if (count_ > 0) check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
    other.count_ = 0;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }

  T* get() const { return data_; }
  int64_t count() const { return count_; }
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(T); }
  std::vector<T> host() const {
    std::vector<T> values(static_cast<size_t>(count_));
    if (count_ > 0) check(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }
  // Every byte the same: 0xff makes each float and bf16 a NaN, so that what was not written shows.
  void fill_bytes(int value) {
    if (count_ > 0) check(cudaMemset(data_, value, bytes()), "cudaMemset");
  }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace regather::kernels::testing
