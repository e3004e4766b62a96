// Against double precision on the device. Needs a GPU.
#include "kernels/linear_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "kernels/tests/problem.cuh"

namespace regather::kernels::testing {
namespace {

Context& context() {
  static Context shared;
  return shared;
}

struct Limits {
  double gradient = 0.006;
  double log_probability = 2e-4;
};

// Small sums of few terms round worse than the big ones that the limits of the bench are for.
void expect_right(Problem& problem, const std::string& name, const Limits& limits = {}) {
  problem.poison();
  problem.run(context());
  const ProblemOptions& options = problem.options();
  const Reference right = reference(problem.linear(), options.loss, problem.parameters());
  const Errors found = errors(problem, right);
  const std::string text = name + ": " + print(found);
  EXPECT_LE(found.loss, 1e-5 * (1 + std::fabs(right.loss)) + limits.log_probability) << text;
  EXPECT_LE(found.log_probabilities, limits.log_probability) << text;
  EXPECT_LE(found.hidden, limits.gradient) << text;
  EXPECT_LE(found.weight, limits.gradient) << text;
  EXPECT_LE(found.bias, limits.gradient) << text;
}

ProblemOptions sized(LossName loss, int64_t sequences, int64_t length, int64_t width, int64_t vocab) {
  ProblemOptions options;
  options.loss = loss;
  options.sequences = sequences;
  options.data.rows = sequences * length;
  options.data.width = width;
  options.data.vocab = vocab;
  options.data.seed = static_cast<uint64_t>(width * 31 + vocab * 7 + sequences);
  options.data.weight_scale = 1.0F / std::sqrt(static_cast<float>(width));
  options.data.lean_range = 4;
  options.data.lean_base = 1;
  options.options.chunk_rows = 128;
  return options;
}

constexpr LossName kLosses[] = {LossName::sft, LossName::grpo, LossName::dpo, LossName::kto};
const char* name_of(LossName loss) {
  switch (loss) {
    case LossName::sft:
      return "sft";
    case LossName::grpo:
      return "grpo";
    case LossName::dpo:
      return "dpo";
    case LossName::kto:
      return "kto";
  }
  return "";
}

TEST(LinearLoss, EachLossAgreesWithDoublePrecision) {
  for (const LossName loss : kLosses) {
    for (const bool bias : {false, true}) {
      for (const double masked : {0.0, 0.4}) {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
          ProblemOptions options = sized(loss, 6, 75, 192, 5003);
          options.data.bias = bias;
          options.data.masked = masked;
          options.weight_dtype = dtype;
          Problem problem(options);
          expect_right(problem, std::string(name_of(loss)) + (bias ? " bias" : "") + (masked > 0 ? " masked" : "") +
                                    (dtype == Dtype::bf16 ? " bf16" : ""));
        }
      }
    }
  }
}

TEST(LinearLoss, EachSeededFaultShows) {
  for (const LossName loss : kLosses) {
    for (const bool plain : {false, true}) {
      for (const Defect defect : {Defect::lost_chunk, Defect::counted_pad, Defect::unpatched_target,
                                  Defect::scaled_twice, Defect::stale_sum}) {
        ProblemOptions options = sized(loss, 8, 10, 32, 40);
        options.weight_dtype = Dtype::fp32;
        options.options.chunk_rows = 32;
        options.options.plain = plain;
        options.options.defect = defect;
        Problem problem(options);
        problem.poison();
        problem.run(context());
        const Errors found = errors(problem, reference(problem.linear(), options.loss, problem.parameters()));
        const std::string text = std::string(name_of(loss)) + (plain ? " plain " : " ") +
                                 std::to_string(static_cast<int>(defect)) + ": " + print(found);
        EXPECT_GT(found.hidden, 0.01) << text;
        EXPECT_GT(found.weight, 0.01) << text;
      }
    }
  }
}

TEST(LinearLoss, RandomShapes) {
  const char* count = std::getenv("REGATHER_RANDOM_SHAPES");
  std::mt19937_64 random(20);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  for (int i = 0; i < (count != nullptr ? std::atoi(count) : 100); ++i) {
    const LossName loss = kLosses[below(4)];
    ProblemOptions options =
        sized(loss, 2 * (1 + below(4)), 1 + below(80), 8 * (1 + below(48)), 1 + below(below(2) == 0 ? 40 : 9000));
    options.data.seed += static_cast<uint64_t>(i) * 1000;
    options.data.bias = below(2) == 0;
    options.data.masked = below(3) * 0.3;
    options.options.chunk_rows = 1 + below(300);
    options.weight_dtype = below(2) == 0 ? Dtype::fp32 : Dtype::bf16;
    Problem problem(options);
    Limits limits;
    const auto chunks = static_cast<double>(divide_up(options.data.rows, options.options.chunk_rows));
    // A weight gradient in bf16 is rounded once a chunk.
    limits.gradient = options.weight_dtype == Dtype::bf16 ? 0.006 + 0.0016 * std::sqrt(chunks) : 0.006;
    expect_right(problem,
                 "shape " + std::to_string(i) + " " + name_of(loss) + " N " + std::to_string(options.data.rows) +
                     " H " + std::to_string(options.data.width) + " V " + std::to_string(options.data.vocab) + " C " +
                     std::to_string(options.options.chunk_rows),
                 limits);
    if (HasFailure() && i > 20) return;
  }
}

TEST(LinearLoss, TinyVocabularyAndOneTokenRows) {
  for (const LossName loss : kLosses) {
    ProblemOptions options = sized(loss, 8, 1, 64, 7);
    Problem problem(options);
    expect_right(problem, std::string(name_of(loss)) + " V 7, one token a sequence");
  }
}

// Small enough for racecheck, and still several tiles each way, chunks, masks, and rows that are computed again.
TEST(LinearLoss, FewTilesOfEverything) {
  for (const LossName loss : kLosses) {
    ProblemOptions options = sized(loss, 4, 45, 64, 401);
    options.data.bias = true;
    options.data.masked = 0.1;
    if (loss == LossName::sft) options.data.weight_scale *= 100;
    Problem problem(options);
    Limits limits;
    if (loss == LossName::sft) limits.log_probability = 2e-2;
    expect_right(problem, std::string(name_of(loss)) + " few tiles", limits);
  }
}

TEST(LinearLoss, ExtremeLogits) {
  for (const LossName loss : {LossName::sft, LossName::grpo}) {
    for (const float scale : {10.0F, 1000.0F}) {
      if (loss == LossName::grpo && scale > 100) continue;  // a ratio of such probabilities has no digits left
      for (const float base : {0.0F, 1.0F}) {
        // Logits of about +-10 scale, the target's anywhere (base 0) or far above them.
        ProblemOptions options = sized(loss, 4, 50, 128, 3001);
        options.data.weight_scale = scale / std::sqrt(128.0F);
        options.data.lean_base = base * scale * 5;
        options.data.lean_range = 0;
        options.off_policy = 0.05F;
        Problem problem(options);
        Limits limits;
        limits.log_probability = 2e-6 * 10 * static_cast<double>(scale) * 10;
        expect_right(
            problem,
            std::string(name_of(loss)) + " logits of scale " + std::to_string(scale) + " base " + std::to_string(base),
            limits);
      }
    }
  }
}

TEST(LinearLoss, NothingTakesPart) {
  for (const LossName loss : kLosses) {
    ProblemOptions options = sized(loss, 4, 10, 64, 500);
    options.data.masked = 2;
    options.data.bias = true;
    Problem problem(options);
    expect_right(problem, std::string(name_of(loss)) + " all masked");
  }
}

TEST(LinearLoss, NoRows) {
  ProblemOptions options = sized(LossName::sft, 0, 10, 64, 500);
  Problem problem(options);
  problem.poison();
  problem.run(context());
  EXPECT_EQ(problem.loss().host()[0], 0);
  for (const char byte : problem.weight_gradient().host()) ASSERT_EQ(byte, 0);
}

TEST(LinearLoss, SequenceLongerThanChunk) {
  for (const LossName loss : {LossName::dpo, LossName::kto}) {
    ProblemOptions options = sized(loss, 4, 333, 64, 1000);
    options.data.masked = 0.1;
    Problem problem(options);
    expect_right(problem, std::string(name_of(loss)) + " long sequences");
  }
}

TEST(PlainPath, EachDtypeAndLoss) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
    for (const LossName loss : kLosses) {
      for (const Dtype weight_dtype : {dtype, Dtype::fp32}) {
        ProblemOptions options = sized(loss, 6, 75, 190, 3001);
        options.data.bias = loss != LossName::dpo;
        options.data.masked = 0.2;
        options.dtype = dtype;
        options.weight_dtype = weight_dtype;
        options.options.plain = true;
        Problem problem(options);
        Limits limits;
        if (dtype == Dtype::fp16) limits.gradient = 0.001;
        if (dtype == Dtype::fp32) limits.gradient = 2e-5;
        expect_right(problem,
                     std::string("plain ") + name_of(loss) + " dtype " + std::to_string(static_cast<int>(dtype)) +
                         " dW " + std::to_string(static_cast<int>(weight_dtype)),
                     limits);
      }
    }
  }
}

