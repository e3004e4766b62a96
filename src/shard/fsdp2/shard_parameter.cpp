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
                               std::vector<Holder> holders, const MixedPrecision& precision)
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
  // In fully_shard's order: the shard becomes a parameter, which requires grad, and only then takes the original's
  // flag. So a dtype that cannot require grad (integers) is refused, frozen or not, in libtorch's words.
  sharded_.set_requires_grad(true);
  sharded_.set_requires_grad(parameter.requires_grad());
  data_ = at::empty(sizes, options.dtype(precision.param_dtype.value_or(parameter.scalar_type())));
  whole_.set_data(data_);
  if (precision.reduce_dtype != precision.param_dtype) reduce_dtype_ = precision.reduce_dtype;
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
  is_whole_ = was_whole_ = true;
}

void ShardParameter::use_sharded() {
  put(sharded_);
  free();
  is_whole_ = false;
}

at::Tensor ShardParameter::take_gradient() {
  const at::NoGradGuard no_grad;
  at::Tensor latest = std::exchange(whole_.mutable_grad(), at::Tensor());
  if (!kept_.defined()) return latest;
  at::Tensor sum = std::exchange(kept_, at::Tensor());
  return latest.defined() ? sum.add_(latest) : sum;
}

void ShardParameter::keep_gradient() {
  const at::NoGradGuard no_grad;
  if (!reduce_dtype_) return;
  REGATHER_CHECK(was_whole_, "fsdp2",
                 "'{}' has never been gathered: there is no whole parameter whose gradient could wait for a reduction",
                 name_);
  if (!whole_.grad().defined() || (!kept_.defined() && whole_.grad().scalar_type() == *reduce_dtype_)) return;
  kept_ = take_gradient().to(*reduce_dtype_);
}

void ShardParameter::clear_gradient() {
  sharded_.mutable_grad() = at::Tensor();
  is_reduced_ = false;
}

void ShardParameter::accumulate(const at::Tensor& padded_gradient) {
  const at::NoGradGuard no_grad;
  is_reduced_ = true;
  const at::Tensor rows = padded_gradient.narrow(0, 0, local_shard(sharded_).size(0)).to(sharded_.scalar_type());
  if (sharded_.grad().defined()) {
    sharded_.mutable_grad().add_(make_sharded(rows, sharded_.sizes(), world_));
  } else {
    sharded_.mutable_grad() = make_sharded(rows, sharded_.sizes(), world_);
  }
}

}  // namespace regather::shard
