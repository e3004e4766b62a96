// Turns the axes of a case into a model that is ready to be wrapped.
#pragma once

#include <memory>

#include "loss/policy.h"
#include "train/setting.h"

namespace regather::train {

// Sets requires_grad of every parameter. norms: names with "norm" frozen; lora: all but the adapters frozen.
void freeze(model::CausalLM& model, Frozen frozen);

// A float32 copy of the setting's model with the case's frozen set, checkpoints and input_grad.
std::shared_ptr<model::CausalLM> prepare_model(const Setting& setting, const Case& c);

// The loss of one batch, computed on the model's submodules; eager through the model's own forward.
// `root_runs`: the root's forward is in progress (the wrapper called it), so its hooks must not run again.
at::Tensor compute_loss(model::CausalLM& model, const Case& c, const loss::Batch& batch, loss::HeadScope& scope,
                        bool root_runs);

}  // namespace regather::train
