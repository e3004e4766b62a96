// The Qwen2 causal decoder as transformers defines it (modeling_qwen2), with LoRA adapters on q, k, v, o.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/context.h"
#include "model/layers.h"
#include "model/module.h"

namespace regather::model {

// Runs a block on its input; train installs one that checkpoints. `block` may be run again during backward: it carries
// the context of its own forward and keeps its layer alive.
using BlockRunner = std::function<Tensor(const Module::Body& block, const Tensor& input)>;

class Attention;
class Mlp;

class DecoderLayer : public ContextModule {
 public:
  explicit DecoderLayer(const Config& config);
  // Residual blocks; with run_forward set, run_forward(block, input) instead of the block itself
  // (checkpoint_at=forward: the layer's own hooks stay outside).
  Tensor forward(const Tensor& hidden) override;
  BlockRunner run_forward;

 private:
  Tensor block(const Tensor& hidden);
  std::shared_ptr<RmsNorm> input_layernorm_;
  std::shared_ptr<Attention> self_attn_;
  std::shared_ptr<RmsNorm> post_attention_layernorm_;
  std::shared_ptr<Mlp> mlp_;
};

class Decoder : public Module {
 public:
  explicit Decoder(const Config& config);
  // input_ids [B, T] int64 -> hidden states [B, T, hidden] after the final norm.
  Tensor forward(const Tensor& input_ids) override;
  BlockRunner run_layer;   // checkpoint_at=call: the block is the layer with its own hooks
  BlockRunner run_layers;  // checkpoint_at=parent: the block is all of them
  // The dtype in which hidden states are handed to each layer, when not the one that they have (layer_input=fp32).
  std::optional<at::ScalarType> layer_input;

  const std::vector<std::shared_ptr<DecoderLayer>>& layers() const { return layers_; }
  Embedding& embedding() { return *embed_tokens_; }

 private:
  Tensor frequencies_;
  std::shared_ptr<Embedding> embed_tokens_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  std::shared_ptr<RmsNorm> norm_;
};

// Parameter names are transformers': model.embed_tokens.weight, model.layers.N.self_attn.q_proj.weight,
// model.layers.N.input_layernorm.weight, model.norm.weight, lm_head.weight (absent from named parameters twice when
// tied: the head's module then holds the embedding's own tensor), and for adapters
// model.layers.N.self_attn.q_proj.lora_A.weight / lora_B.weight.
class CausalLM : public Module {
 public:
  explicit CausalLM(const Config& config);

  // The model's own forward: logits [B, T, vocab] through the head's module.
  Tensor forward(const Tensor& input_ids) override;
  Decoder& backbone() { return *model_; }
  Linear& head() { return *lm_head_; }
  const Config& config() const { return config_; }

 private:
  Config config_;
  std::shared_ptr<Decoder> model_;
  std::shared_ptr<Linear> lm_head_;
};

// Fills every parameter from `seed` by name, rounded to float32 and then to the parameter's dtype: the same numbers
// whatever the order, rank or transport, and a float64 model starts from exactly the float32 values. Matrices: standard
// deviation 0.02 (transformers' initializer_range); norms: 1 + small; biases small; LoRA's B is not zero. For a model
// whose weights are dense.
void initialise(CausalLM& model, uint64_t seed);

// A copy of the model in another dtype, on the same device: values rounded, packed weights as they are, requires_grad
// flags and ties kept, hooks and block runners left out.
std::shared_ptr<CausalLM> clone_as(const CausalLM& model, at::ScalarType dtype);

// Distinct parameters with their first name, tied ones once.
std::vector<std::pair<std::string, Tensor>> distinct_parameters(const torch::nn::Module& module);

}  // namespace regather::model
