#include "train/prepare.h"

#include <ATen/core/grad_mode.h>

#include "autograd/checkpoint.h"
#include "train/precision.h"

namespace regather::train {
namespace {

bool trains(const std::string& name, Frozen frozen) {
  const auto contains = [&](const char* part) { return name.find(part) != std::string::npos; };
  switch (frozen) {
    case Frozen::none:
      return true;
    case Frozen::norms:
      return !contains("norm");
    case Frozen::lora:
    case Frozen::quantised:
      return contains("lora_");
    case Frozen::head:
      return !contains("lm_head");
    case Frozen::embedding:
      return !contains("embed_tokens");
  }
  return true;
}

model::BlockRunner checkpointer(const Case& c) {
  if (c.checkpoint == Checkpoint::reentrant) {
    return [](const model::Module::Body& block, const at::Tensor& input) {
      return autograd::checkpoint_reentrant(block, input);
    };
  }
  return [options = autograd::CheckpointOptions{.early_stop = c.early_stop}](const model::Module::Body& block,
                                                                             const at::Tensor& input) {
    return autograd::checkpoint_nonreentrant(block, input, options);
  };
}

void add_checkpoints(model::CausalLM& model, const Case& c) {
  if (c.checkpoint == Checkpoint::none) return;
  if (c.checkpoint_at == CheckpointAt::call) {
    model.backbone().run_layer = checkpointer(c);
    return;
  }
  for (const auto& layer : model.backbone().layers()) layer->run_forward = checkpointer(c);
}

}  // namespace

void freeze(model::CausalLM& model, Frozen frozen) {
  // A tied parameter goes by its first name, the embedding's.
  for (const auto& [name, parameter] : model::distinct_parameters(model)) {
    parameter.set_requires_grad(trains(name, frozen));
  }
}

std::shared_ptr<model::CausalLM> prepare_model(const Setting& setting, const Case& c) {
  std::shared_ptr<model::CausalLM> model =
      model::clone_as(*setting.initial, precision(c, setting.initial->config().layers).stored);
  freeze(*model, c.frozen);
  add_checkpoints(*model, c);
  if (c.input_grad) {
    // transformers' enable_input_require_grads; before the backend's hooks, as a trainer registers it.
    model->backbone().embedding().add_post_forward([](model::Module&, const at::Tensor& embedded) {
      return at::GradMode::is_enabled() ? embedded.requires_grad_(true) : embedded;
    });
  }
  return model;
}

}  // namespace regather::train
