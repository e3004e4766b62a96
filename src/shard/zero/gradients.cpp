#include "shard/zero/gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "case/fault.h"
#include "shard/zero/engine.h"

namespace regather::shard {
namespace {

// reduce_bucket_size, upstream's default.
constexpr int64_t kBucketNumel = 500'000'000;

// One parameter's gradient, padded to what the ranks share out, as [world, shard_numel].
at::Tensor padded(const ParamState& state, const at::Tensor& gradient, int world) {
  const at::Tensor flat = gradient.detach().reshape({-1});
  const int64_t total = state.shard_numel * world;
  if (total == state.numel) return flat.view({world, state.shard_numel});
  at::Tensor whole = at::empty({total}, flat.options());
  whole.narrow(0, 0, state.numel).copy_(flat);
  whole.narrow(0, state.numel, total - state.numel).zero_();
  return whole.view({world, state.shard_numel});
}

}  // namespace

Gradients::Gradients(comm::World& world, Partition& partition, const OnPartitioned& on_partitioned)
    : world_(world), partition_(partition) {
  for (const auto& owned : partition_.states()) {
    ParamState* state = owned.get();
    if (!state->parameter.requires_grad()) continue;
    state->parameter.register_hook([state, on_partitioned](const at::Tensor& gradient) {
      // Undefined where the parameter is the input of a function that has no gradient for it.
      if (gradient.defined() && state->status != Status::available) on_partitioned(*state);
      return gradient;
    });
    on_gradient_accumulated(state->parameter, [this, state] { arrived(*state); });
  }
}

Gradients::~Gradients() {
  for (const auto& state : partition_.states()) {
    if (!state->parameter.requires_grad()) continue;
    remove_accumulated_hook(state->parameter);
  }
}

void Gradients::start_boundary() {
  first_of_boundary_ = true;
  ran_ = false;
}

void Gradients::begin_forward() {
  if (std::exchange(ran_, false)) first_of_boundary_ = false;
  bucket_.clear();
}

void Gradients::arrived(ParamState& state) {
  if (!state.parameter.grad().defined()) return;  // an input without a gradient: nothing has arrived
  const int64_t numel = state.parameter.grad().numel();
  if (!bucket_.empty() && bucket_numel_ + numel > kBucketNumel) flush();
  REGATHER_CHECK(std::find(bucket_.begin(), bucket_.end(), &state) == bucket_.end(), "zero3",
                 "'{}' received its gradient twice in one bucket", state.name);
  bucket_.push_back(&state);
  bucket_numel_ += numel;
}

void Gradients::flush() {
  if (bucket_.empty()) return;
  const at::NoGradGuard no_grad;
  std::sort(bucket_.begin(), bucket_.end(), [](const ParamState* a, const ParamState* b) { return a->id < b->id; });
  int64_t row = 0;
  for (const ParamState* state : bucket_) {
    REGATHER_CHECK(state->parameter.grad().numel() == state->numel, "zero3",
                   "the gradient of '{}' has {} elements; the parameter has {}", state->name,
                   state->parameter.grad().numel(), state->numel);
    row += state->shard_numel;
  }
  const int world = world_.size();
  at::Tensor input = at::empty({world, row}, bucket_[0]->shard.options());
  int64_t offset = 0;
  for (const ParamState* state : bucket_) {
    input.narrow(1, offset, state->shard_numel).copy_(padded(*state, state->parameter.grad(), world));
    offset += state->shard_numel;
  }
  input.div_(fault_is(Fault::scale_twice) ? world * world : world);
  at::Tensor output = at::empty({row}, input.options());
  if (fault_is(Fault::drop_reduce_scatter)) {
    output.copy_(input[world_.rank()]);
  } else {
    at::Tensor flat = input.view({-1});
    world_.reduce_scatter(output, flat)->wait();
  }
  offset = 0;
  for (ParamState* state : bucket_) {
    const at::Tensor part = output.narrow(0, offset, state->shard_numel);
    if (first_of_boundary_) {
      overwrote_ = overwrote_ || ran_;
      state->gradient.copy_(part);
    } else {
      state->gradient.add_(part);
    }
    state->parameter.mutable_grad() = at::Tensor();
    offset += state->shard_numel;
  }
  bucket_.clear();
  bucket_numel_ = 0;
}

}  // namespace regather::shard
