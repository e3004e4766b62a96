#include "loss/fused_cross_entropy.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/index.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "case/fault.h"
#include "loss/batch.h"

namespace regather::loss {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;

// What one pass over the chunks leaves; undefined where no gradient is asked for.
struct Stash {
  Tensor loss;
  Tensor hidden;
  Tensor weight;
  Tensor bias;
};

void add_chunk(Stash& stash, const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
               double valid, int64_t start, int64_t rows) {
  const Tensor states = hidden.narrow(0, start, rows);
  const Tensor target = targets.narrow(0, start, rows);
  const Tensor mask = target.ne(kIgnore);
  const Tensor index = at::where(mask, target, at::zeros_like(target)).unsqueeze(1);

  Tensor logits = at::matmul(states, weight.t());
  if (bias.defined()) logits = logits + bias;
  const Tensor log_probabilities = at::log_softmax(logits, -1);
  stash.loss -= log_probabilities.gather(1, index).squeeze(1).mul(mask).sum() / valid;

  // d loss / d logits = (softmax - onehot) / valid, zero at masked rows.
  const Tensor scale = mask.to(logits.scalar_type()).unsqueeze(1) / valid;
  Tensor gradient = log_probabilities.exp() * scale;
  gradient.scatter_add_(1, index, -scale);
  if (stash.hidden.defined()) stash.hidden.narrow(0, start, rows).copy_(at::matmul(gradient, weight));
  if (stash.weight.defined()) stash.weight.addmm_(gradient.t(), states);
  if (stash.bias.defined()) stash.bias.add_(gradient.sum(0));
}

struct FusedLinearCrossEntropy : torch::autograd::Function<FusedLinearCrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                        const std::optional<Tensor>& optional_bias, const Tensor& targets, int64_t chunk_rows) {
    const Tensor bias = optional_bias.value_or(Tensor());
    Stash stash;
    stash.loss = at::zeros({}, hidden.options().requires_grad(false));
    if (hidden.requires_grad()) stash.hidden = at::zeros_like(hidden);
    if (weight.requires_grad()) stash.weight = at::zeros_like(weight);
    if (bias.defined() && bias.requires_grad()) stash.bias = at::zeros_like(bias);

    const int64_t rows = hidden.size(0);
    // A rank without a valid target contributes zero, not 0/0.
    const double valid = std::max<double>(1.0, targets.ne(kIgnore).sum().item<double>());
    const int64_t end = fault_is(Fault::lose_last_chunk) ? rows - chunk_rows : rows;
    for (int64_t start = 0; start < end; start += chunk_rows) {
      add_chunk(stash, hidden, weight, bias, targets, valid, start, std::min(chunk_rows, rows - start));
    }
    if (fault_is(Fault::swap_gradients) && stash.weight.defined()) {
      const Tensor first = stash.weight[0].clone();
      stash.weight[0].copy_(stash.weight[1]);
      stash.weight[1].copy_(first);
    }
    context->save_for_backward({stash.hidden, stash.weight, stash.bias});
    return stash.loss;
  }

  static torch::autograd::variable_list backward(AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto stashed = context->get_saved_variables();
    const auto scaled = [&](const Tensor& stash) { return stash.defined() ? stash * gradients[0] : Tensor(); };
    return {scaled(stashed[0]), scaled(stashed[1]), scaled(stashed[2]), Tensor(), Tensor()};
  }
};

}  // namespace

at::Tensor fused_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                      const at::Tensor& targets, int64_t chunk_rows) {
  return FusedLinearCrossEntropy::apply(hidden, weight, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt,
                                        targets, chunk_rows);
}

}  // namespace regather::loss
