// Measures the fused losses against the bare products:
//
//     linear_loss_bench --shape 0.5B|7B|8B [--rows N] [--only TEXT] [--chunks C,C,...] [--seconds S] [--rounds R]
//                       [--check 0] [--stages 1] [--json FILE]
//
// Chunks are as large as 512 MiB of workspace allow, and 1.4 GiB; with --chunks, of the sizes given, for SFT only.
// One line a subject on stdout, one JSON object a line in FILE.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/bench/alternate.cuh"
#include "kernels/bench/bare_products.cuh"
#include "kernels/bench/stages.cuh"
#include "kernels/context.h"
#include "kernels/tests/problem.cuh"

namespace regather::kernels::bench {
namespace {

using testing::LossName;

struct Shape {
  int64_t width;
  int64_t vocab;
};
const std::map<std::string, Shape> kShapes = {{"0.5B", {896, 151936}}, {"7B", {3584, 152064}}, {"8B", {4096, 128256}}};

struct Subject {
  std::string loss;
  LossName name;
  int64_t chunk_rows;
  Dtype weight_dtype;
  int64_t length;               // of a sequence; 0: no sequences
  bool with_reference = false;  // the reference model's forward is part of it
};

constexpr int64_t kSmall = 512;  // MiB of workspace
constexpr int64_t kLarge = 1433;

// chunk_rows negative: as many as fit into so many MiB.
std::vector<Subject> subjects(const std::vector<int64_t>& chunks) {
  std::vector<Subject> all;
  for (const int64_t chunk : chunks) all.push_back({"sft", LossName::sft, chunk, Dtype::bf16, 0});
  if (!all.empty()) return all;
  for (const int64_t size : {kSmall, kLarge}) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) all.push_back({"sft", LossName::sft, -size, dtype, 0});
  }
  all.push_back({"grpo", LossName::grpo, -kSmall, Dtype::bf16, 1024});
  all.push_back({"kto", LossName::kto, 1024, Dtype::bf16, 1024});
  all.push_back({"kto+ref", LossName::kto, 1024, Dtype::bf16, 1024, true});
  all.push_back({"dpo", LossName::dpo, 2048, Dtype::bf16, 1024});
  all.push_back({"dpo+ref", LossName::dpo, 2048, Dtype::bf16, 1024, true});
  return all;
}

// By then the products' kernels are surely chosen: most products come once a call, and are tried up to 200 times.
constexpr int kTrialCalls = 400;
constexpr int kStageCalls = 4;

struct Arguments {
  std::string shape = "0.5B";
  int64_t rows = 8192;
  std::string only;
  double seconds = 0.2;
  int rounds = 5;
  std::string json;
  bool check = true;
  bool stages = false;
  std::vector<int64_t> chunks;
};

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> found;
  std::stringstream stream(text);
  for (std::string number; std::getline(stream, number, ',');) found.push_back(std::atoll(number.c_str()));
  return found;
}

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = values[i];
    const std::string value = values[i + 1];
    if (name == "--shape") arguments.shape = value;
    if (name == "--rows") arguments.rows = std::atoll(value.c_str());
    if (name == "--only") arguments.only = value;
    if (name == "--seconds") arguments.seconds = std::atof(value.c_str());
    if (name == "--rounds") arguments.rounds = std::atoi(value.c_str());
    if (name == "--json") arguments.json = value;
    if (name == "--stages") arguments.stages = value != "0";
    if (name == "--chunks") arguments.chunks = numbers(value);
    if (name == "--check") arguments.check = value != "0";
  }
  return arguments;
}

// The reference takes long for what it is; one a loss.
const testing::Reference& reference_of(testing::Problem& problem, const Subject& subject) {
  static std::string kept_loss;
  static std::unique_ptr<testing::Reference> kept;
  if (kept_loss != subject.loss) {
    kept.reset();
    kept =
        std::make_unique<testing::Reference>(testing::reference(problem.linear(), subject.name, problem.parameters()));
    kept_loss = subject.loss;
  }
  return *kept;
}

