#include "loss/fused_linear.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "case/fault.h"
#include "loss/batch.h"

namespace regather::loss {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;

// One chunk through the head.
struct Scored {
  Tensor index;              // [N, 1], 0 where masked
  Tensor mask;               // [N]
  Tensor all;                // [N, V] log softmax
  Tensor log_probabilities;  // [N] of the targets, 0 where masked
};

Scored score(const Tensor& states, const HeadParameters& head, const Tensor& targets) {
  Scored scored;
  scored.mask = targets.ne(kIgnore);
  scored.index = at::where(scored.mask, targets, at::zeros_like(targets)).unsqueeze(1);
  Tensor logits = at::matmul(states, head.weight.t());
  if (head.bias.defined()) logits = logits + head.bias;
  scored.all = at::log_softmax(logits, -1, at::promote_types(logits.scalar_type(), at::kFloat));
  scored.log_probabilities = scored.all.gather(1, scored.index).squeeze(1) * scored.mask;
  return scored;
}

// What one pass over the chunks leaves; undefined where no gradient is asked for.
struct Stash {
  Tensor loss;
  Tensor hidden;
  Tensor weight;
  Tensor bias;
};

// d log-probability / d logits = onehot - softmax, zero at masked rows.
void add_gradients(Stash& stash, const Scored& scored, const Tensor& by_log_probability, const Tensor& states,
                   const Tensor& weight, const Chunk& chunk) {
  const Tensor scale = (by_log_probability * scored.mask).unsqueeze(1);
  Tensor gradient = scored.all.exp() * -scale;
  gradient.scatter_add_(1, scored.index, scale);
  gradient = gradient.to(states.scalar_type());
  if (stash.hidden.defined()) {
    const Tensor rows = at::matmul(gradient, weight);
    int64_t done = 0;
    for (const auto& [start, count] : chunk) {
      stash.hidden.narrow(0, start, count).copy_(rows.narrow(0, done, count));
      done += count;
    }
  }
  if (stash.weight.defined()) stash.weight.addmm_(gradient.t(), states);
  if (stash.bias.defined()) stash.bias.add_(gradient.sum(0));
}

void swap_rows(const Tensor& gradient) {
  const Tensor first = gradient[0].clone();
  gradient[0].copy_(gradient[1]);
  gradient[1].copy_(first);
}

std::optional<Tensor> optional(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Tensor>(tensor) : std::nullopt;
}

struct Operator : torch::autograd::Function<Operator> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                        const std::optional<Tensor>& bias, const std::optional<Tensor>&, const std::optional<Tensor>&,
                        const FusedLinear* problem) {
    const HeadParameters head{weight, bias.value_or(Tensor())};
    Stash stash;
    stash.loss =
        at::zeros({}, hidden.options().requires_grad(false).dtype(at::promote_types(hidden.scalar_type(), at::kFloat)));
    if (hidden.requires_grad()) stash.hidden = at::zeros_like(hidden);
    if (weight.requires_grad()) stash.weight = at::zeros_like(weight);
    if (head.bias.defined() && head.bias.requires_grad()) stash.bias = at::zeros_like(head.bias);

    const size_t end = problem->chunks.size() - (fault_is(Fault::lose_last_chunk) ? 1 : 0);
    for (size_t i = 0; i < end; ++i) {
      const Chunk& chunk = problem->chunks[i];
      const Tensor states = take(hidden, chunk);
      const Scored scored = score(states, head, take(problem->targets, chunk));
      const ChunkValue value = problem->loss(scored.log_probabilities, i);
      stash.loss += value.loss;
      add_gradients(stash, scored, value.gradient, states, weight, chunk);
    }
    if (fault_is(Fault::swap_gradients) && stash.weight.defined()) swap_rows(stash.weight);
    context->save_for_backward({stash.hidden, stash.weight, stash.bias});
    return stash.loss;
  }

  static torch::autograd::variable_list backward(AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto stashed = context->get_saved_variables();
    const auto scaled = [&](const Tensor& stash) { return stash.defined() ? stash * gradients[0] : Tensor(); };
    return {scaled(stashed[0]), scaled(stashed[1]), scaled(stashed[2]), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

std::vector<Tensor> HeadParameters::defined() const {
  std::vector<Tensor> all{weight, bias};
  std::erase_if(all, [](const Tensor& t) { return !t.defined(); });
  return all;
}

HeadParameters HeadParameters::of(const std::vector<Tensor>& defined) {
  return {defined.at(0), defined.size() > 1 ? defined[1] : Tensor()};
}

HeadParameters read_head(model::Linear& head) { return {head.weight(), head.bias()}; }

Tensor take(const Tensor& rows, const Chunk& chunk) {
  std::vector<Tensor> parts;
  for (const auto& [start, count] : chunk) parts.push_back(rows.narrow(0, start, count));
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

Tensor row_log_probabilities(const Tensor& states, const HeadParameters& head, const Tensor& targets) {
  return score(states, head, targets).log_probabilities;
}

Tensor fused_linear(const Tensor& hidden, const HeadParameters& head, const FusedLinear& problem,
                    const HeadParameters& without_gradient) {
  return Operator::apply(hidden, head.weight, optional(head.bias), optional(without_gradient.weight),
                         optional(without_gradient.bias), &problem);
}

}  // namespace regather::loss
