// DistributedDataParallel on the real c10d::Reducer: replicated parameters, bucketed all-reduce armed by the wrapper's
// forward.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shard/backend.h"

namespace c10d {
class Reducer;
}

namespace regather::shard {

class Ddp : public Backend {
 public:
  Ddp(comm::World& world, model::Module& root, const BackendOptions& options);
  ~Ddp() override;

  Tensor forward(const std::function<Tensor()>& body) override;
  void backward(const Tensor& loss) override;
  void step() override;
  void zero_gradients() override;
  bool is_whole(const Tensor&) override { return true; }
  Tensor gathered(const std::vector<Tensor>&, const std::function<Tensor()>& body) override { return body(); }
  Named full_gradients() override;
  Named full_parameters() override;
  std::vector<std::string> broken_invariants() override { return {}; }

 private:
  struct Replica {
    std::string name;
    Tensor parameter;
    AdamWState state;
  };

  model::Module& root_;
  OptimizerOptions optimizer_;
  std::vector<Replica> replicas_;
  std::unique_ptr<c10d::Reducer> reducer_;
  bool armed_ = false;  // the wrapper's forward ran since the last backward
};

}  // namespace regather::shard
