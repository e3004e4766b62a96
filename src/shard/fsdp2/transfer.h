// The two collectives of a unit: all its parameters gathered at once, all its gradients reduced and scattered at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/world.h"
#include "shard/fsdp2/shard_parameter.h"

namespace regather::shard {

// Parameters on their way from the shards. Every rank must start the same ones in the same order.
class Gather {
 public:
  Gather(comm::World& world, const std::vector<ShardParameter*>& parameters);
  // Waits, and fills the parameters' whole data. Throws what the transport throws when another rank failed.
  void finish();
  // Waits and drops the values: they were fetched ahead for a backward that never came.
  void drop();

 private:
  int world_;
  std::vector<ShardParameter*> parameters_;
  at::Tensor input_;   // [n]: the padded shards, one after another
  at::Tensor output_;  // [world, n]
  comm::Work work_;
};

// Gradients on their way to the shards: the mean over ranks of each parameter's whole gradient.
class Reduction {
 public:
  // `gradients[i]` is that of `parameters[i]`, of its whole shape.
  Reduction(comm::World& world, std::vector<ShardParameter*> parameters, const std::vector<at::Tensor>& gradients);
  // Waits, and adds each rank's rows to the sharded parameters' gradients.
  void finish();

 private:
  int world_;
  std::vector<ShardParameter*> parameters_;
  at::Tensor input_;   // [world, n]: for each rank its rows, padded
  at::Tensor output_;  // [n]
  comm::Work work_;
};

}  // namespace regather::shard
