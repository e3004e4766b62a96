#include "train/step_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "base/error.h"
#include "loss/dpo.h"
#include "loss/grpo.h"
#include "loss/kto.h"
#include "loss/sft.h"
#include "loss/tokens.h"
#include "model/adapters.h"

namespace regather::train {
namespace {

using at::Tensor;

// Runs `function` on the reference, without grad: a model of its own, or the policy with its adapters off.
template <typename Function>
Tensor on_reference(const LossParts& parts, Function&& function) {
  const at::NoGradGuard no_grad;
  if (parts.reference != nullptr) return function(*parts.reference, *parts.reference_scope);
  const model::AdaptersOff base(parts.model);
  return function(parts.model, parts.scope);
}

// KTO's KL term, undefined for other losses: both forwards on mismatched completions, the policy's first. It is taken
// between the policy's forward and the reference's. Before the policy's, a call of the model would leave FSDP2's root
// whole and let a loss on the unwrapped model pass that otherwise meets sharded parameters; after the reference's, the
// reference's ZeRO-3 engine would keep for the next step what that step uses first.
Tensor kl_term(const LossParts& parts, const Case& c, const loss::Batch& batch) {
  if (c.loss != Loss::kto) return {};
  const auto logits = [&](model::CausalLM& model, loss::HeadScope& scope) {
    return parts.kl_forward->logits(model, batch.mismatched_ids, scope);
  };
  Tensor policy;
  {
    const at::NoGradGuard no_grad;
    policy = logits(parts.model, parts.scope);
  }
  const Tensor reference = on_reference(parts, logits);
  return loss::kto_kl(parts.mean_over_ranks(loss::kto_log_ratio(policy, reference, batch.mismatched_labels)));
}

// passes=2: the first half of the sequences, then the second, before one backward.
template <typename Function>
Tensor in_passes(const Case& c, const Tensor& input_ids, Function&& function) {
  if (!c.two_passes) return function(input_ids);
  const std::vector<Tensor> halves = input_ids.chunk(2);
  const Tensor first = function(halves[0]);
  return at::cat({first, function(halves[1])});
}

Tensor eager(const LossParts& parts, const Case& c, const loss::Batch& batch, bool root_runs) {
  const auto own_forward = [](model::CausalLM& model, bool running, const Tensor& ids) {
    return running ? model.forward(ids) : model(ids);
  };
  const Tensor logits =
      in_passes(c, batch.input_ids, [&](const Tensor& ids) { return own_forward(parts.model, root_runs, ids); });
  const Tensor kl = kl_term(parts, c, batch);
  const auto reference_logits = [&] {
    return on_reference(parts, [&](model::CausalLM& model, loss::HeadScope&) {
      return own_forward(model, root_runs && &model == &parts.model, batch.input_ids);
    });
  };
  return loss_from_logits(c.loss, logits, batch, reference_logits, kl);
}

Tensor policy_hidden(const LossParts& parts, const Case& c, const loss::Batch& batch) {
  return in_passes(c, batch.input_ids, [&](const Tensor& ids) { return parts.model.backbone()(ids); });
}

Tensor fused(const LossParts& parts, const Case& c, const loss::Batch& batch) {
  const Tensor hidden = policy_hidden(parts, c, batch);
  const loss::HeadInput policy{hidden, parts.model.head(), parts.scope};
  if (c.loss == Loss::sft) return loss::sft_fused(hidden, parts.model.head(), batch.labels, parts.scope);
  if (c.loss == Loss::grpo) return loss::grpo_fused(policy, batch);

  const Tensor kl = kl_term(parts, c, batch);
  const Tensor reference_hidden =
      on_reference(parts, [&](model::CausalLM& model, loss::HeadScope&) { return model.backbone()(batch.input_ids); });
  const loss::HeadInput reference =
      parts.reference != nullptr ? loss::HeadInput{reference_hidden, parts.reference->head(), *parts.reference_scope}
                                 : loss::HeadInput{reference_hidden, parts.model.head(), parts.scope};
  if (c.loss == Loss::dpo) return loss::dpo_fused(policy, reference, batch.labels);
  return loss::kto_fused(policy, reference, batch.labels, batch.desirable, kl);
}

}  // namespace

bool has_reference(Loss loss) { return loss == Loss::dpo || loss == Loss::kto; }

Tensor compute_loss(const LossParts& parts, const Case& c, const loss::Batch& batch, bool root_runs) {
  switch (c.kernel) {
    case Kernel::eager:
      return eager(parts, c, batch, root_runs);
    case Kernel::chunked:
      REGATHER_CHECK(c.loss == Loss::sft, "loss", "the chunked kernel computes sft alone");
      return loss::sft_chunked(policy_hidden(parts, c, batch), parts.model.head(), batch.labels, parts.scope);
    case Kernel::fused:
      break;
  }
  return fused(parts, c, batch);
}

Tensor loss_from_logits(Loss loss, const Tensor& logits, const loss::Batch& batch,
                        const std::function<Tensor()>& reference_logits, const Tensor& kl) {
  switch (loss) {
    case Loss::sft:
      return loss::sft_eager(logits, batch.labels);
    case Loss::grpo:
      return loss::grpo_eager(logits, batch);
    case Loss::dpo:
    case Loss::kto:
      break;
  }
  const Tensor policy = loss::sequence_log_probabilities(logits, batch.labels);
  const Tensor reference = loss::sequence_log_probabilities(reference_logits(), batch.labels);
  if (loss == Loss::dpo) return loss::dpo_eager(policy, reference);
  return loss::kto_eager(policy, reference, batch.desirable, kl);
}

}  // namespace regather::train
