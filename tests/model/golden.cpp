#include "golden.h"

#include <torch/csrc/autograd/grad_mode.h>

#include <limits>

namespace regather::model {

at::Tensor Golden::tensor(const std::string& name) const {
  const StoredTensor& stored = file_.header().tensors.at(name);
  const at::ScalarType dtype = stored.dtype == "I64"   ? at::kLong
                               : stored.dtype == "F64" ? at::kDouble
                               : stored.dtype == "U8"  ? at::kByte
                                                       : at::kFloat;
  at::Tensor values = at::empty(stored.shape, dtype);
  file_.read(stored, {static_cast<std::byte*>(values.data_ptr()), values.nbytes()});
  return values;
}

std::shared_ptr<CausalLM> load_variant(const std::string& variant) {
  const bool lora = variant == "lora";
  const auto folder = checkpoint_folder(lora ? "gqa" : variant);
  Config config = read_config(folder);
  config.head_bias = variant.ends_with("head-bias");
  if (lora) {
    config.lora_rank = 3;
    config.lora_alpha = 6;
  }
  auto model = std::make_shared<CausalLM>(config);
  load_weights(*model, folder);
  if (lora) {
    const Golden golden(variant);
    const at::NoGradGuard no_grad;
    for (auto& [name, parameter] : distinct_parameters(*model)) {
      const bool adapter = name.find(".lora_") != std::string::npos;
      if (adapter) parameter.copy_(golden.tensor("adapter/" + name));
      parameter.set_requires_grad(adapter);
    }
  }
  return model;
}

at::Tensor sft_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const int64_t length = logits.size(1);
  return at::cross_entropy_loss(logits.slice(1, 0, length - 1).reshape({-1, logits.size(2)}),
                                labels.slice(1, 1).reshape({-1}), {}, at::Reduction::Mean, /*ignore_index=*/-100);
}

double distance(const at::Tensor& got, const at::Tensor& want) {
  if (!got.defined() || got.sizes() != want.sizes()) return std::numeric_limits<double>::infinity();
  const at::Tensor reference = want.to(at::kDouble);
  return ((got.detach().to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
}

}  // namespace regather::model
