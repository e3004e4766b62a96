#include "train/reference.h"

#include <gtest/gtest.h>

#include "loss/sft.h"
#include "train/prepare.h"

namespace regather::train {
namespace {

Setting card() {
  auto initial = std::make_shared<model::CausalLM>(model::Config{});
  model::initialise(*initial, 1);
  Setting setting;
  setting.initial = initial;
  return setting;
}

TEST(Reference, GradientsAgreeWithFiniteDifferencesOfTheMeanLoss) {
  const Setting setting = card();
  Case c;
  const auto reference = compute_reference(setting, c);
  ASSERT_EQ(reference->steps.size(), static_cast<size_t>(kSteps));
  const auto model = model::clone_as(*setting.initial, at::kDouble);
  const auto mean_loss = [&] {
    double sum = 0;
    for (int rank = 0; rank < c.world; ++rank) {
      const loss::Batch batch = loss::make_batch(setting.batch, setting.seed, rank, 0);
      sum += loss::sft_eager((*model)(batch.input_ids), batch.labels).item<double>();
    }
    return sum / c.world;
  };
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : model::distinct_parameters(*model)) {
    const at::Tensor& gradient = reference->steps[0].gradients.at(name);
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

TEST(Reference, EveryParameterOfTheCardsModelHasAGradientThatCounts) {
  const auto reference = compute_reference(card(), Case{});
  for (const auto& [name, gradient] : reference->steps[0].gradients) {
    EXPECT_GT(gradient.norm().item<double>(), 1e-6) << name;
  }
}

}  // namespace
}  // namespace regather::train
