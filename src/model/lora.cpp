#include "model/layers.h"

namespace regather::model {

LoraLinear::LoraLinear(int64_t in, int64_t out, bool bias, int64_t rank, double alpha)
    : Linear(in, out, bias), scale_(alpha / static_cast<double>(rank)) {
  a_ = register_module("lora_A", std::make_shared<Linear>(in, rank, /*bias=*/false));
  b_ = register_module("lora_B", std::make_shared<Linear>(rank, out, /*bias=*/false));
}

Tensor LoraLinear::forward(const Tensor& x) {
  const Tensor base = Linear::forward(x);
  if (!adapters_enabled) return base;
  return base + (*b_)((*a_)(x)) * scale_;
}

}  // namespace regather::model
