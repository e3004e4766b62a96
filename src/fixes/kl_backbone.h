// kl_backbone: repairs head_double_touch (ZeRO-3, KTO).
//
// KTO's KL term needs a second forward of the policy, on mismatched completions, and takes it by calling the model. In
// a redirected loss that call nests in the wrapper's forward, and its end is the end of any forward of the root: ZeRO-3
// then no longer notes which parameters are read outside their modules. The fused loss reads the head right after;
// nobody registers it with the root, nothing gathers it in backward, and the dense gradient arrives at an empty
// parameter. The fix runs the backbone alone and multiplies with the head's parameters, read and gathered as for the
// fused call: the root is not called a second time.
#pragma once

#include "loss/policy.h"

namespace regather::fixes {

class KlBackbone : public loss::KlForward {
 public:
  at::Tensor logits(model::CausalLM& model, const at::Tensor& input_ids, loss::HeadScope& scope) override;
};

}  // namespace regather::fixes
