// Fully sharded data parallel as PyTorch 2.11's fully_shard runs it: parameters are sharded tensors that only the
// forward and backward of their own unit sees whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shard/backend.h"
#include "shard/fsdp2/schedule.h"
#include "shard/fsdp2/shard_parameter.h"
#include "shard/fsdp2/unit.h"

namespace regather::shard {

// The modules that recipes give to fully_shard one by one, before the root: every decoder layer below `root`, and the
// head of a causal LM where asked for.
std::vector<model::Module*> default_units(model::Module& root, bool with_head = false);

class Fsdp2 : public Backend {
 public:
  // `units`: modules below `root`, each a unit with the parameters under it that no earlier one has. The root is the
  // last unit, with all others, and stays whole between forward and backward.
  Fsdp2(comm::World& world, model::Module& root, const BackendOptions& options,
        const std::vector<model::Module*>& units);
  Fsdp2(comm::World& world, model::Module& root, const BackendOptions& options)
      : Fsdp2(world, root, options, default_units(root, options.head_unit)) {}
  ~Fsdp2() override;

  Tensor forward(const std::function<Tensor()>& body) override;
  void backward(const Tensor& loss) override;
  void step() override;
  void zero_gradients() override;
  bool is_whole(const Tensor& parameter) override;
  // A scope for DeepSpeed's parameters: FSDP2's stay as they are.
  Tensor gathered(const std::vector<Tensor>&, const std::function<Tensor()>& body) override { return body(); }
  Named full_gradients() override;
  Named full_parameters() override;
  std::vector<std::string> broken_invariants() override;

  // Gathers the unit that has `parameter`, sharded or whole, until the end of its next backward, and returns the whole
  // one, which stands in its module from now on. A collective; nothing where the unit is whole.
  const Tensor& unshard(const Tensor& parameter);
  // Runs `body` as a method of `module` that was registered as a forward method: between the hooks of the module's
  // unit, if it is one. Any other method runs as it is, and nobody calls this.
  Tensor run_forward_method(model::Module& module, const Tensor& input, const model::Module::Body& body) {
    return schedule_.run(module, input, body);
  }
  model::Module& root() { return root_; }
  const MixedPrecision& precision() const { return precision_; }

  // False: backward neither communicates nor touches sharded gradients; what it computes adds to the next one's.
  void set_requires_gradient_sync(bool reduces) { schedule_.set_requires_gradient_sync(reduces); }

 private:
  void shard_parameters(comm::World& world);
  void add_unit(comm::World& world, model::Module& module, const std::string& name);
  Unit* unit_of(const Tensor& parameter) const;
  void read(const Tensor& parameter);
  void observe_unreduced();  // gradients that a backward left where no reduction made or took them
  void count();

  model::Module& root_;
  OptimizerOptions optimizer_;
  Accumulation accumulation_;
  MixedPrecision precision_;
  std::vector<std::unique_ptr<ShardParameter>> parameters_;  // by registration
  GatherCounts gather_counts_;
  std::vector<std::unique_ptr<Unit>> units_;  // the root last
  Schedule schedule_;
  std::vector<model::Module*> hooked_;
};

}  // namespace regather::shard
