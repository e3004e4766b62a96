#include "train/given.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "base/random.h"
#include "loss/kto.h"
#include "loss/tokens.h"

namespace regather::train {
namespace {

using at::Tensor;

constexpr double kReferenceDeviation = 0.02;
constexpr int kCompletions = 8;  // drawn for each of kto's batches

// Streams of random numbers of this file: none is a rank and step (loss/batch.cpp) or a parameter's (model).
constexpr uint64_t kReferenceStream = 3'000'000'000;
constexpr uint64_t kRatioStream = 4'000'000'000;

Tensor normal(at::IntArrayRef sizes, Random& random, double deviation) {
  Tensor values = at::empty(sizes, at::kDouble);
  auto* value = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) value[i] = deviation * random.normal();
  return values;
}

// How far each old log-probability lies from the current one: a third of the tokens far below (ratio about 1.5), a
// third far above (about 0.67), a third close. [B, T]
Tensor ratio_shifts(at::IntArrayRef sizes, Random& random) {
  Tensor shifts = at::empty(sizes, at::kDouble);
  auto* shift = shifts.mutable_data_ptr<double>();
  for (int64_t i = 0; i < shifts.numel(); ++i) {
    constexpr double middle[] = {-0.4, 0.4, 0.0};
    shift[i] = middle[i % 3] + 0.05 * random.normal();
  }
  return shifts;
}

void give_log_probabilities(loss::Batch& batch, model::CausalLM& initial, Random& random) {
  const Tensor own = loss::token_log_probabilities(initial(batch.input_ids), batch.labels);
  const Tensor mask = loss::predicted(batch.labels).ne(loss::kIgnore);
  batch.old_log_probabilities = (own + ratio_shifts(own.sizes(), random)) * mask;
  batch.reference_log_probabilities = (own + normal(own.sizes(), random, 0.3)) * mask;
}

}  // namespace

std::shared_ptr<const model::CausalLM> make_reference_model(const model::CausalLM& initial, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<model::CausalLM> reference = model::clone_as(initial, at::kFloat);
  Random random(seed, kReferenceStream);
  for (auto& [name, parameter] : model::distinct_parameters(*reference)) {
    parameter.add_(normal(parameter.sizes(), random, kReferenceDeviation).to(at::kFloat));
    parameter.set_requires_grad(true);
  }
  return reference;
}

std::vector<loss::Batch> given_batches(const Setting& setting, const Case& c, int index) {
  const at::NoGradGuard no_grad;
  std::shared_ptr<model::CausalLM> initial;
  std::shared_ptr<model::CausalLM> reference;
  if (c.loss == Loss::grpo || c.loss == Loss::kto) initial = model::clone_as(*setting.initial, at::kDouble);
  if (c.loss == Loss::kto) reference = model::clone_as(*setting.reference, at::kDouble);

  std::vector<loss::Batch> batches;
  for (int rank = 0; rank < c.world; ++rank) {
    loss::Batch batch = loss::make_batch(c.loss, setting.batch, setting.seed, rank, index);
    if (c.loss == Loss::grpo) {
      Random random(setting.seed, kRatioStream + static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(index));
      give_log_probabilities(batch, *initial, random);
    }
    if (c.loss == Loss::kto) {
      double best = 0;
      for (int candidate = 0; candidate < kCompletions; ++candidate) {
        const Tensor ids = loss::other_completions(batch, setting.batch, setting.seed, rank, index, candidate);
        const Tensor labels = at::where(batch.labels.eq(loss::kIgnore), batch.labels, ids);
        const double ratio =
            loss::kto_log_ratio((*initial)(ids), (*reference)(ids), labels).item<double>() * (index % 2 == 0 ? 1 : -1);
        if (candidate > 0 && ratio >= best) continue;
        best = ratio;
        batch.mismatched_ids = ids;
        batch.mismatched_labels = labels;
      }
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace regather::train
