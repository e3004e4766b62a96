// The operators beneath autograd, the same on every device but for who runs them.
#include "kernels/op/pass.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace regather::kernels::op {

using at::Tensor;

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

namespace {

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
#ifdef REGATHER_OP_CUDA
  if (head.hidden.is_cuda()) {
    run_on_cuda(head.hidden, linear, loss, results, how);
    return {value, hidden_gradient, weight_gradient, bias_gradient, log_probabilities};
  }
#endif
  run_on_cpu(linear, loss, results, how);
  return {value, hidden_gradient, weight_gradient, bias_gradient, log_probabilities};
}

Outputs sft(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias,
            int64_t ignore_index, int64_t workspace, bool float_weight_gradient, bool deterministic) {
  Given given(hidden);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             Sft{});
}

int64_t sequences_of(const Tensor& targets) {
  TORCH_CHECK(targets.dim() == 2, "regather: targets ", targets.sizes(), " are not [B, T]");
  return targets.size(0);
}

Outputs grpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor& advantages,
             const Optional& old_log_probabilities, const Optional& reference_log_probabilities, double epsilon_low,
             double epsilon_high, double beta, const Optional& bias, int64_t ignore_index, int64_t workspace,
             bool float_weight_gradient, bool deterministic) {
  const int64_t sequences = sequences_of(targets);
  Given given(hidden);
  Grpo loss;
  loss.length = targets.size(1);
  loss.advantages = given.pointer<float>(advantages, "advantages", at::kFloat, sequences);
  loss.old_log_probabilities =
      given.pointer<float>(old_log_probabilities, "old_log_probabilities", at::kFloat, targets.numel());
  loss.reference_log_probabilities =
      given.pointer<float>(reference_log_probabilities, "reference_log_probabilities", at::kFloat, targets.numel());
  loss.epsilon_low = static_cast<float>(epsilon_low);
  loss.epsilon_high = static_cast<float>(epsilon_high);
  loss.beta = static_cast<float>(beta);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             loss);
}

Outputs dpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
            const Tensor& reference_log_probabilities, double beta, const Optional& bias, int64_t ignore_index,
            int64_t workspace, bool float_weight_gradient, bool deterministic) {
  sequences_of(targets);
  Given given(hidden);
  Dpo loss;
  loss.length = targets.size(1);
  loss.reference_log_probabilities =
      given.pointer<float>(reference_log_probabilities, "reference_log_probabilities", at::kFloat, targets.numel());
  loss.beta = static_cast<float>(beta);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             loss);
}

Outputs kto(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
            const Tensor& reference_log_probabilities, const Tensor& desirable, const Tensor& kl, double beta,
            const Optional& bias, int64_t ignore_index, int64_t workspace, bool float_weight_gradient,
            bool deterministic) {
  const int64_t sequences = sequences_of(targets);
  Given given(hidden);
  Kto loss;
  loss.length = targets.size(1);
  loss.reference_log_probabilities =
      given.pointer<float>(reference_log_probabilities, "reference_log_probabilities", at::kFloat, targets.numel());
  loss.desirable = given.pointer<bool>(desirable, "desirable", at::kBool, sequences);
  loss.kl = given.pointer<float>(kl, "kl", at::kFloat, 1);
  loss.beta = static_cast<float>(beta);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             loss);
}

void implement(torch::Library& library) {
  library.impl("_linear_sft", sft);
  library.impl("_linear_grpo", grpo);
  library.impl("_linear_dpo", dpo);
  library.impl("_linear_kto", kto);
}

}  // namespace

TORCH_LIBRARY_IMPL(regather, CPU, library) { implement(library); }

#ifdef REGATHER_OP_CUDA
TORCH_LIBRARY_IMPL(regather, CUDA, library) { implement(library); }
#endif

}  // namespace regather::kernels::op
