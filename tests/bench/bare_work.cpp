#include "bare_work.h"

#include <ctime>

#include "loss/policy.h"
#include "model/qwen2.h"
#include "shard/adamw.h"
#include "train/precision.h"
#include "train/prepare.h"
#include "train/step_loss.h"

namespace regather::bench {
namespace {

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Adds the CPU time of a scope.
class Timed {
 public:
  explicit Timed(double& total) : total_(total) {}
  ~Timed() { total_ += cpu_seconds() - begin_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& total_;
  double begin_ = cpu_seconds();
};

}  // namespace

BareSeconds bare_work(Case c, const train::Setting& setting, const train::Reference& reference) {
  c.backend = Backend::single;
  c.fixes.clear();
  const std::shared_ptr<model::CausalLM> model = train::prepare_model(setting, c);
  std::shared_ptr<model::CausalLM> reference_model;
  if (train::has_reference(c.loss) && c.reference == regather::Reference::separate) {
    reference_model =
        model::clone_as(*setting.reference, train::precision(c, setting.initial->config().layers).computed);
  }
  loss::HeadScope scope;
  loss::KlForward kl_forward;
  const train::LossParts parts{.model = *model,
                               .scope = scope,
                               .reference = reference_model.get(),
                               .reference_scope = &scope,
                               .kl_forward = &kl_forward,
                               .mean_over_ranks = [](const at::Tensor& value) { return value; }};
  std::vector<std::pair<at::Tensor, shard::AdamWState>> trainable;
  for (const auto& [name, parameter] : model::distinct_parameters(*model)) {
    if (parameter.requires_grad()) trainable.emplace_back(parameter, shard::AdamWState());
  }

  BareSeconds seconds;
  for (const train::ReferenceStep& step : reference.steps) {
    for (auto& [parameter, state] : trainable) parameter.mutable_grad() = at::Tensor();
    for (const train::MicroBatch& micro : step.micro_batches) {
      at::Tensor loss;
      {
        const Timed timed(seconds.forward);
        loss = train::compute_loss(parts, c, micro.batches.front(), /*root_runs=*/false);
      }
      const Timed timed(seconds.backward);
      loss.backward();
    }
    const Timed timed(seconds.step);
    for (auto& [parameter, state] : trainable) {
      at::Tensor value = parameter.detach();
      if (parameter.grad().defined()) shard::adamw(value, parameter.grad(), state, setting.optimizer);
    }
  }
  return seconds;
}

}  // namespace regather::bench
