// What a Context holds.
#pragma once

#include <cstdint>

#include "kernels/kept_rows.h"
#include "kernels/linear_loss.h"
#include "kernels/matmul.h"

struct CUevent_st;

namespace regather::kernels {

struct Workspace;

// The few numbers that the host must know, in pinned memory.
class HostCounts {
 public:
  HostCounts();
  ~HostCounts();
  HostCounts(const HostCounts&) = delete;
  HostCounts& operator=(const HostCounts&) = delete;

  // The summary, and the first `starts` starts of sequences.
  void fetch(const Workspace& space, int64_t starts, Stream stream);
  void wait();
  const KeptSummary& summary() const { return *reinterpret_cast<const KeptSummary*>(memory_); }
  const int32_t* start() const { return reinterpret_cast<const int32_t*>(memory_ + kStarts); }

 private:
  static constexpr size_t kStarts = 64;
  void reserve(size_t bytes);

  char* memory_ = nullptr;
  size_t size_ = 0;
  CUevent_st* fetched_ = nullptr;
};

struct Context::State {
  Products products;
  HostCounts counts;
};

}  // namespace regather::kernels
