// DistributedDataParallel on the real c10d::Reducer: replicated parameters, bucketed all-reduce armed by the wrapper's
// forward.
#pragma once

#include <memory>

#include "shard/replicated.h"

namespace c10d {
class Reducer;
}

namespace regather::shard {

class Ddp : public Replicated {
 public:
  Ddp(comm::World& world, model::Module& root, const BackendOptions& options);
  ~Ddp() override;

  Tensor forward(const std::function<Tensor()>& body) override;
  void backward(const Tensor& loss) override;

 private:
  void broadcast_parameters(comm::World& world);

  std::unique_ptr<c10d::Reducer> reducer_;
  bool armed_ = false;  // the wrapper's forward ran since the last backward
};

}  // namespace regather::shard
