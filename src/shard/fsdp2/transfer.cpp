#include "shard/fsdp2/transfer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "case/fault.h"

namespace regather::shard {
namespace {

int64_t total_numel(const std::vector<ShardParameter*>& parameters) {
  int64_t total = 0;
  for (const ShardParameter* parameter : parameters) total += parameter->padded_numel();
  return total;
}

std::vector<at::Tensor> in_whole_dtype(const std::vector<ShardParameter*>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const ShardParameter* parameter : parameters) {
    parts.push_back(parameter->padded_shard().to(parameter->whole().scalar_type()));
  }
  return parts;
}

// The mean over ranks is the sum divided by their number. float16 overflows early, so part of the division comes before
// the sum: by a power of two near the root of the number.
int64_t division_before(int64_t world, at::ScalarType dtype) {
  int64_t before = 1;
  if (dtype != at::kHalf) return before;
  while (world % before == 0 && world / before > before) before *= 2;
  return before;
}

// Rows go to the ranks in order and only the last ones are short, so a rank's share of the flat gradient is one piece.
void lay_out(const at::Tensor& input, int64_t offset, int64_t padded_numel, const at::Tensor& gradient) {
  const at::Tensor flat = gradient.detach().reshape({-1});
  if (input.size(0) * padded_numel == flat.numel()) {  // nothing is padded: one copy
    input.narrow(1, offset, padded_numel).copy_(flat.view({input.size(0), padded_numel}));
    return;
  }
  for (int64_t rank = 0; rank < input.size(0); ++rank) {
    const int64_t start = std::min(rank * padded_numel, flat.numel());
    const int64_t length = std::min(padded_numel, flat.numel() - start);
    if (length > 0) input[rank].narrow(0, offset, length).copy_(flat.narrow(0, start, length));
  }
}

}  // namespace

Gather::Gather(comm::World& world, const std::vector<ShardParameter*>& parameters)
    : parameters_(parameters), padded_shards_(world, in_whole_dtype(parameters)) {}

void Gather::finish() {
  padded_shards_.wait();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i]->allocate();
    padded_shards_.copy_to(i, parameters_[i]->whole_data());
  }
}

void Gather::drop() { padded_shards_.wait(); }

Reduction::Reduction(comm::World& world, std::vector<ShardParameter*> parameters,
                     const std::vector<at::Tensor>& gradients)
    : world_(world.size()), parameters_(std::move(parameters)) {
  const at::NoGradGuard no_grad;
  const int64_t total = total_numel(parameters_);
  const at::ScalarType dtype = parameters_.front()->reduce_dtype();
  input_ = at::zeros({world_, total}, gradients.front().options().dtype(dtype));
  int64_t offset = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    REGATHER_CHECK(gradients[i].numel() == parameters_[i]->numel(), "fsdp2",
                   "the gradient of '{}' has {} elements; the parameter has {}", parameters_[i]->name(),
                   gradients[i].numel(), parameters_[i]->numel());
    lay_out(input_, offset, parameters_[i]->padded_numel(), gradients[i]);
    offset += parameters_[i]->padded_numel();
  }
  const int64_t before = division_before(world_, dtype);
  divide_after_ = static_cast<double>(fault_is(Fault::scale_twice) ? world_ * world_ : world_) / before;
  if (before > 1) input_.div_(before);
  output_ = at::empty({total}, input_.options());
  if (fault_is(Fault::drop_reduce_scatter)) {
    output_.copy_(input_[world.rank()]);
  } else {
    work_ = world.reduce_scatter(output_, input_.view({-1}));
  }
}

void Reduction::finish() {
  const at::NoGradGuard no_grad;
  if (work_) work_->wait();
  if (divide_after_ != 1) output_.div_(divide_after_);
  int64_t offset = 0;
  for (ShardParameter* parameter : parameters_) {
    const at::Tensor mine = output_.narrow(0, offset, parameter->padded_numel());
    parameter->accumulate(mine.view(parameter->padded_shard().sizes()));
    offset += parameter->padded_numel();
  }
}

}  // namespace regather::shard
