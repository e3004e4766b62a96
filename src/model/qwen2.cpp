#include "model/qwen2.h"

#include "base/error.h"
#include "model/attention.h"
#include "model/mlp.h"

namespace regather::model {

DecoderLayer::DecoderLayer(const Config& config) {
  self_attn_ = register_module("self_attn", std::make_shared<Attention>(config));
  mlp_ = register_module("mlp", std::make_shared<Mlp>(config));
  input_layernorm_ = register_module("input_layernorm", std::make_shared<RmsNorm>(config.hidden, config.rms_eps));
  post_attention_layernorm_ =
      register_module("post_attention_layernorm", std::make_shared<RmsNorm>(config.hidden, config.rms_eps));
}

Tensor DecoderLayer::forward(const Tensor& hidden) {
  if (!run_forward) return block(hidden);
  // The graph may outlive the model's owner, and backward runs the block after this call has ended.
  auto self = std::static_pointer_cast<DecoderLayer>(shared_from_this());
  return run_forward(
      [self, own = context()](const Tensor& x) { return self->within(own, [&] { return self->block(x); }); }, hidden);
}

Tensor DecoderLayer::block(const Tensor& hidden) {
  const Tensor attended = hidden + self_attn_->run((*input_layernorm_)(hidden), context());
  return attended + (*mlp_)((*post_attention_layernorm_)(attended));
}

Decoder::Decoder(const Config& config) : frequencies_(rotary_frequencies(config.head_dim(), config.rope_theta)) {
  embed_tokens_ =
      register_module("embed_tokens", std::make_shared<Embedding>(config.vocab, config.hidden, config.padding_token));
  auto list = register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (int64_t i = 0; i < config.layers; ++i) {
    layers_.push_back(list->register_module(std::to_string(i), std::make_shared<DecoderLayer>(config)));
  }
  norm_ = register_module("norm", std::make_shared<RmsNorm>(config.hidden, config.rms_eps));
}

Tensor Decoder::forward(const Tensor& input_ids) {
  REGATHER_CHECK(input_ids.dim() == 2 && input_ids.scalar_type() == at::kLong, "model",
                 "input_ids is {} of {} dimensions: expected int64 [batch, length]",
                 c10::toString(input_ids.scalar_type()), input_ids.dim());
  const Tensor hidden = (*embed_tokens_)(input_ids);
  const ContextPtr context = make_context(frequencies_, input_ids.size(1), hidden.options().requires_grad(false));
  // Backward may run the stack again when this call has ended.
  const auto stack = [layers = layers_, context, cast = layer_input, run = run_layer](const Tensor& input) {
    Tensor x = input;
    for (const auto& layer : layers) {
      if (cast) x = x.to(*cast);
      x = run ? run([layer, context](const Tensor& y) { return layer->run(y, context); }, x) : layer->run(x, context);
    }
    return x;
  };
  return (*norm_)(run_layers ? run_layers(stack, hidden) : stack(hidden));
}

CausalLM::CausalLM(const Config& config) : config_(config) {
  model_ = register_module("model", std::make_shared<Decoder>(config));
  auto head = config.tied ? std::make_shared<Linear>(model_->embedding().weight_handle(), config.head_bias)
                          : std::make_shared<Linear>(config.hidden, config.vocab, config.head_bias);
  lm_head_ = register_module("lm_head", std::move(head));
}

Tensor CausalLM::forward(const Tensor& input_ids) { return (*lm_head_)((*model_)(input_ids)); }

}  // namespace regather::model
