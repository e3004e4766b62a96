// Which weights of a decoder QLoRA packs, and how a model gets them.
#pragma once

#include "model/qwen2.h"

namespace regather::model {

// Packs the weight of every linear layer in the decoder layers, adapters aside: what transformers quantises by default,
// which leaves the head, the embedding, norms and biases as they are. Packed parameters keep their names and are
// frozen.
void quantise(CausalLM& model, at::ScalarType storage);

// Rounds the same weights to what they would be packed as. The model stays dense; quantise() then changes no value.
void round_to_quantised(CausalLM& model);

}  // namespace regather::model
