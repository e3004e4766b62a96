// Loads a Hugging Face folder (config.json, model.safetensors or its sharded index) into a CausalLM.
#pragma once

#include <filesystem>

#include "model/qwen2.h"

namespace regather::model {

// Throws UsageError for a missing tensor, a wrong shape or dtype, a truncated file or a hostile header: the text names
// the file, the tensor, what was found and what was expected. LoRA adapters are not read from the folder.
void load_weights(CausalLM& model, const std::filesystem::path& folder);

}  // namespace regather::model
