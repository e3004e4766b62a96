// Writes what a case is given and what is right for it, so that another stack runs the same case: initial weights,
// batches, and the float64 reference's losses, gradients and updates. The layout is described where it is read:
// matrix/peers/regather_peers/given.py.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/reference.h"
#include "train/setting.h"

namespace regather::train {

// Whole gradients as each rank got them, [rank][step], by name; a parameter without gradient is left out.
using GradientRecord = std::vector<std::vector<std::map<std::string, at::Tensor>>>;

// A safetensors file; `recorded` may be empty. Throws what model::write_safetensors throws.
void export_case(const std::filesystem::path& file, const Case& c, const Setting& setting, const Reference& reference,
                 const GradientRecord& recorded);

}  // namespace regather::train
