// The operators with autograd: a pass in forward leaves the gradients, backward only scales them, in place, where the
// loss's own gradient is not 1.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <functional>
#include <optional>
#include <tuple>

#include "kernels/op/outputs.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Pass = std::function<Outputs()>;

void scale_stash(const Tensor& stash, const Tensor& by) {
  static const auto scale = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("regather::_scale_stash", "")
                                .typed<void(const Tensor&, const Tensor&)>();
  scale.call(stash, by);
}

struct Stashed : torch::autograd::Function<Stashed> {
  static variable_list forward(AutogradContext* context, const Tensor& /*hidden*/, const Tensor& /*weight*/,
                               const Optional& bias, const Pass* pass) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [loss, hidden_gradient, weight_gradient, bias_gradient, log_probabilities] = (*pass)();
    context->save_for_backward({hidden_gradient, weight_gradient, bias.has_value() ? bias_gradient : Tensor()});
    context->saved_data["spent"] = false;
    context->mark_non_differentiable({log_probabilities});
    return {loss, log_probabilities};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK(!context->saved_data["spent"].toBool(),
                "regather: backward a second time through a fused linear loss; its gradients exist once, and the first "
                "backward has taken them. Call the loss again");
    context->saved_data["spent"] = true;
    variable_list stash = context->get_saved_variables();
    for (const Tensor& gradient : stash) {
      if (gradient.defined()) scale_stash(gradient, gradients[0]);
    }
    return {stash[0], stash[1], stash[2], Tensor()};
  }
};

std::tuple<Tensor, Tensor> with_autograd(const Tensor& hidden, const Tensor& weight, const Optional& bias,
                                         const Pass& pass) {
  const variable_list results = Stashed::apply(hidden, weight, bias, &pass);
  return {results[0], results[1]};
}

// The operator beneath, by its name, with the same arguments.
template <class... Arguments>
Outputs beneath(const char* name, Arguments... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Outputs(Arguments...)>().call(
      arguments...);
}

using Both = std::tuple<Tensor, Tensor>;

Both sft(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias, int64_t ignore_index,
         int64_t workspace, bool float_weight_gradient, bool deterministic) {
  return with_autograd(hidden, weight, bias, [&] {
    return beneath<const Tensor&, const Tensor&, const Tensor&, const Optional&>(
        "regather::_linear_sft", hidden, weight, targets, bias, ignore_index, workspace, float_weight_gradient,
        deterministic);
  });
}

Both grpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor& advantages,
          const Optional& old_log_probabilities, const Optional& reference_log_probabilities, double epsilon_low,
          double epsilon_high, double beta, const Optional& bias, int64_t ignore_index, int64_t workspace,
          bool float_weight_gradient, bool deterministic) {
  return with_autograd(hidden, weight, bias, [&] {
    return beneath<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Optional&, const Optional&, double,
                   double, double, const Optional&>("regather::_linear_grpo", hidden, weight, targets, advantages,
                                                    old_log_probabilities, reference_log_probabilities, epsilon_low,
                                                    epsilon_high, beta, bias, ignore_index, workspace,
                                                    float_weight_gradient, deterministic);
  });
}

Both dpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor& reference_log_probabilities,
         double beta, const Optional& bias, int64_t ignore_index, int64_t workspace, bool float_weight_gradient,
         bool deterministic) {
  return with_autograd(hidden, weight, bias, [&] {
    return beneath<const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, const Optional&>(
        "regather::_linear_dpo", hidden, weight, targets, reference_log_probabilities, beta, bias, ignore_index,
        workspace, float_weight_gradient, deterministic);
  });
}

Both kto(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor& reference_log_probabilities,
         const Tensor& desirable, const Tensor& kl, double beta, const Optional& bias, int64_t ignore_index,
         int64_t workspace, bool float_weight_gradient, bool deterministic) {
  return with_autograd(hidden, weight, bias, [&] {
    return beneath<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, double,
                   const Optional&>("regather::_linear_kto", hidden, weight, targets, reference_log_probabilities,
                                    desirable, kl, beta, bias, ignore_index, workspace, float_weight_gradient,
                                    deterministic);
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(regather, CompositeImplicitAutograd, library) {
  library.impl("linear_sft", sft);
  library.impl("linear_grpo", grpo);
  library.impl("linear_dpo", dpo);
  library.impl("linear_kto", kto);
}

}  // namespace regather::kernels::op
