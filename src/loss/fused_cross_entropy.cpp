#include "loss/fused_cross_entropy.h"

#include "loss/fused_linear.h"

namespace regather::loss {

at::Tensor fused_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                      const at::Tensor& targets, int64_t chunk_rows) {
  check_product(hidden, {weight, bias}, chunk_rows);
  return fused_linear(hidden, {weight, bias},
                      {targets, chunk_rows, [](kernels::op::Given&) { return kernels::Sft{}; }});
}

}  // namespace regather::loss
