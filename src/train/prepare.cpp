#include "train/prepare.h"

#include <ATen/core/grad_mode.h>

#include "autograd/checkpoint.h"
#include "model/quantise.h"
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

// What dtype packed weights pass for (bitsandbytes' quant_storage): bytes, but for FSDP2, which shards no integers,
// that in which parameters are gathered.
at::ScalarType packed_storage(Backend backend, const Precision& dtypes) {
  return backend == Backend::fsdp2 ? dtypes.computed : at::kByte;
}

void add_checkpoints(model::CausalLM& model, const Case& c) {
  if (c.checkpoint == Checkpoint::none) return;
  switch (c.checkpoint_at) {
    case CheckpointAt::forward:
      for (const auto& layer : model.backbone().layers()) layer->run_forward = checkpointer(c);
      break;
    case CheckpointAt::call:
      model.backbone().run_layer = checkpointer(c);
      break;
    case CheckpointAt::parent:
      model.backbone().run_layers = checkpointer(c);
      break;
  }
}

}  // namespace

void freeze(model::CausalLM& model, Frozen frozen) {
  // A tied parameter goes by its first name, the embedding's.
  for (const auto& [name, parameter] : model::distinct_parameters(model)) {
    parameter.set_requires_grad(trains(name, frozen));
  }
}

std::shared_ptr<model::CausalLM> prepare_model(const Setting& setting, const Case& c) {
  const Precision dtypes = precision(c, setting.initial->config().layers);
  std::shared_ptr<model::CausalLM> model = model::clone_as(*setting.initial, dtypes.stored);
  if (c.frozen == Frozen::quantised) model::quantise(*model, packed_storage(c.backend, dtypes));
  model->to(setting.device);
  freeze(*model, c.frozen);
  add_checkpoints(*model, c);
  if (c.layer_input == LayerInput::fp32) model->backbone().layer_input = at::kFloat;
  if (c.input_grad) {
    // transformers' enable_input_require_grads; before the backend's hooks, as a trainer registers it.
    model->backbone().embedding().add_post_forward([](model::Module&, const at::Tensor& embedded) {
      return at::GradMode::is_enabled() ? embedded.requires_grad_(true) : embedded;
    });
  }
  return model;
}

}  // namespace regather::train
