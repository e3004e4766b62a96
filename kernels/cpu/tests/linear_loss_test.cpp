// Against double precision, by each unit that this processor has.
#include "kernels/cpu/linear_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/numbers.h"
#include "kernels/cpu/tests/reference.h"
#include "kernels/error.h"

namespace regather::kernels::cpu::testing {
namespace {

constexpr LossName kLosses[] = {LossName::sft, LossName::grpo, LossName::dpo, LossName::kto};
constexpr const char* kLossNames[] = {"sft", "grpo", "dpo", "kto"};

std::string name_of(LossName loss) { return kLossNames[static_cast<int>(loss)]; }

std::string name_of_unit(const ::testing::TestParamInfo<Unit>& unit) {
  constexpr const char* kNames[] = {"best", "amx", "avx512", "avx2", "plain"};
  return kNames[static_cast<int>(unit.param)];
}

class CpuLinearLoss : public ::testing::TestWithParam<Unit> {
 protected:
  void SetUp() override {
    if (!has(GetParam())) GTEST_SKIP() << "this processor has no such unit";
    options_.unit = GetParam();
    options_.chunk_rows = 64;
    options_.threads = 2;
  }
  Options options_;
};

double limit_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return 3e-6;
    case Dtype::fp16:
      return 2e-3;  // 3e-4 but for what falls among its smallest numbers
    case Dtype::bf16:
      return 5e-3;
  }
  return 0;
}

void expect_right(Problem& problem, const ProblemOptions& given, const Options& options, const std::string& name,
                  double log_probability = 1e-5) {
  const Errors found = problem.run(options);
  const std::string text = name + ": " + print(found);
  EXPECT_LE(found.loss, log_probability * (1 + std::fabs(problem.right_loss()))) << text;
  EXPECT_LE(found.log_probabilities, log_probability) << text;
  EXPECT_LE(found.hidden, limit_of(given.dtype)) << text;
  // Rounded once a chunk where it is narrow.
  const double chunks =
      1 + static_cast<double>(given.sequences * given.length) / static_cast<double>(options.chunk_rows);
  EXPECT_LE(found.weight, limit_of(given.weight_dtype) * std::sqrt(chunks)) << text;
  EXPECT_LE(found.bias, 5e-6) << text;
}

TEST_P(CpuLinearLoss, EachLossAndDtype) {
  for (const LossName loss : kLosses) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
      for (const bool wide : {false, true}) {
        ProblemOptions given{loss, 6, 23, 96, 517, dtype, wide ? Dtype::fp32 : dtype};
        given.bias = wide;
        given.masked = wide ? 0.3 : 0;
        given.lean = 4;
        Problem problem(given);
        expect_right(problem, given, options_,
                     name_of(loss) + " dtype " + std::to_string(static_cast<int>(dtype)) +
                         (wide ? " bias, masked, dW in float32" : ""));
      }
    }
  }
}

