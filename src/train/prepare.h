// Turns the axes of a case into a model that is ready to be wrapped.
#pragma once

#include <memory>

#include "train/setting.h"

namespace regather::train {

// Sets requires_grad of every parameter. norms: names with "norm" frozen; lora, quantised: all but the adapters frozen.
void freeze(model::CausalLM& model, Frozen frozen);

// A copy of the setting's model, stored as the case's dtype asks, with the case's frozen set, checkpoints and
// input_grad; quantised: its base packed.
std::shared_ptr<model::CausalLM> prepare_model(const Setting& setting, const Case& c);

}  // namespace regather::train
