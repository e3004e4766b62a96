// A tensor times a number, as Python's `tensor * number` does it.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>

namespace regather::model {

// Python turns the number into a tensor of no dimensions, which autograd then saves; at::mul with a Scalar saves none.
// A checkpoint counts what is saved, so the count has to be Python's. The dtype of the result is x's.
inline at::Tensor scaled(const at::Tensor& x, double factor) {
  at::Tensor number = c10::scalar_to_tensor(factor);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return x * number;
}

}  // namespace regather::model
