#include "fixes/kl_backbone.h"

#include <ATen/ops/matmul.h>

#include "loss/fused_linear.h"

namespace regather::fixes {

at::Tensor KlBackbone::logits(model::CausalLM& model, const at::Tensor& input_ids, loss::HeadScope& scope) {
  const at::Tensor hidden = model.backbone()(input_ids);
  const loss::HeadParameters read = loss::read_head(model.head());
  return scope.around(read.defined(), [&](const std::vector<at::Tensor>& parameters) {
    const loss::HeadParameters head = loss::HeadParameters::of(parameters);
    const at::Tensor product = at::matmul(hidden, head.weight.t());
    return head.bias.defined() ? product + head.bias : product;
  });
}

}  // namespace regather::fixes
