#include "shard/zero/optimizer_partition.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "case/fault.h"
#include "shard/parameters.h"

namespace regather::shard {
namespace {

// reduce_bucket_size, upstream's default.
constexpr int64_t kBucketNumel = 500'000'000;

}  // namespace

ZeroOptimizerPartition::ZeroOptimizerPartition(comm::World& world, model::Module& root, Stage stage,
                                               const BackendOptions& options)
    : world_(world),
      root_(root),
      stage_(stage),
      optimizer_(options.optimizer),
      accumulation_(options.accumulation),
      scale_(accumulation_.divisor()) {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> flat;
  int64_t numel = 0;
  for (const auto& [name, parameter] : named_parameters_once(root)) {
    if (!parameter.requires_grad()) continue;
    slices_.push_back(std::make_unique<Slice>(Slice{name, parameter, numel}));
    on_gradient_accumulated(parameter, [this, slice = slices_.back().get()] { arrived(*slice); });
    flat.push_back(parameter.detach().reshape({-1}).to(at::kFloat));
    numel += parameter.numel();
  }
  REGATHER_CHECK(!slices_.empty(), "zero", "no parameter requires grad: there is nothing to partition");
  partition_numel_ = (numel + world_.size() - 1) / world_.size();
  // Room for a shard that starts late (the seeded fault).
  flat.push_back(at::zeros({partition_numel_ * world_.size() - numel + 1}, flat[0].options()));
  const int64_t shift = fault_is(Fault::shift_shard) ? 1 : 0;
  master_ = at::cat(flat).narrow(0, first() + shift, partition_numel_).clone();
  gradient_ = at::zeros_like(master_);
}

ZeroOptimizerPartition::~ZeroOptimizerPartition() {
  for (const auto& slice : slices_) remove_accumulated_hook(slice->parameter);
}

Tensor ZeroOptimizerPartition::forward(const std::function<Tensor()>& body) {
  // An aborted backward may have left some.
  bucket_.clear();
  bucket_numel_ = 0;
  return scale_.hook(root_.call(Tensor(), [&](const Tensor&) { return body(); }));
}

void ZeroOptimizerPartition::backward(const Tensor& loss) {
  require_scalar_with_graph(loss);
  for (const auto& slice : slices_) slice->reduced = false;
  scale_.begin_backward();
  loss.backward();
  if (scale_.was_bypassed()) observe("accumulation_scaled", "the loss did not pass the engine's forward");
  const bool reduces = stage_ == Stage::gradients || accumulation_.at_boundary();
  if (reduces && stage_ == Stage::optimizer) {
    for (const auto& slice : slices_) {
      if (slice->parameter.grad().defined()) add_to_bucket(*slice);
    }
  }
  if (reduces) {
    REGATHER_CHECK(bucket_ready_, "zero",
                   "no gradient arrived at any of the {} trainable parameters: there is no bucket to reduce",
                   slices_.size());
    reduce_bucket();
    // What counts from here on is the partition's.
    for (const auto& slice : slices_) slice->parameter.mutable_grad() = Tensor();
  }
  accumulation_.end_backward();
}

void ZeroOptimizerPartition::arrived(Slice& slice) {
  bucket_ready_ = true;
  if (stage_ == Stage::gradients) add_to_bucket(slice);
}

void ZeroOptimizerPartition::add_to_bucket(Slice& slice) {
  if (!bucket_.empty() && bucket_numel_ + slice.parameter.numel() > kBucketNumel) reduce_bucket();
  const bool waits = std::find(bucket_.begin(), bucket_.end(), &slice) != bucket_.end();
  if (slice.reduced || waits) observe("reduced_twice", slice.name);
  REGATHER_CHECK(!slice.reduced && !waits, "zero",
                 "the gradient of '{}' came twice in one backward; its partition takes it once", slice.name);
  bucket_.push_back(&slice);
  bucket_numel_ += slice.parameter.numel();
}

void ZeroOptimizerPartition::reduce_bucket() {
  if (bucket_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<Tensor> gradients;
  for (const Slice* slice : bucket_) gradients.push_back(slice->parameter.grad().reshape({-1}));
  Tensor whole = at::cat(gradients);
  whole.div_(fault_is(Fault::scale_twice) ? world_.size() * world_.size() : world_.size());
  // As upstream by default (use_multi_rank_bucket_allreduce): one sum for all owners, each of which takes its part.
  world_.all_reduce(whole)->wait();
  int64_t offset = 0;
  for (Slice* slice : bucket_) {
    keep_own_part(*slice, whole.narrow(0, offset, slice->parameter.numel()));
    offset += slice->parameter.numel();
    slice->reduced = true;
    if (stage_ == Stage::gradients && !owns_part_of(*slice)) slice->parameter.mutable_grad() = Tensor();
  }
  bucket_.clear();
  bucket_numel_ = 0;
}

bool ZeroOptimizerPartition::owns_part_of(const Slice& slice) const {
  return slice.offset < first() + partition_numel_ && slice.offset + slice.parameter.numel() > first();
}

void ZeroOptimizerPartition::keep_own_part(const Slice& slice, const Tensor& gradient) {
  const int64_t from = std::max(first(), slice.offset);
  const int64_t to = std::min(first() + partition_numel_, slice.offset + gradient.numel());
  if (from < to)
    gradient_.narrow(0, from - first(), to - from).add_(gradient.narrow(0, from - slice.offset, to - from));
}

void ZeroOptimizerPartition::step() {
  const at::NoGradGuard no_grad;
  if (!fault_is(Fault::lost_update)) adamw(master_, gradient_, state_, optimizer_);
  const Named values = gather_by_name(master_);
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (fault_is(Fault::stale_shard) && slices_[i]->name.ends_with("q_proj.weight")) continue;
    slices_[i]->parameter.detach().copy_(values[i].second);
  }
  accumulation_.end_step();
  bucket_ready_ = false;
}

void ZeroOptimizerPartition::zero_gradients() {
  if (fault_is(Fault::keep_gradients)) return;
  gradient_.zero_();
  for (const auto& slice : slices_) slice->parameter.mutable_grad() = Tensor();
}

Named ZeroOptimizerPartition::gather_by_name(const Tensor& partition) {
  const at::NoGradGuard no_grad;
  Tensor flat = at::empty({partition_numel_ * world_.size()}, partition.options());
  world_.all_gather(flat, partition)->wait();
  Named named;
  for (const auto& slice : slices_) {
    named.emplace_back(slice->name,
                       flat.narrow(0, slice->offset, slice->parameter.numel()).view(slice->parameter.sizes()));
  }
  return named;
}

Named ZeroOptimizerPartition::full_gradients() { return gather_by_name(gradient_); }

Named ZeroOptimizerPartition::full_parameters() {
  Named parameters;
  for (const auto& [name, parameter] : named_parameters_once(root_)) {
    parameters.emplace_back(name, parameter.detach().clone());
  }
  return parameters;
}

std::vector<std::string> ZeroOptimizerPartition::broken_invariants() {
  std::vector<std::string> broken;
  for (const auto& slice : slices_) {
    if (slice->parameter.grad().defined()) {
      broken.push_back(fmt::format("{} still has its whole gradient", slice->name));
    }
  }
  return broken;
}

}  // namespace regather::shard
