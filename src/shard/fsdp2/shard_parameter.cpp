#include "shard/fsdp2/shard_parameter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "case/fault.h"
#include "shard/fsdp2/sharded_tensor.h"

namespace regather::shard {

ShardParameter::ShardParameter(comm::World& world, std::string name, const at::Tensor& parameter,
                               std::vector<Holder> holders)
    : world_(world), name_(std::move(name)), holders_(std::move(holders)), whole_(parameter) {
  const at::NoGradGuard no_grad;
  REGATHER_CHECK(parameter.dim() > 0, "fsdp2", "'{}' has no dimension to shard", name_);
  const std::vector<int64_t> sizes = parameter.sizes().vec();
  const auto options = parameter.options().requires_grad(false);
  const int64_t chunk = rows_per_rank(sizes[0], world.size());
  std::vector<int64_t> padded_sizes = sizes;
  padded_sizes[0] = chunk;
  padded_ = at::zeros(padded_sizes, options);
  const int64_t shift = fault_is(Fault::shift_shard) && name_.ends_with("q_proj.weight") ? 1 : 0;
  const int64_t start = std::min(chunk * world.rank(), sizes[0]);
  const int64_t rows = std::min(chunk, sizes[0] - start);
  const at::Tensor mine = padded_.narrow(0, 0, rows);
  mine.copy_(parameter.detach().narrow(0, start, rows).roll(shift, 0));

  sharded_ = make_sharded(mine, sizes, world);
  sharded_.set_requires_grad(parameter.requires_grad());
  data_ = at::empty(sizes, options);
  whole_.set_data(data_);
  use_sharded();
}

void ShardParameter::allocate() {
  c10::StorageImpl* storage = data_.storage().unsafeGetStorageImpl();
  const auto bytes = static_cast<size_t>(whole_bytes());
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

void ShardParameter::free() {
  c10::StorageImpl* storage = data_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, data_.device()));
  storage->set_nbytes(size_t{0});
}

void ShardParameter::put(const at::Tensor& parameter) {
  for (const Holder& holder : holders_) holder.module->set_own_parameter(holder.name, parameter);
}

void ShardParameter::use_whole() {
  if (whole_.requires_grad() != sharded_.requires_grad()) whole_.set_requires_grad(sharded_.requires_grad());
  put(whole_);
  is_whole_ = true;
}

void ShardParameter::use_sharded() {
  put(sharded_);
  free();
  is_whole_ = false;
}

void ShardParameter::accumulate(const at::Tensor& padded_gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = padded_gradient.narrow(0, 0, local_shard(sharded_).size(0));
  if (sharded_.grad().defined()) {
    sharded_.mutable_grad().add_(make_sharded(rows, sharded_.sizes(), world_));
  } else {
    sharded_.mutable_grad() = make_sharded(rows, sharded_.sizes(), world_);
  }
}

}  // namespace regather::shard
