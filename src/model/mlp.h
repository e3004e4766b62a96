// The gated feed-forward block: down(silu(gate(x)) * up(x)), no biases.
#pragma once

#include "model/config.h"
#include "model/layers.h"

namespace regather::model {

class Mlp : public Module {
 public:
  explicit Mlp(const Config& config);
  Tensor forward(const Tensor& hidden) override;

 private:
  std::shared_ptr<Linear> gate_proj_;
  std::shared_ptr<Linear> up_proj_;
  std::shared_ptr<Linear> down_proj_;
};

}  // namespace regather::model
