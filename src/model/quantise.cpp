#include "model/quantise.h"

#include <ATen/core/grad_mode.h>

#include "model/packed_weight.h"

namespace regather::model {
namespace {

template <typename Function>
void for_each_base_linear(const CausalLM& model, Function&& function) {
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    const std::string& name = item.key();
    if (name.find(".layers.") == std::string::npos || name.find("lora_") != std::string::npos) continue;
    if (auto* linear = dynamic_cast<Linear*>(item.value().get())) function(*linear);
  }
}

}  // namespace

void quantise(CausalLM& model, at::ScalarType storage) {
  for_each_base_linear(model, [&](Linear& linear) { linear.set_packed(pack(linear.weight_handle(), storage)); });
}

void round_to_quantised(CausalLM& model) {
  const at::NoGradGuard no_grad;
  for_each_base_linear(model, [](Linear& linear) {
    const Tensor& weight = linear.weight_handle();
    const PackedWeight rounded = pack(weight, at::kByte);
    weight.detach().copy_(dequantise(rounded.packed, *rounded.quantisation, at::kFloat));
  });
}

}  // namespace regather::model
