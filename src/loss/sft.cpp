#include "loss/sft.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "autograd/checkpoint.h"
#include "loss/fused_cross_entropy.h"
#include "loss/fused_linear.h"
#include "loss/tokens.h"

namespace regather::loss {

using at::Tensor;

Tensor sft_eager(const Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(predicting_rows(logits), predicted_rows(labels), {}, at::Reduction::Mean, kIgnore);
}

Tensor sft_fused(const Tensor& hidden, model::Linear& head, const Tensor& labels, HeadScope& scope) {
  const HeadParameters read = read_head(head);
  return scope.around(read.defined(), [&](const std::vector<Tensor>& parameters) {
    const HeadParameters used = HeadParameters::of(parameters);
    return fused_linear_cross_entropy(predicting_rows(hidden), used.weight, used.bias, predicted_rows(labels),
                                      kFusedRows);
  });
}

Tensor sft_chunked(const Tensor& hidden, model::Linear& head, const Tensor& labels, HeadScope& scope) {
  const HeadParameters read = read_head(head);
  const Tensor targets = predicted_rows(labels);
  const Tensor valid = targets.ne(kIgnore).nonzero().squeeze(1);
  const Tensor states = predicting_rows(hidden).index_select(0, valid);
  const Tensor kept = targets.index_select(0, valid);

  Tensor total = at::zeros({}, hidden.options().requires_grad(false));
  for (int64_t start = 0; start < kept.size(0); start += kChunkedRows) {
    const int64_t rows = std::min(kChunkedRows, kept.size(0) - start);
    const Tensor target = kept.narrow(0, start, rows);
    const auto chunk = [read, target, &scope](const Tensor& x) {
      const Tensor logits = scope.around(read.defined(), [&](const std::vector<Tensor>& parameters) {
        const HeadParameters used = HeadParameters::of(parameters);
        const Tensor product = at::matmul(x, used.weight.t());
        return used.bias.defined() ? product + used.bias : product;
      });
      return at::nll_loss(at::log_softmax(logits, -1), target, {}, at::Reduction::Sum);
    };
    total = total + autograd::checkpoint_nonreentrant(chunk, states.narrow(0, start, rows));
  }
  return total / std::max<int64_t>(1, kept.size(0));
}

}  // namespace regather::loss
