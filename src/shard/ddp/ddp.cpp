#include "shard/ddp/ddp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"

namespace regather::shard {
namespace {

// torch.nn.parallel.DistributedDataParallel's defaults: buckets of 25 MiB, the first of 1 MiB.
constexpr int64_t kBucketBytes = 25 * 1024 * 1024;

std::unique_ptr<c10d::Reducer> make_reducer(comm::World& world, const std::vector<std::string>& names,
                                            const std::vector<Tensor>& trainable) {
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> limits;
  std::tie(buckets, limits) = c10d::compute_bucket_assignment_by_size(
      trainable, {static_cast<size_t>(c10d::kDefaultFirstBucketBytes), static_cast<size_t>(kBucketBytes)});
  std::reverse(buckets.begin(), buckets.end());  // gradients arrive from the last layer on
  std::unordered_map<size_t, std::string> by_index;
  for (size_t i = 0; i < names.size(); ++i) by_index.emplace(i, names[i]);
  return std::make_unique<c10d::Reducer>(trainable, buckets, world.group(), std::vector<bool>(trainable.size(), false),
                                         kBucketBytes, /*find_unused_parameters=*/false,
                                         /*gradient_as_bucket_view=*/false, by_index, c10d::kDefaultFirstBucketBytes,
                                         /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                         std::vector<int64_t>{});
}

}  // namespace

Ddp::Ddp(comm::World& world, model::Module& root, const BackendOptions& options) : Replicated(root, options) {
  std::vector<std::string> names;
  std::vector<Tensor> trainable;
  for (const Replica& replica : replicas_) {
    if (!replica.parameter.requires_grad()) continue;
    names.push_back(replica.name);
    trainable.push_back(replica.parameter);
  }
  REGATHER_CHECK(!trainable.empty(), "ddp", "no parameter requires grad: there is nothing to reduce");
  broadcast_parameters(world);
  reducer_ = make_reducer(world, names, trainable);
}

Ddp::~Ddp() = default;

// The wrapper sends rank 0's parameters to all ranks before the first step, those of one dtype together.
void Ddp::broadcast_parameters(comm::World& world) {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<Tensor>> by_dtype;
  for (const Replica& replica : replicas_) {
    by_dtype[replica.parameter.scalar_type()].push_back(replica.parameter.detach());
  }
  for (const auto& [dtype, parameters] : by_dtype) {
    std::vector<Tensor> flat;
    for (const Tensor& parameter : parameters) flat.push_back(parameter.reshape({-1}));
    Tensor all = at::cat(flat);
    world.broadcast(all, 0)->wait();
    int64_t offset = 0;
    for (const Tensor& parameter : parameters) {
      parameter.copy_(all.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
  }
}

Tensor Ddp::forward(const std::function<Tensor()>& body) {
  // All but a step's last micro-batch run as in no_sync: the reducer stays unarmed and gradients add up locally.
  const bool arms = at::GradMode::is_enabled() && accumulation_.at_boundary();
  if (arms) reducer_->prepare_for_forward();
  if (at::GradMode::is_enabled()) reducer_->rebuild_buckets();
  Tensor output = root_.call(Tensor(), [&](const Tensor&) { return body(); });
  if (arms) {
    // No output is searched for unused parameters: find_unused_parameters is off, as by default.
    reducer_->prepare_for_backward({});
    armed_ = true;
  }
  return output;
}

void Ddp::backward(const Tensor& loss) {
  if (!armed_ && accumulation_.at_boundary()) observe("reducer_unarmed", "backward without the wrapper's forward");
  armed_ = false;
  accumulate(loss);
}

}  // namespace regather::shard
