// Loads a Hugging Face folder (config.json, model.safetensors or its sharded index) into a CausalLM.
#pragma once

#include <filesystem>

#include "model/qwen2.h"

namespace regather::model {

// Fills the model's parameters from model.safetensors or, without one, from the files of model.safetensors.index.json.
// F32, F64, F16 and BF16 become the parameter's dtype. Model and folder may differ in three ways:
// - adapters and the head's bias keep their values when the folder has none;
// - a tied model takes a folder with a head of its own, and ignores that head;
// - an untied model takes a folder whose config.json ties: its head starts as a copy of the embedding.
// Everything else is a UsageError that names the file, the tensor, what was found and what was expected: a missing or
// an additional tensor, a wrong shape or dtype, a value that is not finite, a truncated file, a hostile header. All
// headers are checked before the first parameter changes.
void load_weights(CausalLM& model, const std::filesystem::path& folder);

}  // namespace regather::model
