#include "loss/fused_cross_entropy.h"

#include <ATen/ops/full_like.h>

#include <algorithm>

#include "loss/batch.h"
#include "loss/fused_linear.h"

namespace regather::loss {

at::Tensor fused_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                      const at::Tensor& targets, int64_t chunk_rows) {
  FusedLinear problem;
  problem.targets = targets;
  for (int64_t start = 0; start < hidden.size(0); start += chunk_rows) {
    problem.chunks.push_back({{start, std::min(chunk_rows, hidden.size(0) - start)}});
  }
  // A rank without a valid target contributes zero, not 0/0.
  const double valid = std::max<double>(1.0, targets.ne(kIgnore).sum().item<double>());
  problem.loss = [valid](const at::Tensor& log_probabilities, size_t) {
    return ChunkValue{-log_probabilities.sum() / valid, at::full_like(log_probabilities, -1.0 / valid)};
  };
  return fused_linear(hidden, {weight, bias}, problem);
}

}  // namespace regather::loss
