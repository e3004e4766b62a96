#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <unordered_set>

#include "base/random.h"
#include "model/qwen2.h"

namespace regather::model {
namespace {
// FNV-1a, 64 bits.
uint64_t stream_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// Packed weights go over as they are, whatever the copy's dtype: their bytes are no numbers to round. Returns the
// originals'.
std::unordered_set<const at::TensorImpl*> copy_packed(const CausalLM& model, const CausalLM& copy) {
  std::unordered_set<const at::TensorImpl*> packed;
  const auto from = model.modules(/*include_self=*/false);
  const auto to = copy.modules(/*include_self=*/false);
  for (size_t i = 0; i < from.size(); ++i) {
    const auto* linear = dynamic_cast<const Linear*>(from[i].get());
    if (linear == nullptr || !linear->quantisation()) continue;
    packed.insert(linear->weight_handle().unsafeGetTensorImpl());
    dynamic_cast<Linear&>(*to[i]).set_packed({linear->weight_handle().clone(), linear->quantisation()});
  }
  return packed;
}

constexpr double kDeviation = 0.02;     // transformers' initializer_range
constexpr double kNormDeviation = 0.1;  // norms differ from 1, so that a lost one shows in the loss
}  // namespace

std::vector<std::pair<std::string, Tensor>> distinct_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, Tensor>> out;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) out.emplace_back(item.key(), item.value());
  }
  return out;
}

void initialise(CausalLM& model, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : distinct_parameters(model)) {
    Random random(seed, stream_of(name));
    const bool norm = name.find("norm") != std::string::npos;
    const Tensor values = at::empty(parameter.sizes(), at::kFloat);
    float* out = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      out[i] = static_cast<float>(norm ? 1.0 + kNormDeviation * random.normal() : kDeviation * random.normal());
    }
    parameter.copy_(values);
  }
}

std::shared_ptr<CausalLM> clone_as(const CausalLM& model, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  auto copy = std::make_shared<CausalLM>(model.config());
  const auto packed = copy_packed(model, *copy);
  const auto from = distinct_parameters(model);
  const auto to = distinct_parameters(*copy);
  for (size_t i = 0; i < from.size(); ++i) {
    const Tensor& source = from[i].second;
    if (packed.contains(source.unsafeGetTensorImpl())) continue;
    Tensor target = to[i].second;
    target.set_data(source.detach().to(source.options().dtype(dtype), /*non_blocking=*/false, /*copy=*/true));
    target.set_requires_grad(source.requires_grad());
  }
  return copy;
}

}  // namespace regather::model