TEST(PlainPath, OddSizes) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
    for (const int64_t width : {1, 7, 33, 1001}) {
      ProblemOptions options = sized(LossName::sft, 1, 61, width, width == 33 ? 1 : 501);
      options.dtype = dtype;
      options.data.bias = true;
      options.weight_dtype = Dtype::fp32;
      options.options.chunk_rows = 17;
      Problem problem(options);
      expect_right(problem, "width " + std::to_string(width) + " dtype " + std::to_string(static_cast<int>(dtype)));
    }
  }
}

TEST(LogProbabilities, AgreeWithDoublePrecision) {
  for (const bool bias : {false, true}) {
    for (const int64_t width : {192, 2304}) {
      ProblemOptions options = sized(LossName::sft, 1, 2500, width, 5003);
      options.data.masked = bias ? 0.3 : 0;
      options.data.bias = bias;
      const Data data = make_data(options.data);
      Buffer<char> space(static_cast<int64_t>(log_probabilities_workspace_bytes(data.linear)));
      Buffer<float> out(data.linear.rows);
      out.fill_bytes(0xff);
      space.fill_bytes(0xff);
      log_probabilities(context(), data.linear, out.get(), space.get(), nullptr);
      const std::vector<float> ours = out.host();
      const std::vector<double> right = reference_log_probabilities(data.linear);
      double worst = 0;
      for (size_t i = 0; i < ours.size(); ++i) {
        const double difference = std::fabs(static_cast<double>(ours[i]) - right[i]);
        if (!(difference <= worst)) worst = difference;
      }
      EXPECT_LE(worst, 1e-4) << "width " << width << (bias ? ", bias, masked" : "");
    }
  }
}

