// ZeRO stage 3 as DeepSpeed 0.19.2 runs it: parameters, gradients and optimizer state partitioned.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shard/backend.h"
#include "shard/zero/coordinator.h"
#include "shard/zero/engine.h"
#include "shard/zero/gradients.h"
#include "shard/zero/module_hooks.h"
#include "shard/zero/partition.h"

namespace regather::shard {

class Zero3 : public Backend {
 public:
  Zero3(comm::World& world, model::Module& root, const BackendOptions& options);
  ~Zero3() override;

  Tensor forward(const std::function<Tensor()>& body) override;
  void backward(const Tensor& loss) override;
  void step() override;
  void zero_gradients() override;
  bool is_whole(const Tensor& parameter) override;
  Tensor gathered(const std::vector<Tensor>& parameters, const std::function<Tensor()>& body) override;
  Named full_gradients() override;
  Named full_parameters() override;
  std::vector<std::string> broken_invariants() override;

  // The life of the parameters, to look at.
  const Partition& partition() const { return partition_; }
  const Coordinator& coordinator() const { return coordinator_; }

 private:
  void count();

  model::Module& root_;
  OptimizerOptions optimizer_;
  Accumulation accumulation_;
  OutputScale scale_;
  std::shared_ptr<ReleasePolicy> policy_;
  Partition partition_;
  Coordinator coordinator_;
  ModuleHooks hooks_;
  Gradients gradients_;
};

}  // namespace regather::shard
