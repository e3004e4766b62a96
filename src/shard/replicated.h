// What backends share that keep every parameter whole on every rank, with an optimizer of its own.
#pragma once

#include <string>
#include <vector>

#include "shard/backend.h"

namespace regather::shard {

class Replicated : public Backend {
 public:
  void step() override;
  void zero_gradients() override;
  bool is_whole(const Tensor&) override { return true; }
  Tensor gathered(const std::vector<Tensor>&, const std::function<Tensor()>& body) override { return body(); }
  Named full_gradients() override;
  Named full_parameters() override;
  std::vector<std::string> broken_invariants() override { return {}; }

 protected:
  struct Replica {
    std::string name;
    Tensor parameter;
    AdamWState state;
  };

  Replicated(model::Module& root, const BackendOptions& options);
  // Backward from the loss, divided by the number of micro-batches where that is this backend's task; counts it.
  void accumulate(const Tensor& loss);

  model::Module& root_;
  OptimizerOptions optimizer_;
  Accumulation accumulation_;
  std::vector<Replica> replicas_;
};

}  // namespace regather::shard
