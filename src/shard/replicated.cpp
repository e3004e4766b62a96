#include "shard/replicated.h"

#include <utility>

#include "case/fault.h"
#include "shard/parameters.h"

namespace regather::shard {

Replicated::Replicated(model::Module& root, const BackendOptions& options)
    : root_(root), optimizer_(options.optimizer), accumulation_(options.accumulation) {
  for (const auto& [name, parameter] : named_parameters_once(root)) replicas_.push_back({name, parameter, {}});
}

void Replicated::accumulate(const Tensor& loss) {
  accumulation_.divided(loss).backward();
  accumulation_.end_backward();
}

void Replicated::step() {
  bool skip = fault_is(Fault::lost_update);
  for (Replica& replica : replicas_) {
    if (!replica.parameter.grad().defined()) continue;
    if (std::exchange(skip, false)) continue;
    Tensor parameter = replica.parameter.detach();
    adamw(parameter, replica.parameter.grad(), replica.state, optimizer_);
  }
  accumulation_.end_step();
}

void Replicated::zero_gradients() {
  if (fault_is(Fault::keep_gradients)) return;
  for (Replica& replica : replicas_) replica.parameter.mutable_grad() = Tensor();
}

Named Replicated::full_gradients() {
  Named gradients;
  for (const Replica& replica : replicas_) {
    if (replica.parameter.requires_grad()) gradients.emplace_back(replica.name, replica.parameter.grad());
  }
  return gradients;
}

Named Replicated::full_parameters() {
  Named parameters;
  for (const Replica& replica : replicas_) parameters.emplace_back(replica.name, replica.parameter.detach().clone());
  return parameters;
}

}  // namespace regather::shard
