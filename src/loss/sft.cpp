#include "loss/sft.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "autograd/checkpoint.h"
#include "case/fault.h"
#include "loss/fused_cross_entropy.h"

namespace regather::loss {
namespace {

using at::Tensor;

// States that predict, [B * (T - 1), H or V].
Tensor predicting(const Tensor& states) {
  return states.narrow(1, 0, states.size(1) - 1).reshape({-1, states.size(-1)});
}

// What they predict, [B * (T - 1)].
Tensor predicted(const Tensor& labels) {
  Tensor targets = labels.narrow(1, 1, labels.size(1) - 1).reshape({-1});
  return fault_is(Fault::skip_mask) ? targets.clamp_min(0) : targets;
}

std::vector<Tensor> defined(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& t) { return !t.defined(); });
  return tensors;
}

}  // namespace

Tensor sft_eager(const Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(predicting(logits), predicted(labels), {}, at::Reduction::Mean, kIgnore);
}

Tensor sft_fused(const Tensor& hidden, model::Linear& head, const Tensor& labels, HeadScope& scope) {
  const Tensor weight = head.weight();
  const Tensor bias = head.bias();
  return scope.around(defined({weight, bias}), [&] {
    return fused_linear_cross_entropy(predicting(hidden), weight, bias, predicted(labels), kFusedRows);
  });
}

Tensor sft_chunked(const Tensor& hidden, model::Linear& head, const Tensor& labels, HeadScope& scope) {
  const Tensor weight = head.weight();
  const Tensor bias = head.bias();
  const Tensor targets = predicted(labels);
  const Tensor valid = targets.ne(kIgnore).nonzero().squeeze(1);
  const Tensor states = predicting(hidden).index_select(0, valid);
  const Tensor kept = targets.index_select(0, valid);

  Tensor total = at::zeros({}, hidden.options().requires_grad(false));
  for (int64_t start = 0; start < kept.size(0); start += kChunkedRows) {
    const int64_t rows = std::min(kChunkedRows, kept.size(0) - start);
    const Tensor target = kept.narrow(0, start, rows);
    const auto chunk = [weight, bias, target, &scope](const Tensor& x) {
      const Tensor logits = scope.around(defined({weight, bias}), [&] {
        const Tensor product = at::matmul(x, weight.t());
        return bias.defined() ? product + bias : product;
      });
      return at::nll_loss(at::log_softmax(logits, -1), target, {}, at::Reduction::Sum);
    };
    total = total + autograd::checkpoint_nonreentrant(chunk, states.narrow(0, start, rows));
  }
  return total / std::max<int64_t>(1, kept.size(0));
}

}  // namespace regather::loss
