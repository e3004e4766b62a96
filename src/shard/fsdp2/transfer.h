// The two collectives of a unit: all its parameters gathered at once, all its gradients reduced and scattered at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/world.h"
#include "shard/fsdp2/flat_gather.h"
#include "shard/fsdp2/shard_parameter.h"

namespace regather::shard {

// Parameters on their way from the shards, in the dtype of the whole ones. Every rank must start the same ones in the
// same order.
class Gather {
 public:
  Gather(comm::World& world, const std::vector<ShardParameter*>& parameters);
  // Waits, and fills the parameters' whole data. Throws what the transport throws when another rank failed.
  void finish();
  // Waits and drops the values: they were fetched ahead for a backward that never came.
  void drop();

 private:
  std::vector<ShardParameter*> parameters_;
  FlatGather padded_shards_;
};

// Gradients on their way to the shards: the mean over ranks of each parameter's whole gradient.
class Reduction {
 public:
  // `gradients[i]` is that of `parameters[i]`, of its whole shape. They are cast to the first parameter's
  // reduce_dtype().
  Reduction(comm::World& world, std::vector<ShardParameter*> parameters, const std::vector<at::Tensor>& gradients);
  // Waits, and adds each rank's rows to the sharded parameters' gradients.
  void finish();

 private:
  int world_;
  std::vector<ShardParameter*> parameters_;
  at::Tensor input_;   // [world, n]: for each rank its rows, padded
  at::Tensor output_;  // [n]
  double divide_after_;
  comm::Work work_;
};

}  // namespace regather::shard
