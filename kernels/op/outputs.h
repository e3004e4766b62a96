// What the operators of every loss give, and how the pass beneath autograd is found.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace regather::kernels::op {

// loss, gradients of hidden states, weight and bias (empty without one), log-probabilities.
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

}  // namespace regather::kernels::op
