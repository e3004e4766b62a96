// Gradient accumulation: which micro-batch of a step is on, and who divides by their number.
#pragma once

#include <ATen/core/Tensor.h>

namespace regather::shard {

struct AccumulationOptions {
  int steps = 1;        // micro-batches, thus backwards, of one optimizer step
  bool divides = true;  // the backend divides by `steps`; false: the caller has divided the loss
};

class Accumulation {
 public:
  explicit Accumulation(const AccumulationOptions& options) : options_(options) {}

  int steps() const { return options_.steps; }
  // What the backend divides by.
  int divisor() const { return options_.divides ? options_.steps : 1; }
  at::Tensor divided(const at::Tensor& loss) const { return divisor() > 1 ? loss / divisor() : loss; }
  // The micro-batch in progress is the last of its step.
  bool at_boundary() const { return done_ + 1 >= options_.steps; }
  void end_backward() { ++done_; }
  void end_step() { done_ = 0; }

 private:
  AccumulationOptions options_;
  int done_ = 0;  // backwards since the last step
};

}  // namespace regather::shard
