// From the runtime's notes to the names of a model's modules and parameters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/whereabouts.h"
#include "case/result.h"
#include "model/module.h"

namespace regather::train {

// The module and the parameter of a place, by the names that `root` gives them; "" for what is not in it. The root
// itself, in whose call a loss runs, gives way to the module whose parameter was read last.
Where where(const Place& place, const torch::nn::Module& root);

// Of parameters of the decoder, the one that backward reaches first.
std::string nearest_to_loss(const std::vector<std::string>& parameters);

// "model.layers.0.mlp" of "model.layers.0.mlp.up_proj"; "" of a name without parts.
std::string owner_of(std::string_view name);

}  // namespace regather::train