void measure(const Arguments& arguments, const Subject& subject, BareProducts& bare, Context& context,
             std::ofstream& json) {
  const Shape shape = kShapes.at(arguments.shape);
  testing::ProblemOptions options;
  options.data.rows = arguments.rows;
  options.data.width = shape.width;
  options.data.vocab = shape.vocab;
  options.data.seed = 1;
  options.loss = subject.name;
  options.sequences = subject.length == 0 ? 1 : arguments.rows / subject.length;
  options.weight_dtype = subject.weight_dtype;
  options.options.chunk_rows = subject.chunk_rows;
  if (subject.chunk_rows < 0) {
    const Linear sizes{arguments.rows, shape.width, shape.vocab};
    options.options.chunk_rows = chunk_rows_within(sizes, Sft{}, static_cast<size_t>(-subject.chunk_rows) << 20U);
  }
  testing::Problem problem(options);
  problem.poison();
  problem.run(context);
  testing::Errors errors;
  if (arguments.check) errors = testing::errors(problem, reference_of(problem, subject));
  // The reference model: as large, of other numbers.
  testing::Data reference;
  testing::Buffer<float> reference_out(subject.with_reference ? arguments.rows : 0);
  testing::Buffer<char> reference_space;
  if (subject.with_reference) {
    testing::DataOptions data = options.data;
    data.seed = 2;
    reference = testing::make_data(data);
    reference.linear.targets = problem.linear().targets;
    reference_space = testing::Buffer<char>(static_cast<int64_t>(log_probabilities_workspace_bytes(reference.linear)));
  }
  const auto base = [&] {
    bare.three();
    if (subject.with_reference) bare.logits();
  };
  const auto work = [&] {
    if (subject.with_reference) {
      log_probabilities(context, reference.linear, reference_out.get(), reference_space.get(), nullptr);
    }
    problem.run(context);
  };
  work();
  for (int i = 0; i < kTrialCalls && !context.state().products.settled(); ++i) work();
  const Alternated timed = alternate(base, work, arguments.seconds, arguments.rounds);
  const double flops = 6.0 * static_cast<double>(arguments.rows) * static_cast<double>(shape.width * shape.vocab);
  const double mebibytes =
      static_cast<double>(std::max<int64_t>(problem.workspace_bytes(), reference_space.count())) / (1 << 20);
  const char* dtype = subject.weight_dtype == Dtype::fp32 ? "fp32" : "bf16";
  std::printf(
      "%-5s %-5s N %ld C %4ld dW %s: %6.2f %% (spread %.2f) bare %.3f ms %.0f TFLOP/s, ours %.3f ms, %.0f MiB; %s\n",
      arguments.shape.c_str(), subject.loss.c_str(), static_cast<long>(arguments.rows),
      static_cast<long>(options.options.chunk_rows), dtype, timed.percent, timed.spread, timed.base_ms,
      flops / timed.base_ms / 1e9, timed.subject_ms, mebibytes, testing::print(errors).c_str());
  if (arguments.stages) {
    std::printf("%s", context.state().products.describe().c_str());
    for (const auto& [stage, milliseconds] : stage_times(problem, context, kStageCalls)) {
      std::printf("      %-16s %.3f ms\n", stage.c_str(), milliseconds);
    }
  }
  std::fflush(stdout);
  if (!json.is_open()) return;
  json << "{\"shape\": \"" << arguments.shape << "\", \"loss\": \"" << subject.loss
       << "\", \"rows\": " << arguments.rows << ", \"chunk_rows\": " << options.options.chunk_rows
       << ", \"weight_gradient\": \"" << dtype << "\", \"percent\": " << timed.percent
       << ", \"spread\": " << timed.spread << ", \"bare_ms\": " << timed.base_ms << ", \"ms\": " << timed.subject_ms
       << ", \"mib\": " << mebibytes << ", \"hidden_error\": " << errors.hidden
       << ", \"weight_error\": " << errors.weight << ", \"log_probability_error\": " << errors.log_probabilities
       << "}\n"
       << std::flush;
}

int run(const Arguments& arguments) {
  const Shape shape = kShapes.at(arguments.shape);
  testing::DataOptions data;
  data.rows = arguments.rows;
  data.width = shape.width;
  data.vocab = shape.vocab;
  data.seed = 1;
  const testing::Data operands = testing::make_data(data);
  BareProducts bare(operands.linear);
  Context context;
  std::ofstream json;
  if (!arguments.json.empty()) json.open(arguments.json, std::ios::app);
  for (const Subject& subject : subjects(arguments.chunks)) {
    const std::string text = subject.loss + (subject.weight_dtype == Dtype::fp32 ? " fp32" : " bf16");
    if (text.find(arguments.only) == std::string::npos) continue;
    measure(arguments, subject, bare, context, json);
  }
  return 0;
}

}  // namespace
}  // namespace regather::kernels::bench

int main(int count, char** values) {
  try {
    return regather::kernels::bench::run(regather::kernels::bench::parse(count, values));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "linear_loss_bench: %s\n", error.what());
    return 1;
  }
}
