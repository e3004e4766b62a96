// A model's parameters by name, tied ones once under their first name.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace regather::shard {

inline std::vector<std::pair<std::string, at::Tensor>> named_parameters_once(const torch::nn::Module& root) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : root.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.emplace_back(item.key(), item.value());
  }
  return result;
}

}  // namespace regather::shard
