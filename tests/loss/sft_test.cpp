#include "loss/sft.h"

#include <gtest/gtest.h>

#include <vector>

#include "loss/fused_cross_entropy.h"
#include "problem.h"

namespace regather::loss {
namespace {

struct SftProblem : Problem {
  using Problem::Problem;
  Tensor eager() { return sft_eager(logits(), labels); }
};

class Sft : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(HeadBias, Sft, ::testing::Bool());

TEST_P(Sft, FusedAndChunkedEqualTheFormula) {
  SftProblem p(GetParam());
  const auto want = p.run([&] { return p.eager(); });
  EXPECT_LT(worst(p.run([&] { return sft_fused(p.hidden, p.head, p.labels, p.scope); }), want), kClose);
  EXPECT_LT(worst(p.run([&] { return sft_chunked(p.hidden, p.head, p.labels, p.scope); }), want), kClose);
}

TEST_P(Sft, AnyChunkSizeGivesTheSame) {
  SftProblem p(GetParam());
  const Tensor targets = p.labels.narrow(1, 1, 10).reshape({-1});
  const auto want = p.run([&] { return p.eager(); });
  for (const int64_t rows : {1, 5, 8, 39, 40, 100}) {
    EXPECT_LT(worst(p.run([&] {
                return fused_linear_cross_entropy(p.hidden.narrow(1, 0, 10).reshape({-1, 8}), p.head.weight(),
                                                  p.head.bias(), targets, rows);
              }),
                    want),
              kClose)
        << rows << " rows a chunk";
  }
}

TEST_P(Sft, EachSeededFaultOfTheLossShows) {
  SftProblem p(GetParam());
  const auto want = p.run([&] { return p.eager(); });
  for (const Fault fault : kLossFaults) {
    seed_fault(fault);
    EXPECT_GT(worst(p.run([&] { return sft_fused(p.hidden, p.head, p.labels, p.scope); }), want), kFar)
        << static_cast<int>(fault);
    seed_fault(Fault::none);
  }
}

TEST(SftEdges, ARankWithoutAValidTargetContributesZero) {
  SftProblem p(false);
  p.labels.fill_(kIgnore);
  for (const auto& result : {p.run([&] { return sft_fused(p.hidden, p.head, p.labels, p.scope); })}) {
    EXPECT_EQ(result[0].item<double>(), 0);
    EXPECT_EQ(result[1].norm().item<double>(), 0);
    EXPECT_EQ(result[2].norm().item<double>(), 0);
  }
}

TEST(SftEdges, AFrozenHeadGetsNoGradientAndTheHiddenStatesStillDo) {
  SftProblem p(true);
  const auto want = p.run([&] { return p.eager(); });
  p.head.weight_handle().set_requires_grad(false);
  p.head.bias_handle().set_requires_grad(false);
  p.hidden.mutable_grad() = Tensor();
  p.head.zero_grad();
  (sft_fused(p.hidden, p.head, p.labels, p.scope) * 3).backward();
  EXPECT_LT(worst({p.hidden.grad()}, {want[1]}), kClose);
}

TEST(SftEdges, AnEmptiedWeightFailsAsUpstreamsTextSays) {
  SftProblem p(false);
  p.head.weight_handle().set_data(at::empty({0}, at::kFloat));
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
    Tensor around(const std::vector<Tensor>& parameters, const HeadBody& body) override {
      ++entered;
      return body(parameters);
    }
    int entered = 0;
  } counting;
  SftProblem p(false);
  const Tensor loss = sft_chunked(p.hidden, p.head, p.labels, counting);
  const int forward = counting.entered;
  EXPECT_EQ(forward, (p.labels.narrow(1, 1, 10).ne(kIgnore).sum().item<int64_t>() + 7) / 8);
  loss.backward();
  EXPECT_EQ(counting.entered, 2 * forward);
}

}  // namespace
}  // namespace regather::loss
