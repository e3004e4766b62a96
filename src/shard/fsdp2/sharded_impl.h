// What is behind a sharded tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>

#include "comm/world.h"

namespace regather::shard {

// Below autograd the key Fake comes first, so every operator that autograd passes on arrives at the fallback of
// dispatch.cpp. There is no storage: code that goes around the dispatcher gets an error of c10's.
class ShardedImpl : public c10::TensorImpl {
 public:
  // `shard_dimension` is the dimension of `sizes` that the ranks share out.
  ShardedImpl(at::Tensor local, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t shard_dimension,
              comm::World& world);

  // Null when the tensor is not sharded.
  static ShardedImpl* of(const at::Tensor& tensor);

  const at::Tensor& local() const { return local_; }
  int64_t shard_dimension() const { return shard_dimension_; }
  comm::World& world() const { return *world_; }
  // Another tensor of the same sizes, sharded alike.
  at::Tensor alike(at::Tensor local) const;

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) override;

 private:
  const char* tensorimpl_type_name() const override { return "regather::ShardedImpl"; }

  at::Tensor local_;
  int64_t shard_dimension_;
  comm::World* world_;
};

// Registers the fallback, once a process.
void install_sharding_rules();

}  // namespace regather::shard