TEST(LinearLoss, WideAndLong) {
  // The kernels of wide hidden states, and a trial of all products' kernels: twelve calls, each of them right.
  ProblemOptions options = sized(LossName::sft, 1, 1300, 2304, 6001);
  options.options.chunk_rows = 512;
  Problem problem(options);
  for (int i = 0; i < 12; ++i) expect_right(problem, "call " + std::to_string(i));
}

TEST(LinearLoss, ChunkRowsFitTheirBytes) {
  const Linear linear{8192, 896, 151936};
  Options options;
  options.chunk_rows = chunk_rows_within(linear, Sft{}, size_t{512} << 20U);
  EXPECT_LE(workspace_bytes(linear, Sft{}, options), size_t{512} << 20U);
  ++options.chunk_rows;
  EXPECT_GT(workspace_bytes(linear, Sft{}, options), size_t{512} << 20U);
}

TEST(LinearLoss, TargetOutsideTheVocabularyIsAnError) {
  for (const int64_t bad : {int64_t{500}, int64_t{-1}, int64_t{1} << 40U}) {
    ProblemOptions options = sized(LossName::sft, 1, 40, 64, 500);
    Problem problem(options);
    check(cudaMemcpy(problem.data().targets.get() + 17, &bad, sizeof bad, cudaMemcpyHostToDevice), "cudaMemcpy");
    try {
      problem.run(context());
      ADD_FAILURE() << bad << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(bad)), std::string::npos) << error.what();
    }
  }
}

TEST(LinearLoss, MisalignedOperandsAreAnError) {
  ProblemOptions options = sized(LossName::sft, 1, 40, 64, 500);
  Problem problem(options);
  Linear linear = problem.linear();
  linear.hidden = static_cast<const char*>(linear.hidden) + 2;
  Results results;
  results.loss = problem.loss().get();
  results.hidden_gradient = problem.hidden_gradient().get();
  results.weight_gradient = problem.weight_gradient().get();
  results.weight_dtype = options.weight_dtype;
  EXPECT_THROW(linear_loss(context(), linear, Sft{}, results, options.options, nullptr, nullptr), Error);
}

TEST(LinearLoss, SameBitsEachTime) {
  for (const LossName loss : kLosses) {
    ProblemOptions options = sized(loss, 4, 256, 896, 20000);
    options.data.masked = 0.2;
    options.data.bias = true;
    options.options.deterministic = true;
    options.options.chunk_rows = 256;
    Problem problem(options);
    std::vector<char> first_weight;
    std::vector<char> first_hidden;
    for (int i = 0; i < 10; ++i) {
      problem.poison();
      problem.run(context());
      check(cudaDeviceSynchronize(), "linear_loss");
      const std::vector<char> weight = problem.weight_gradient().host();
      const std::vector<char> hidden = problem.hidden_gradient().host();
      if (i == 0) {
        first_weight = weight;
        first_hidden = hidden;
      }
      EXPECT_TRUE(weight == first_weight) << name_of(loss) << ", call " << i;
      EXPECT_TRUE(hidden == first_hidden) << name_of(loss);
    }
  }
}

}  // namespace
}  // namespace regather::kernels::testing
