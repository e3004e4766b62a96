// The operators beneath autograd, the same on every device.
#include <torch/library.h>

#include "kernels/op/pass.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;

How how_of(int64_t workspace, bool float_weight_gradient, bool deterministic) {
  How how;
  how.workspace = workspace;
  how.float_weight_gradient = float_weight_gradient;
  how.deterministic = deterministic;
  return how;
}

Outputs sft(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias,
            int64_t ignore_index, int64_t workspace, bool float_weight_gradient, bool deterministic) {
  Given given(hidden);
  return run({hidden, weight, targets, bias, ignore_index}, how_of(workspace, float_weight_gradient, deterministic),
             given, Sft{});
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
  return run({hidden, weight, targets, bias, ignore_index}, how_of(workspace, float_weight_gradient, deterministic),
             given, loss);
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
  return run({hidden, weight, targets, bias, ignore_index}, how_of(workspace, float_weight_gradient, deterministic),
             given, loss);
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
  return run({hidden, weight, targets, bias, ignore_index}, how_of(workspace, float_weight_gradient, deterministic),
             given, loss);
}

Tensor of_reference(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias,
                    int64_t ignore_index) {
  return log_probabilities({hidden, weight, targets, bias, ignore_index});
}

void implement(torch::Library& library) {
  library.impl("_linear_sft", sft);
  library.impl("_linear_grpo", grpo);
  library.impl("_linear_dpo", dpo);
  library.impl("_linear_kto", kto);
  library.impl("linear_log_probabilities", of_reference);
  library.impl("_scale_stash", scale_stash);
}

}  // namespace

TORCH_LIBRARY_IMPL(regather, CPU, library) { implement(library); }

#ifdef REGATHER_OP_CUDA
TORCH_LIBRARY_IMPL(regather, CUDA, library) {
  use_cuda(cuda_device());
  implement(library);
  library.impl("_products_settled", cuda_device().products_settled);
}
#endif

}  // namespace regather::kernels::op
