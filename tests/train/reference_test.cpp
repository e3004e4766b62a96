#include "train/reference.h"

#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include "loss/kto.h"
#include "tests/train/card.h"
#include "train/prepare.h"
#include "train/step_loss.h"

namespace regather::train {
namespace {

class ReferenceOf : public testing::TestWithParam<Loss> {};
INSTANTIATE_TEST_SUITE_P(Losses, ReferenceOf, testing::Values(Loss::sft, Loss::grpo, Loss::dpo, Loss::kto),
                         [](const auto& loss) { return axis_values(Case{.loss = loss.param})[1].value; });

TEST_P(ReferenceOf, GradientsAgreeWithFiniteDifferencesOfTheMeanLoss) {
  const Setting setting = card();
  const Case c{.loss = GetParam()};
  const auto reference = compute_reference(setting, c);
  ASSERT_EQ(reference->steps.size(), 2U);
  const ReferenceStep& first = reference->steps[0];
  const MicroBatch& given = first.micro_batches[0];
  const auto model = model::clone_as(*setting.initial, at::kDouble);
  const auto other = model::clone_as(*setting.reference, at::kDouble);
  // The KL term carries no gradient: it stays what it is at the start.
  const at::Tensor kl = loss::kto_kl(at::scalar_tensor(given.mean_log_ratio, at::kDouble));
  const auto mean_loss = [&] {
    double sum = 0;
    for (const loss::Batch& batch : given.batches) {
      const auto reference_logits = [&] { return (*other)(batch.input_ids); };
      sum += loss_from_logits(c.loss, (*model)(batch.input_ids), batch, reference_logits, kl).item<double>();
    }
    return sum / c.world;
  };
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : model::distinct_parameters(*model)) {
    const at::Tensor& gradient = first.gradients.at(name);
    // Along the gradient itself the derivative is its norm.
    const double norm = gradient.norm().item<double>();
    const at::Tensor direction = gradient / norm;
    const double h = 1e-4;
    parameter.detach().add_(direction, h);
    const double up = mean_loss();
    parameter.detach().sub_(direction, 2 * h);
    const double down = mean_loss();
    parameter.detach().add_(direction, h);
    EXPECT_NEAR((up - down) / (2 * h) / norm, 1, 1e-5) << name;
  }
}

TEST(Reference, FrozenParametersHaveNoGradientAndDoNotMove) {
  const auto reference = compute_reference(card(), Case{.frozen = Frozen::norms});
  EXPECT_FALSE(reference->steps[0].gradients.contains("model.norm.weight"));
  EXPECT_EQ(reference->steps[0].updates.at("model.norm.weight").norm().item<double>(), 0);
  EXPECT_GT(reference->steps[0].updates.at("lm_head.weight").norm().item<double>(), 0);
}

TEST_P(ReferenceOf, EveryParameterOfTheCardsModelHasAGradientThatCounts) {
  const auto reference = compute_reference(card(), Case{.loss = GetParam()});
  for (const auto& [name, gradient] : reference->steps[0].gradients) {
    EXPECT_GT(gradient.norm().item<double>(), 1e-6) << name;
  }
}

}  // namespace
}  // namespace regather::train
