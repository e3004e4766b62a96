#include "model/mlp.h"

#include <ATen/ops/silu.h>

namespace regather::model {

Mlp::Mlp(const Config& config) {
  gate_proj_ = register_module("gate_proj", std::make_shared<Linear>(config.hidden, config.intermediate, false));
  up_proj_ = register_module("up_proj", std::make_shared<Linear>(config.hidden, config.intermediate, false));
  down_proj_ = register_module("down_proj", std::make_shared<Linear>(config.intermediate, config.hidden, false));
}

Tensor Mlp::forward(const Tensor& hidden) {
  // Statements, not one expression: C++ leaves the order of operands open, and what autograd saves has an order.
  const Tensor gate = at::silu((*gate_proj_)(hidden));
  const Tensor up = (*up_proj_)(hidden);
  return (*down_proj_)(gate * up);
}

}  // namespace regather::model