TEST_P(CpuLinearLoss, RandomShapes) {
  std::mt19937_64 random(3);
  const auto below = [&](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
  for (int i = 0; i < 60; ++i) {
    ProblemOptions given;
    given.loss = kLosses[below(4)];
    given.sequences = 2 * (1 + below(3));
    given.length = 1 + below(30);
    given.width = 1 + below(150);
    given.vocab = 1 + below(below(2) == 0 ? 30 : 700);
    given.dtype = static_cast<Dtype>(below(3));
    given.weight_dtype = below(2) == 0 ? Dtype::fp32 : given.dtype;
    given.bias = below(2) == 0;
    given.masked = static_cast<double>(below(3)) * 0.4;
    given.lean = static_cast<double>(below(8));
    given.seed = static_cast<uint64_t>(i);
    options_.chunk_rows = 1 + below(200);
    options_.threads = static_cast<int>(1 + below(3));
    Problem problem(given);
    expect_right(problem, given, options_,
                 "shape " + std::to_string(i) + " " + name_of(given.loss) + " T " + std::to_string(given.length) +
                     " H " + std::to_string(given.width) + " V " + std::to_string(given.vocab) + " C " +
                     std::to_string(options_.chunk_rows) + " dtype " + std::to_string(static_cast<int>(given.dtype)));
    if (HasFailure()) return;
  }
}

// Enough work for three threads, each with its own part of the vocabulary.
TEST_P(CpuLinearLoss, SeveralThreads) {
  options_.threads = 3;
  for (const LossName loss : {LossName::sft, LossName::dpo}) {
    ProblemOptions given{loss, 2, 60, 96, 3001};
    given.bias = true;
    Problem problem(given);
    expect_right(problem, given, options_, name_of(loss) + " by three threads");
  }
}

// Logits of about +-10 scale, the target's among them: rows whose largest is far above it are passed over again.
TEST_P(CpuLinearLoss, ExtremeLogits) {
  for (const double scale : {10.0, 1000.0}) {
    ProblemOptions given{LossName::sft, 1, 70, 64, 300};
    given.scale = scale;
    Problem problem(given);
    expect_right(problem, given, options_, "scale " + std::to_string(scale), 2e-5 * scale);
  }
}

TEST_P(CpuLinearLoss, NothingTakesPart) {
  for (const LossName loss : kLosses) {
    ProblemOptions given{loss, 4, 5, 40, 50};
    given.masked = 2;
    given.bias = true;
    Problem problem(given);
    expect_right(problem, given, options_, name_of(loss) + " all masked");
  }
}

TEST_P(CpuLinearLoss, TinyVocabularyAndOneTokenRows) {
  for (const LossName loss : kLosses) {
    const ProblemOptions given{loss, 8, 1, 16, 7};
    Problem problem(given);
    expect_right(problem, given, options_, name_of(loss) + " V 7, one token a sequence");
  }
}

TEST_P(CpuLinearLoss, EachSeededFaultShows) {
  for (const LossName loss : kLosses) {
    const ProblemOptions given{loss, 8, 10, 32, 40};
    Problem problem(given);
    options_.chunk_rows = 32;
    for (const Defect defect :
         {Defect::lost_chunk, Defect::counted_pad, Defect::unpatched_target, Defect::scaled_twice, Defect::stale_sum}) {
      options_.defect = defect;
      const Errors found = problem.run(options_);
      EXPECT_GT(found.hidden, 1e-3) << name_of(loss) << ' ' << static_cast<int>(defect) << ": " << print(found);
      EXPECT_GT(found.weight, 1e-3) << name_of(loss) << ' ' << static_cast<int>(defect) << ": " << print(found);
    }
    options_.defect = Defect::none;
    expect_right(problem, given, options_, name_of(loss));
  }
}

TEST_P(CpuLinearLoss, SameBitsEachTime) {
  const ProblemOptions given{LossName::grpo, 4, 50, 128, 2000};
  Problem problem(given);
  problem.run(options_);
  const std::vector<char> hidden = problem.hidden_gradient;
  const std::vector<char> weight = problem.weight_gradient;
  for (int i = 0; i < 3; ++i) {
    problem.run(options_);
    EXPECT_TRUE(problem.hidden_gradient == hidden);
    EXPECT_TRUE(problem.weight_gradient == weight);
  }
}

TEST_P(CpuLinearLoss, LogProbabilitiesAlone) {
  ProblemOptions given{LossName::sft, 1, 150, 100, 900, Dtype::bf16};
  given.masked = 0.2;
  Problem problem(given);
  problem.run(options_);
  std::vector<float> alone(150, NAN);
  log_probabilities(problem.linear, alone.data(), options_);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], problem.results.log_probabilities[i], 2e-6) << i;
}

TEST_P(CpuLinearLoss, TargetOutsideTheVocabularyIsAnError) {
  Problem problem({LossName::sft, 1, 20, 32, 50});
  for (const int64_t bad : {int64_t{50}, int64_t{-1}, int64_t{1} << 40U}) {
    std::vector<int64_t> targets(20, 3);
    targets[17] = bad;
    problem.linear.targets = targets.data();
    try {
      linear_loss(problem.linear, Sft{}, problem.results, options_);
      ADD_FAILURE() << bad << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("target " + std::to_string(bad) + " of row 17"), std::string::npos)
          << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Units, CpuLinearLoss, ::testing::Values(Unit::plain, Unit::avx2, Unit::avx512, Unit::amx),
                         name_of_unit);

TEST(CpuNumbers, RoundToTheNearestAndBack) {
  const std::vector<float> values = {0.0F,  -0.0F,   1.0F,     65504.0F, 65520.0F, 1e30F,
                                     6e-8F, 2.9e-8F, 0x1p-14F, 6.1e-5F,  -3.14159F};
  const std::vector<float> halves = {0.0F,     -0.0F, 1.0F,     65504.0F,     INFINITY,  INFINITY,
                                     0x1p-24F, 0.0F,  0x1p-14F, 0x1.ff8p-15F, -3.140625F};
  std::vector<uint16_t> bits(values.size());
  std::vector<float> back(values.size());
  narrow(values.data(), static_cast<int64_t>(values.size()), Dtype::fp16, bits.data(), 0);
  widen(bits.data(), Dtype::fp16, 0, static_cast<int64_t>(values.size()), back.data());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(back[i], halves[i]) << values[i];
  // Each of the 2^16 numbers that is one comes back as itself.
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (uint32_t i = 0; i < 0x10000; ++i) {
      const auto in = static_cast<uint16_t>(i);
      float wide = 0;
      uint16_t out = 0;
      widen(&in, dtype, 0, 1, &wide);
      narrow(&wide, 1, dtype, &out, 0);
      if (!std::isnan(wide)) {
        ASSERT_EQ(in, out);
      }
    }
  }
}

}  // namespace
}  // namespace regather::kernels::cpu::testing
