// What the DeepSpeed engine does around forward and backward, whatever the stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace regather::shard {

// Throws Error unless the loss is a scalar that carries a graph.
void require_scalar_with_graph(const at::Tensor& loss);

// 1/accumulation as deepspeed 0.19.2 applies it: a hook on what the engine's forward returns divides the gradient that
// enters there. A loss computed outside of that forward passes no hook and is never divided.
class OutputScale {
 public:
  explicit OutputScale(int divisor) : divisor_(divisor) {}

  // Hooks an output of the engine's forward. This must outlive the output's graph.
  at::Tensor hook(at::Tensor output);
  void begin_backward() { divided_ = false; }
  // The backward that ended went around the hook though there is something to divide by.
  bool was_bypassed() const { return divisor_ > 1 && !divided_; }

 private:
  int divisor_;
  bool divided_ = false;
};

// Runs `function` each time a gradient has been accumulated into the leaf; replaces the one before.
void on_gradient_accumulated(const at::Tensor& leaf, std::function<void()> function);
void remove_accumulated_hook(const at::Tensor& leaf);

}  // namespace regather::shard
