#include "train/reference.h"

#include <torch/optim/adamw.h>

#include "loss/sft.h"
#include "train/prepare.h"

namespace regather::train {
namespace {

std::map<std::string, at::Tensor> values(const model::CausalLM& model) {
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, parameter] : model::distinct_parameters(model)) copies[name] = parameter.detach().clone();
  return copies;
}

}  // namespace

std::shared_ptr<const Reference> compute_reference(const Setting& setting, const Case& c) {
  const std::shared_ptr<model::CausalLM> model = model::clone_as(*setting.initial, at::kDouble);
  freeze(*model, c.frozen);
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
  for (int step = 0; step < kSteps; ++step) {
    ReferenceStep result;
    optimizer.zero_grad();
    for (int rank = 0; rank < c.world; ++rank) {
      const loss::Batch batch = loss::make_batch(setting.batch, setting.seed, rank, step);
      const at::Tensor loss = loss::sft_eager((*model)(batch.input_ids), batch.labels);
      result.losses.push_back(loss.item<double>());
      (loss / c.world).backward();
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
