#include "fixes/recompute_hold.h"

#include "autograd/checkpoint.h"

namespace regather::fixes {

bool RecomputeHold::keep_after_forward(const at::Tensor& parameter) {
  return !parameter.requires_grad() && autograd::in_backward();
}

}  // namespace regather::fixes
