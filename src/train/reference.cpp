#include "train/reference.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>

#include "loss/kto.h"
#include "model/adapters.h"
#include "train/given.h"
#include "train/prepare.h"
#include "train/step_loss.h"

namespace regather::train {
namespace {

std::map<std::string, at::Tensor> values(const model::CausalLM& model) {
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, parameter] : model::distinct_parameters(model)) copies[name] = parameter.detach().clone();
  return copies;
}

// Logits of the reference: a model of its own, or the policy with its adapters off.
at::Tensor reference_forward(model::CausalLM& policy, model::CausalLM* separate, const at::Tensor& input_ids) {
  const at::NoGradGuard no_grad;
  if (separate != nullptr) return (*separate)(input_ids);
  const model::AdaptersOff base(policy);
  return policy(input_ids);
}

// kto's KL term over all ranks.
at::Tensor kl_term(MicroBatch& micro, model::CausalLM& policy, model::CausalLM* separate) {
  const at::NoGradGuard no_grad;
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const loss::Batch& batch : micro.batches) {
    sum += loss::kto_log_ratio(policy(batch.mismatched_ids), reference_forward(policy, separate, batch.mismatched_ids),
                               batch.mismatched_labels);
  }
  const at::Tensor mean = sum / static_cast<double>(micro.batches.size());
  micro.mean_log_ratio = mean.item<double>();
  return loss::kto_kl(mean);
}

}  // namespace

std::shared_ptr<const Reference> compute_reference(const Setting& setting, const Case& c) {
  const std::shared_ptr<model::CausalLM> model = model::clone_as(*setting.initial, at::kDouble);
  freeze(*model, c.frozen);
  std::shared_ptr<model::CausalLM> reference_model;
  if (has_reference(c.loss) && c.reference == regather::Reference::separate) {
    reference_model = model::clone_as(*setting.reference, at::kDouble);
  }
  std::vector<std::pair<std::string, at::Tensor>> trainable;
  std::vector<at::Tensor> tensors;
  for (const auto& item : model::distinct_parameters(*model)) {
    if (!item.second.requires_grad()) continue;
    trainable.push_back(item);
    tensors.push_back(item.second);
  }
  torch::optim::AdamW optimizer(tensors, torch::optim::AdamWOptions(setting.optimizer.lr)
                                             .betas({setting.optimizer.beta1, setting.optimizer.beta2})
                                             .eps(setting.optimizer.eps)
                                             .weight_decay(setting.optimizer.weight_decay));

  auto reference = std::make_shared<Reference>();
  for (int step = 0; step < c.steps; ++step) {
    ReferenceStep result;
    optimizer.zero_grad();
    const int micro_batches = micro_batches_of(c);
    for (int i = 0; i < micro_batches; ++i) {
      MicroBatch micro;
      micro.batches = given_batches(setting, c, step * micro_batches + i);
      const at::Tensor kl = c.loss == Loss::kto ? kl_term(micro, *model, reference_model.get()) : at::Tensor();
      for (const loss::Batch& batch : micro.batches) {
        const auto reference_logits = [&] { return reference_forward(*model, reference_model.get(), batch.input_ids); };
        const at::Tensor loss = loss_from_logits(c.loss, (*model)(batch.input_ids), batch, reference_logits, kl);
        micro.losses.push_back(loss.item<double>());
        (loss / (c.world * micro_batches)).backward();
      }
      result.micro_batches.push_back(std::move(micro));
    }
    for (const auto& [name, parameter] : trainable) result.gradients[name] = parameter.grad().clone();
    const auto before = values(*model);
    optimizer.step();
    for (const auto& [name, after] : values(*model)) result.updates[name] = after - before.at(name);
    reference->steps.push_back(std::move(result));
  }
  return reference;
}

}  // namespace regather::train
