#include "shard/fsdp2/transfer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
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

// Rows go to the ranks in order and only the last ones are short, so a rank's share of the flat gradient is one piece.
void lay_out(const at::Tensor& input, int64_t offset, int64_t padded_numel, const at::Tensor& gradient) {
  const at::Tensor flat = gradient.detach().reshape({-1});
  for (int64_t rank = 0; rank < input.size(0); ++rank) {
    const int64_t start = std::min(rank * padded_numel, flat.numel());
    const int64_t length = std::min(padded_numel, flat.numel() - start);
    if (length > 0) input[rank].narrow(0, offset, length).copy_(flat.narrow(0, start, length));
  }
}

}  // namespace

Gather::Gather(comm::World& world, const std::vector<ShardParameter*>& parameters)
    : world_(world.size()), parameters_(parameters) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (const ShardParameter* parameter : parameters_) flat.push_back(parameter->padded_shard().view({-1}));
  input_ = at::cat(flat);
  at::Tensor flat_output = at::empty({world_ * input_.numel()}, input_.options());
  output_ = flat_output.view({world_, -1});
  work_ = world.all_gather(flat_output, input_);
}

void Gather::finish() {
  const at::NoGradGuard no_grad;
  work_->wait();
  int64_t offset = 0;
  for (ShardParameter* parameter : parameters_) {
    const int64_t numel = parameter->padded_numel();
    parameter->allocate();
    const at::Tensor padded = output_.narrow(1, offset, numel).reshape({-1});
    parameter->whole_data().view({-1}).copy_(padded.narrow(0, 0, parameter->numel()));
    offset += numel;
  }
}

void Gather::drop() { work_->wait(); }

Reduction::Reduction(comm::World& world, std::vector<ShardParameter*> parameters,
                     const std::vector<at::Tensor>& gradients)
    : world_(world.size()), parameters_(std::move(parameters)) {
  const at::NoGradGuard no_grad;
  const int64_t total = total_numel(parameters_);
  input_ = at::zeros({world_, total}, gradients.front().options());
  int64_t offset = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    REGATHER_CHECK(gradients[i].numel() == parameters_[i]->numel(), "fsdp2",
                   "the gradient of '{}' has {} elements; the parameter has {}", parameters_[i]->name(),
                   gradients[i].numel(), parameters_[i]->numel());
    lay_out(input_, offset, parameters_[i]->padded_numel(), gradients[i]);
    offset += parameters_[i]->padded_numel();
  }
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
  output_.div_(fault_is(Fault::scale_twice) ? world_ * world_ : world_);
  int64_t offset = 0;
  for (ShardParameter* parameter : parameters_) {
    const at::Tensor mine = output_.narrow(0, offset, parameter->padded_numel());
    parameter->accumulate(mine.view(parameter->padded_shard().sizes()));
    offset += parameter->padded_numel();
  }
}

}  // namespace regather::shard
