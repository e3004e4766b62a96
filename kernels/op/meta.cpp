// The operators' shapes and dtypes, for tracing: no data is read.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "kernels/op/outputs.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

Outputs shapes(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias,
               bool float_weight_gradient) {
  const auto floats = hidden.options().dtype(at::kFloat);
  return {at::empty({}, floats), at::empty_symint(hidden.sym_sizes(), hidden.options()),
          at::empty_symint(weight.sym_sizes(), float_weight_gradient ? floats : weight.options()),
          bias.has_value() ? at::empty_symint(bias->sym_sizes(), floats) : at::empty({0}, floats),
          at::empty_symint(targets.sym_sizes(), floats)};
}

Outputs sft(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias, int64_t, int64_t,
            bool float_weight_gradient, bool) {
  return shapes(hidden, weight, targets, bias, float_weight_gradient);
}

Outputs grpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor&, const Optional&,
             const Optional&, double, double, double, const Optional& bias, int64_t, int64_t,
             bool float_weight_gradient, bool) {
  return shapes(hidden, weight, targets, bias, float_weight_gradient);
}

Outputs dpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor&, double,
            const Optional& bias, int64_t, int64_t, bool float_weight_gradient, bool) {
  return shapes(hidden, weight, targets, bias, float_weight_gradient);
}

Outputs kto(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor&, const Tensor&,
            const Tensor&, double, const Optional& bias, int64_t, int64_t, bool float_weight_gradient, bool) {
  return shapes(hidden, weight, targets, bias, float_weight_gradient);
}

Tensor of_reference(const Tensor& hidden, const Tensor&, const Tensor& targets, const Optional&, int64_t) {
  return at::empty_symint(targets.sym_sizes(), hidden.options().dtype(at::kFloat));
}

}  // namespace

TORCH_LIBRARY_IMPL(regather, Meta, library) {
  library.impl("_linear_sft", sft);
  library.impl("_linear_grpo", grpo);
  library.impl("_linear_dpo", dpo);
  library.impl("_linear_kto", kto);
  library.impl("linear_log_probabilities", of_reference);
  library.impl("_scale_stash", [](const Tensor&, const Tensor&) {});
}

}  // namespace regather::kernels::op
