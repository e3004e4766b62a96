// The losses are TRL's and Liger's functions: value and every gradient, in float32, from the formula and fused
// (tests/golden/make_losses.py).
#include "../model/golden.h"

#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <iostream>

#include "autograd/saved_hooks.h"
#include "loss/dpo.h"
#include "loss/grpo.h"
#include "loss/kto.h"
#include "loss/sft.h"
#include "loss/tokens.h"

namespace regather::loss {
namespace {

using at::Tensor;
using model::Golden;

constexpr double kBound = 1e-5;

// The golden file's inputs as a policy and a reference.
struct Inputs {
  Inputs(const Golden& golden, bool with_bias)
      : hidden(golden.tensor("hidden").requires_grad_(true)), head(8, 24, with_bias), reference_head(8, 24, with_bias) {
    const at::NoGradGuard no_grad;
    batch.labels = golden.tensor("labels");
    const auto fill = [&](model::Linear& linear, const std::string& prefix) {
      linear.weight_handle().detach().copy_(golden.tensor(prefix + "weight"));
      if (with_bias) linear.bias_handle().detach().copy_(golden.tensor(prefix + "bias"));
    };
    fill(head, "");
    const auto optional = [&](const char* name) { return golden.has(name) ? golden.tensor(name) : Tensor(); };
    batch.advantages = optional("advantages");
    batch.old_log_probabilities = optional("old_log_probabilities");
    batch.reference_log_probabilities = optional("reference_log_probabilities");
    if (golden.has("reference_hidden")) {
      reference_hidden = golden.tensor("reference_hidden");
      fill(reference_head, "reference_");
    }
    if (golden.has("kl")) {
      batch.desirable = golden.tensor("desirable").to(at::kBool);
      kl = golden.tensor("kl").squeeze();
    }
  }

  Tensor logits() { return at::linear(hidden, head.weight(), head.bias()); }
  Tensor policy_sums() { return sequence_log_probabilities(logits(), batch.labels); }
  Tensor reference_sums() {
    const at::NoGradGuard no_grad;
    return sequence_log_probabilities(at::linear(reference_hidden, reference_head.weight(), reference_head.bias()),
                                      batch.labels);
  }
  HeadInput policy() { return {hidden, head, scope}; }
  HeadInput reference() { return {reference_hidden, reference_head, scope}; }

  Tensor hidden;
  model::Linear head;
  Tensor reference_hidden;
  model::Linear reference_head;
  Batch batch;
  Tensor kl;
  HeadScope scope;
};

Tensor eager(const std::string& loss, Inputs& in) {
  if (loss == "sft") return sft_eager(in.logits(), in.batch.labels);
  if (loss == "grpo") return grpo_eager(in.logits(), in.batch);
  if (loss == "dpo") return dpo_eager(in.policy_sums(), in.reference_sums());
  return kto_eager(in.policy_sums(), in.reference_sums(), in.batch.desirable, in.kl);
}

Tensor fused(const std::string& loss, Inputs& in) {
  if (loss == "sft") return sft_fused(in.hidden, in.head, in.batch.labels, in.scope);
  if (loss == "grpo") return grpo_fused(in.policy(), in.batch);
  if (loss == "dpo") return dpo_fused(in.policy(), in.reference(), in.batch.labels);
  return kto_fused(in.policy(), in.reference(), in.batch.labels, in.batch.desirable, in.kl);
}

class GoldenLoss : public testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(GoldenLoss, EagerAndFusedEqualUpstream) {
  autograd::install_engine();
  const std::string name = std::get<0>(GetParam());
  const bool with_bias = std::get<1>(GetParam());
  const Golden golden("loss-" + name);
  double far = 0;
  int compared = 0;
  for (const auto& compute : {&eager, &fused}) {
    Inputs in(golden, with_bias);
    const Tensor loss = compute(name, in);
    loss.backward();
    for (const char* source : {"trl", "liger"}) {
      const std::string prefix = std::string(source) + (with_bias ? "/bias/" : "/plain/");
      if (!golden.has(prefix + "loss")) continue;
      const auto check = [&](const std::string& what, const Tensor& got) {
        const double distance = model::distance(got, golden.tensor(prefix + what));
        EXPECT_LT(distance, kBound) << name << ' ' << prefix << what << (compute == &eager ? " eager" : " fused");
        far = std::max(far, distance);
        ++compared;
      };
      check("loss", loss.reshape({1}));
      check("grad/hidden", in.hidden.grad());
      check("grad/weight", in.head.weight_handle().grad());
      if (with_bias) check("grad/bias", in.head.bias_handle().grad());
    }
  }
  EXPECT_EQ(compared, (name == "sft" ? 2 : 4) * (with_bias ? 4 : 3));
  std::cout << name << (with_bias ? " with bias: " : ": ") << compared << " compared, worst " << far << "\n";
}

INSTANTIATE_TEST_SUITE_P(Losses, GoldenLoss,
                         testing::Combine(testing::Values("sft", "grpo", "dpo", "kto"), testing::Bool()),
                         [](const auto& which) {
                           return std::get<0>(which.param) + (std::get<1>(which.param) ? "_bias" : "");
                         });

// A formula that is wrong in one place is far away.
TEST(GoldenLoss, ALittleOffIsFarAway) {
  const Golden golden("loss-kto");
  Inputs in(golden, false);
  in.kl = in.kl * 1.5;
  EXPECT_GT(model::distance(eager("kto", in).reshape({1}), golden.tensor("trl/plain/loss")), kBound);
  const Golden ratios("loss-grpo");
  Inputs clipped(ratios, false);
  clipped.batch.old_log_probabilities = clipped.batch.old_log_probabilities + 1e-3;
  EXPECT_GT(model::distance(fused("grpo", clipped).reshape({1}), ratios.tensor("trl/plain/loss")), kBound);
}

}  // namespace
}  // namespace regather::loss
