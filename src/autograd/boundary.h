// An identity node in the graph that runs a function when the gradient passes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace regather::autograd {

// Returns a tensor with x's values; during backward `function` runs once, before the gradient goes on to x.
// Without grad mode, or when x does not require grad, x comes back and nothing will run.
at::Tensor boundary(const at::Tensor& x, std::function<void()> function);

}  // namespace regather::autograd
