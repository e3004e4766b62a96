// Causal self attention with grouped key-value heads and rotary positions.
#pragma once

#include "model/config.h"
#include "model/context.h"
#include "model/layers.h"

namespace regather::model {

class Attention : public ContextModule {
 public:
  explicit Attention(const Config& config);
  // hidden [B, T, hidden] -> [B, T, hidden]. Scores are normalised in float32 or wider.
  Tensor forward(const Tensor& hidden) override;

 private:
  // [B, T, heads * head_dim] -> [B, heads, T, head_dim]
  Tensor split_heads(const Tensor& x) const;

  int64_t head_dim_;
  int64_t groups_;  // query heads a key-value head
  std::shared_ptr<Linear> q_proj_;
  std::shared_ptr<Linear> k_proj_;
  std::shared_ptr<Linear> v_proj_;
  std::shared_ptr<Linear> o_proj_;
};

}  // namespace regather::model
