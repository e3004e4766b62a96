// What a loss asks of the fixes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "model/qwen2.h"

namespace regather::loss {

// Surrounds each direct use of the head's parameters by a loss.
class HeadScope {
 public:
  virtual ~HeadScope() = default;
  // `parameters` were read from the head just before; `body` reads them. By default nothing is gathered.
  virtual at::Tensor around(const std::vector<at::Tensor>& parameters, const std::function<at::Tensor()>& body) {
    static_cast<void>(parameters);
    return body();
  }
};

// The extra forward for KTO's KL term.
class KlForward {
 public:
  virtual ~KlForward() = default;
  // Logits [B, T, V] of input_ids [B, T], without grad. By default the model is called as anybody would call it.
  virtual at::Tensor logits(model::CausalLM& model, const at::Tensor& input_ids, HeadScope& scope) {
    static_cast<void>(scope);
    return model(input_ids);
  }
};

}  // namespace regather::loss
