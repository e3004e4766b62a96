// The loss of one batch as a case computes it: which kernel, through which forward, with which reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "case/case.h"
#include "loss/batch.h"
#include "loss/policy.h"
#include "model/qwen2.h"

namespace regather::train {

// What a rank computes a loss with.
struct LossParts {
  model::CausalLM& model;
  loss::HeadScope& scope;
  // dpo and kto with reference=separate; null otherwise.
  model::CausalLM* reference = nullptr;
  loss::HeadScope* reference_scope = nullptr;
  loss::KlForward* kl_forward = nullptr;  // kto
  // The mean over ranks of a scalar: a collective.
  std::function<at::Tensor(const at::Tensor&)> mean_over_ranks;
};

// dpo, kto: the loss compares the policy with a reference model.
bool has_reference(Loss loss);

// The loss of one batch, computed on the model's submodules; eager through the model's own forward.
// `root_runs`: the root's forward is in progress (the wrapper called it), so its hooks must not run again.
at::Tensor compute_loss(const LossParts& parts, const Case& c, const loss::Batch& batch, bool root_runs);

// From logits [B, T, V] by the formula alone. `reference_logits` is called, without grad, where the loss has a
// reference; kl is kto's.
at::Tensor loss_from_logits(Loss loss, const at::Tensor& logits, const loss::Batch& batch,
                            const std::function<at::Tensor()>& reference_logits, const at::Tensor& kl);

}  // namespace regather::train
