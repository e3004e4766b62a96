// Fused linear layer and loss on a GPU, forward and backward in one pass over the tokens: logits = hidden weight^T +
// bias exist one chunk of rows at a time, and only as exp(logit - shift); the loss and the gradients of hidden states,
// weight and bias come out together. No torch: pointers, sizes and a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/problem.h"

struct CUstream_st;

namespace regather::kernels {

using Stream = CUstream_st*;

struct Options {
  // Rows of a chunk at most. Whole sequences (DPO: pairs) of Dpo and Kto are never split: a chunk is then as large as
  // the longest of them, if that is more.
  int64_t chunk_rows = 1024;
  // For measurements: called after each stage has been enqueued.
  std::function<void(const char* stage)> after_stage;
  // Not the fused product but logits in fp32, one chunk at a time: slower, for any dtype, width and device; used
  // without being asked for where the fused product cannot be.
  bool plain = false;
  // The same bits on each call with the same arguments on the same device.
  bool deterministic = false;
  Defect defect = Defect::none;
};

// What outlives a call: library handles, chosen algorithms, one page of pinned memory. Not for use by two threads at
// once; belongs to the device that is current when it is made.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// Bytes that linear_loss needs for such a call, whatever is masked. Reads no device memory.
size_t workspace_bytes(const Linear& linear, const LossParameters& loss, const Options& options);

// The most rows a chunk may have if the workspace is to fit into `bytes`; 0 if none.
int64_t chunk_rows_within(const Linear& linear, const LossParameters& loss, size_t bytes);

// Enqueues on `stream` and waits once, early, for the number of rows that take part. Throws Error on a target outside
// [0, V) that is not ignore_index. The workspace is aligned to 256 bytes.
void linear_loss(Context& context, const Linear& linear, const LossParameters& loss, const Results& results,
                 const Options& options, void* workspace, Stream stream);

// log p(target) of each row, 0 where masked: what losses are given of a reference model. out [N]. One product, of which
// only the sums are kept; the weight needs no gradient. Otherwise as linear_loss.
void log_probabilities(Context& context, const Linear& linear, float* out, void* workspace, Stream stream);
size_t log_probabilities_workspace_bytes(const Linear& linear);

}  // namespace regather::kernels
