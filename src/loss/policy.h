// What a loss asks of the fixes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "model/qwen2.h"

namespace regather::loss {

// A use of the head's parameters: it is given them.
using HeadBody = std::function<at::Tensor(const std::vector<at::Tensor>& parameters)>;

// Surrounds each direct use of the head's parameters by a loss.
class HeadScope {
 public:
  virtual ~HeadScope() = default;
  // `parameters` were read from the head just before. `body` is given those to use, in the same order: by default the
  // very same, as they are.
  virtual at::Tensor around(const std::vector<at::Tensor>& parameters, const HeadBody& body) {
    return body(parameters);
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
