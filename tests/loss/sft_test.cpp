#include "loss/sft.h"

#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "autograd/saved_hooks.h"
#include "case/fault.h"
#include "loss/fused_cross_entropy.h"

namespace regather::loss {
namespace {

using at::Tensor;

struct Problem {
  explicit Problem(bool with_bias) : head(8, 32, with_bias) {
    autograd::install_engine();
    head.weight_handle().detach().copy_(at::randn({32, 8}));
    if (with_bias) head.bias_handle().detach().copy_(at::randn({32}));
    head.to(at::kDouble);
    labels.narrow(1, 0, 2).fill_(kIgnore);
    labels.narrow(0, 1, 1).narrow(1, 5, 4).fill_(kIgnore);
  }

  // Loss and gradients of hidden states, weight and bias.
  std::vector<Tensor> run(const std::function<Tensor()>& loss) {
    hidden.mutable_grad() = Tensor();
    head.zero_grad();
    const Tensor value = loss();
    (value * 3).backward();
    std::vector<Tensor> result{value.detach(), hidden.grad(), head.weight_handle().grad()};
    if (head.bias_handle().defined()) result.push_back(head.bias_handle().grad());
    return result;
  }
  Tensor eager() { return sft_eager(at::linear(hidden, head.weight(), head.bias()), labels); }

  model::Linear head;
  HeadScope scope;
  Tensor hidden = at::randn({2, 13, 8}, at::kDouble).requires_grad_(true);
  Tensor labels = at::randint(0, 32, {2, 13}, at::kLong);
};

double worst(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  double error = got.size() == want.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (!got[i].defined()) return 1;
    error = std::max(error, ((got[i] - want[i]).norm() / want[i].norm()).item<double>());
  }
  return error;
}

class Sft : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(HeadBias, Sft, ::testing::Bool());

TEST_P(Sft, FusedAndChunkedEqualTheFormulaInFloat64) {
  Problem p(GetParam());
  const auto want = p.run([&] { return p.eager(); });
  EXPECT_LT(worst(p.run([&] { return sft_fused(p.hidden, p.head, p.labels, p.scope); }), want), 1e-12);
  EXPECT_LT(worst(p.run([&] { return sft_chunked(p.hidden, p.head, p.labels, p.scope); }), want), 1e-12);
}

TEST_P(Sft, AnyChunkSizeGivesTheSame) {
  Problem p(GetParam());
  const Tensor targets = p.labels.narrow(1, 1, 12).reshape({-1});
  const auto want = p.run([&] { return p.eager(); });
  for (const int64_t rows : {1, 5, 8, 23, 24, 100}) {
    EXPECT_LT(worst(p.run([&] {
                return fused_linear_cross_entropy(p.hidden.narrow(1, 0, 12).reshape({-1, 8}), p.head.weight(),
                                                  p.head.bias(), targets, rows);
              }),
                    want),
              1e-12)
        << rows << " rows a chunk";
  }
}

TEST_P(Sft, EachSeededFaultOfTheLossShows) {
  Problem p(GetParam());
  const auto want = p.run([&] { return p.eager(); });
  for (const Fault fault : {Fault::lose_last_chunk, Fault::swap_gradients, Fault::skip_mask}) {
    seed_fault(fault);
    EXPECT_GT(worst(p.run([&] { return sft_fused(p.hidden, p.head, p.labels, p.scope); }), want), 1e-4);
    seed_fault(Fault::none);
  }
}

TEST(SftEdges, ARankWithoutAValidTargetContributesZero) {
  Problem p(false);
  p.labels.fill_(kIgnore);
  for (const auto& result : {p.run([&] { return sft_fused(p.hidden, p.head, p.labels, p.scope); })}) {
    EXPECT_EQ(result[0].item<double>(), 0);
    EXPECT_EQ(result[1].norm().item<double>(), 0);
    EXPECT_EQ(result[2].norm().item<double>(), 0);
  }
}

TEST(SftEdges, AFrozenHeadGetsNoGradientAndTheHiddenStatesStillDo) {
  Problem p(true);
  const auto want = p.run([&] { return p.eager(); });
  p.head.weight_handle().set_requires_grad(false);
  p.head.bias_handle().set_requires_grad(false);
  p.hidden.mutable_grad() = Tensor();
  p.head.zero_grad();
  (sft_fused(p.hidden, p.head, p.labels, p.scope) * 3).backward();
  EXPECT_LT(worst({p.hidden.grad()}, {want[1]}), 1e-12);
}

TEST(SftEdges, AnEmptiedWeightFailsAsUpstreamsTextSays) {
  Problem p(false);
  p.head.weight_handle().set_data(at::empty({0}, at::kDouble));
  try {
    sft_fused(p.hidden, p.head, p.labels, p.scope);
    FAIL() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "size mismatch, got input (16), mat (16x8), vec (0)");
  }
}

// A scope that counts: forward and recompute of each chunk enter it.
TEST(SftEdges, ChunkedEntersItsScopeAgainInTheRecompute) {
  struct Counting : HeadScope {
    Tensor around(const std::vector<Tensor>&, const std::function<Tensor()>& body) override {
      ++entered;
      return body();
    }
    int entered = 0;
  } counting;
  Problem p(false);
  const Tensor loss = sft_chunked(p.hidden, p.head, p.labels, counting);
  const int forward = counting.entered;
  EXPECT_EQ(forward, (p.labels.narrow(1, 1, 12).ne(kIgnore).sum().item<int64_t>() + 7) / 8);
  loss.backward();
  EXPECT_EQ(counting.entered, 2 * forward);
}

}  // namespace
}  // namespace regather::loss
