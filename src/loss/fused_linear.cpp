#include "loss/fused_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "case/fault.h"
#include "loss/batch.h"

namespace regather::loss {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
namespace op = kernels::op;

kernels::Defect seeded_defect() {
  switch (seeded_fault()) {
    case Fault::lose_last_chunk:
      return kernels::Defect::lost_chunk;
    case Fault::count_pad:
      return kernels::Defect::counted_pad;
    case Fault::leave_target:
      return kernels::Defect::unpatched_target;
    case Fault::scale_rows_twice:
      return kernels::Defect::scaled_twice;
    case Fault::keep_sum:
      return kernels::Defect::stale_sum;
    default:
      return kernels::Defect::none;
  }
}

bool is_plain(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.key_set().has(c10::DispatchKey::Fake);
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
    op::Given given(hidden);
    op::How how;
    how.chunk_rows = problem->chunk_rows;
    how.defect = seeded_defect();
    auto [loss, by_hidden, by_weight, by_bias, log_probabilities] =
        op::run({hidden, weight, problem->targets, bias, kIgnore}, how, given, problem->loss(given));
    if (fault_is(Fault::swap_gradients)) swap_rows(by_weight);
    const auto wanted = [](const Tensor& input, Tensor gradient) {
      return input.requires_grad() ? std::move(gradient) : Tensor();
    };
    context->save_for_backward({wanted(hidden, by_hidden), wanted(weight, by_weight),
                                bias ? wanted(*bias, by_bias.to(bias->scalar_type())) : Tensor()});
    return loss;
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

void check_product(const Tensor& states, const HeadParameters& head, int64_t rows) {
  const bool plain = is_plain(states) && is_plain(head.weight) && head.weight.dim() == 2 &&
                     head.weight.size(1) == states.size(1) && head.weight.scalar_type() == states.scalar_type() &&
                     (!head.bias.defined() || is_plain(head.bias));
  if (plain) return;
  const at::NoGradGuard no_grad;
  Tensor logits = at::matmul(states.narrow(0, 0, std::min(rows, states.size(0))), head.weight.t());
  if (head.bias.defined()) logits = logits + head.bias;
}

Tensor row_log_probabilities(const Tensor& states, const HeadParameters& head, const Tensor& targets) {
  const at::NoGradGuard no_grad;
  return op::log_probabilities({states, head.weight, targets, optional(head.bias), kIgnore});
}

Tensor fused_linear(const Tensor& hidden, const HeadParameters& head, const FusedLinear& problem,
                    const HeadParameters& without_gradient) {
  return Operator::apply(hidden, head.weight, optional(head.bias), optional(without_gradient.weight),
                         optional(without_gradient.bias), &problem);
}

}  // namespace regather::loss
