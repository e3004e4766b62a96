#include "shard/fsdp2/sharded_tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "shard/fsdp2/flat_gather.h"
#include "shard/fsdp2/sharded_impl.h"

namespace regather::shard {
namespace {

c10::DispatchKeySet keys_for(const at::Tensor& local) {
  const auto backend = local.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  return c10::DispatchKeySet(c10::DispatchKey::Fake) | c10::DispatchKeySet(backend);
}

// The rows of `rank` in `whole`, which every rank has.
at::Tensor rows_of(const at::Tensor& whole, int rank, int world) {
  const int64_t chunk = rows_per_rank(whole.size(0), world);
  const int64_t start = std::min(chunk * rank, whole.size(0));
  return whole.narrow(0, start, std::min(chunk, whole.size(0) - start));
}

const ShardedImpl& sharded_by_rows(const at::Tensor& tensor) {
  const ShardedImpl* impl = ShardedImpl::of(tensor);
  REGATHER_CHECK(impl != nullptr && impl->shard_dimension() == 0, "fsdp2", "the tensor is not sharded by rows");
  return *impl;
}

// This rank's rows, as many as every rank gets; the last ones may be zeros.
at::Tensor padded(const ShardedImpl& impl) {
  const at::Tensor& local = impl.local();
  std::vector<int64_t> sizes = impl.sizes().vec();
  sizes[0] = rows_per_rank(sizes[0], impl.world().size());
  if (local.size(0) == sizes[0] && local.is_contiguous()) return local;
  at::Tensor rows = at::zeros(sizes, local.options());
  rows.narrow(0, 0, local.size(0)).copy_(local);
  return rows;
}

struct FullTensorNode : torch::autograd::Node {
  explicit FullTensorNode(comm::World& of) : world(of) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::NoGradGuard no_grad;
    const at::Tensor& whole = gradients[0];
    return {make_sharded(rows_of(whole, world.rank(), world.size()).clone(), whole.sizes(), world)};
  }
  std::string name() const override { return "RegatherFullTensor"; }

  comm::World& world;
};

}  // namespace

ShardedImpl::ShardedImpl(at::Tensor local, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t shard_dimension,
                         comm::World& world)
    : TensorImpl(keys_for(local), local.dtype(), local.device()),
      local_(std::move(local)),
      shard_dimension_(shard_dimension),
      world_(&world) {
  set_sizes_and_strides(sizes, strides);
}

ShardedImpl* ShardedImpl::of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return dynamic_cast<ShardedImpl*>(tensor.unsafeGetTensorImpl());
}

at::Tensor ShardedImpl::alike(at::Tensor local) const {
  return at::detail::make_tensor<ShardedImpl>(std::move(local), sizes(), strides(), shard_dimension_, *world_);
}

c10::intrusive_ptr<c10::TensorImpl> ShardedImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                         bool allow_tensor_metadata_change) const {
  auto copy = c10::make_intrusive<ShardedImpl>(local_, sizes(), strides(), shard_dimension_, *world_);
  copy_tensor_metadata(this, copy.get(), version, allow_tensor_metadata_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> ShardedImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                         bool allow_tensor_metadata_change) const {
  auto copy = c10::make_intrusive<ShardedImpl>(local_, sizes(), strides(), shard_dimension_, *world_);
  copy_tensor_metadata(this, copy.get(), std::move(version), allow_tensor_metadata_change);
  return copy;
}

void ShardedImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) {
  const auto* other = dynamic_cast<const ShardedImpl*>(impl.get());
  REGATHER_CHECK(other != nullptr, "fsdp2", "a plain tensor's data cannot become a sharded tensor's");
  TensorImpl::shallow_copy_from(impl);
  local_ = other->local_;
  shard_dimension_ = other->shard_dimension_;
  world_ = other->world_;
}

int64_t rows_per_rank(int64_t rows, int world) { return (rows + world - 1) / world; }

at::Tensor make_sharded(const at::Tensor& local, at::IntArrayRef sizes, comm::World& world) {
  REGATHER_CHECK(!sizes.empty() && local.sizes().slice(1) == sizes.slice(1), "fsdp2",
                 "a shard of {} dimension(s) does not hold rows of a tensor of {}", local.dim(), sizes.size());
  install_sharding_rules();
  return at::detail::make_tensor<ShardedImpl>(local, sizes, c10::contiguous_strides(sizes), /*shard_dimension=*/0,
                                              world);
}

bool is_sharded(const at::Tensor& tensor) { return ShardedImpl::of(tensor) != nullptr; }

const at::Tensor& local_shard(const at::Tensor& sharded) {
  const ShardedImpl* impl = ShardedImpl::of(sharded);
  REGATHER_CHECK(impl != nullptr, "fsdp2", "the tensor is not sharded");
  return impl->local();
}

std::vector<at::Tensor> full_tensors(const std::vector<at::Tensor>& sharded) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  comm::World* world = nullptr;
  for (const at::Tensor& tensor : sharded) {
    if (!tensor.defined()) continue;
    const ShardedImpl& impl = sharded_by_rows(tensor);
    world = &impl.world();
    parts.push_back(padded(impl));
  }
  std::vector<at::Tensor> whole(sharded.size());
  if (parts.empty()) return whole;
  FlatGather gather(*world, parts);
  gather.wait();
  size_t part = 0;
  for (size_t i = 0; i < sharded.size(); ++i) {
    if (!sharded[i].defined()) continue;
    whole[i] = at::empty(sharded[i].sizes(), parts[part].options());
    gather.copy_to(part++, whole[i]);
  }
  return whole;
}

at::Tensor full_tensor(const at::Tensor& sharded) {
  comm::World& world = sharded_by_rows(sharded).world();
  at::Tensor whole = full_tensors({sharded})[0];
  if (at::GradMode::is_enabled() && sharded.requires_grad()) {
    const auto node = std::make_shared<FullTensorNode>(world);
    node->set_next_edges(torch::autograd::collect_next_edges(sharded));
    torch::autograd::set_history(whole, node);
  }
  return whole;
}

}  // namespace regather::shard
