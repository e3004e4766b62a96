#include "shard/fsdp2/unit.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace regather::shard {

Unit::Unit(comm::World& world, std::string name, std::vector<ShardParameter*> parameters, bool reshard_after_forward,
           GatherCounts& counts)
    : world_(world),
      name_(std::move(name)),
      parameters_(std::move(parameters)),
      reshard_after_forward_(reshard_after_forward),
      counts_(counts) {}

void Unit::check_dtypes() const {
  const ShardParameter* first = nullptr;
  for (const ShardParameter* parameter : parameters_) {
    const at::Tensor& shard = parameter->sharded();
    if (!shard.requires_grad()) continue;
    if (first == nullptr) first = parameter;
    REGATHER_CHECK(shard.scalar_type() == first->sharded().scalar_type(), "fsdp2",
                   "one unit trains '{}' in {} and '{}' in {}: its gradients are reduced together, in one dtype",
                   first->name(), c10::toString(first->sharded().scalar_type()), parameter->name(),
                   c10::toString(shard.scalar_type()));
  }
}

void Unit::start_unshard() {
  if (is_whole_ || gather_ || parameters_.empty()) return;
  gather_.emplace(world_, parameters_);
  counts_.gathers += static_cast<int64_t>(parameters_.size());
}

void Unit::finish_unshard() {
  if (!gather_) return;
  gather_->finish();
  gather_.reset();
  for (ShardParameter* parameter : parameters_) {
    parameter->use_whole();
    counts_.bytes += parameter->whole_bytes();
  }
  counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.bytes);
  is_whole_ = true;
}

void Unit::reshard() {
  if (!is_whole_) return;
  for (ShardParameter* parameter : parameters_) {
    parameter->use_sharded();
    counts_.bytes -= parameter->whole_bytes();
  }
  counts_.releases += static_cast<int64_t>(parameters_.size());
  is_whole_ = false;
}

void Unit::drop_fetched() {
  if (gather_) gather_->drop();
  gather_.reset();
}

void Unit::keep_gradients() {
  for (ShardParameter* parameter : parameters_) parameter->keep_gradient();
}

std::optional<Reduction> Unit::start_reduction() {
  std::vector<ShardParameter*> with_gradient;
  std::vector<at::Tensor> gradients;
  for (ShardParameter* parameter : parameters_) {
    if (!parameter->has_gradient()) continue;
    with_gradient.push_back(parameter);
    gradients.push_back(parameter->take_gradient());
  }
  if (with_gradient.empty()) return std::nullopt;
  return std::optional<Reduction>(std::in_place, world_, std::move(with_gradient), gradients);
}

}  // namespace regather::shard
