#include <ATen/ops/empty.h>

#include <atomic>

#include "kernels/op/pass.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;

std::atomic<const Device*> cuda{nullptr};

const Device& kernels_for(const Tensor& tensor) {
  if (tensor.is_cpu()) return cpu_device();
  const Device* found = tensor.is_cuda() ? cuda.load() : nullptr;
  TORCH_CHECK(found != nullptr, "regather: no kernels for ", tensor.device(), " are loaded");
  return *found;
}

Dtype dtype_of(const Tensor& tensor, const char* name) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return Dtype::bf16;
    case at::kHalf:
      return Dtype::fp16;
    case at::kFloat:
      return Dtype::fp32;
    default:
      TORCH_CHECK(false, "regather: ", name, " is ", tensor.scalar_type(), ", not bfloat16, float16 or float32");
  }
}

Linear linear_of(const Head& head, Given& given) {
  TORCH_CHECK(head.weight.dim() == 2 && head.hidden.dim() >= 2 && head.hidden.size(-1) == head.weight.size(1),
              "regather: hidden ", head.hidden.sizes(), " and weight ", head.weight.sizes(),
              " are not [..., H] and [V, H]");
  TORCH_CHECK(head.hidden.sizes().slice(0, static_cast<size_t>(head.hidden.dim() - 1)) == head.targets.sizes(),
              "regather: targets ", head.targets.sizes(), " do not fit hidden ", head.hidden.sizes());
  TORCH_CHECK(head.weight.scalar_type() == head.hidden.scalar_type(), "regather: weight is ", head.weight.scalar_type(),
              ", hidden ", head.hidden.scalar_type());
  Linear linear;
  linear.rows = head.tokens();
  linear.width = head.weight.size(1);
  linear.vocab = head.weight.size(0);
  linear.dtype = dtype_of(head.hidden, "hidden");
  linear.hidden = given.dense(head.hidden, "hidden");
  linear.weight = given.dense(head.weight, "weight");
  linear.bias = given.pointer<void>(head.bias, "bias", head.weight.scalar_type(), linear.vocab);
  linear.targets = given.pointer<int64_t>(head.targets, "targets", at::kLong, linear.rows);
  linear.ignore_index = head.ignore_index;
  return linear;
}

}  // namespace

void use_cuda(const Device& device) { cuda.store(&device); }

Outputs run(const Head& head, const How& how, Given& given, const LossParameters& loss) {
  const Linear linear = linear_of(head, given);
  const auto floats = head.hidden.options().dtype(at::kFloat);
  Tensor value = at::empty({}, floats);
  Tensor hidden_gradient = at::empty(head.hidden.sizes(), head.hidden.options());
  Tensor weight_gradient = at::empty(head.weight.sizes(), how.float_weight_gradient ? floats : head.weight.options());
  Tensor bias_gradient = at::empty({linear.bias != nullptr ? linear.vocab : 0}, floats);
  Tensor log_probabilities = at::empty(head.targets.sizes(), floats);
  Results results;
  results.loss = value.data_ptr<float>();
  results.hidden_gradient = hidden_gradient.data_ptr();
  results.weight_gradient = weight_gradient.data_ptr();
  results.weight_dtype = how.float_weight_gradient ? Dtype::fp32 : linear.dtype;
  results.bias_gradient = linear.bias != nullptr ? bias_gradient.data_ptr<float>() : nullptr;
  results.log_probabilities = log_probabilities.data_ptr<float>();
  kernels_for(head.hidden).run(head.hidden, linear, loss, results, how);
  return {value, hidden_gradient, weight_gradient, bias_gradient, log_probabilities};
}

Tensor log_probabilities(const Head& head) {
  Given given(head.hidden);
  const Linear linear = linear_of(head, given);
  Tensor out = at::empty(head.targets.sizes(), head.hidden.options().dtype(at::kFloat));
  kernels_for(head.hidden).log_probabilities(head.hidden, linear, out.data_ptr<float>());
  return out;
}

void scale_stash(const Tensor& stash, const Tensor& by) {
  TORCH_CHECK(by.numel() == 1 && by.device() == stash.device(), "regather: the loss's gradient is no scalar");
  kernels_for(stash).scale(stash, dtype_of(stash, "the gradient"), by);
}

}  // namespace regather::kernels::op
