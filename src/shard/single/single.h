// No sharding: one rank, the bare model. What the other backends are measured against.
#pragma once

#include "shard/replicated.h"

namespace regather::shard {

class Single : public Replicated {
 public:
  // Throws Error in a world of more than one rank.
  Single(comm::World& world, model::Module& root, const BackendOptions& options);

  Tensor forward(const std::function<Tensor()>& body) override;
  void backward(const Tensor& loss) override { accumulate(loss); }
};

}  // namespace regather::shard
