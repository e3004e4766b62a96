// Fetches and releases the parameters of submodules as they run, and records the order in which they do.
#pragma once

#include <functional>
#include <vector>

#include "comm/world.h"
#include "model/module.h"
#include "shard/policy.h"
#include "shard/zero/partition.h"

namespace regather::shard {

// What ZeRO-3 keeps beside each module.
struct ModuleState {
  int id = 0;  // order of a depth-first walk, the same on every rank
  model::Module* module = nullptr;
  std::vector<ParamState*> own;       // its direct parameters
  std::vector<ParamState*> external;  // of other modules, read while this one ran
  int gradients_remaining = 0;        // inputs whose gradient has not come yet
  int pending_pre_backward = 0;       // forwards whose backward has not begun

  std::vector<ParamState*> parameters() const;
};

class Coordinator {
 public:
  // A frozen parameter was freed when a forward ended inside a backward, thus in a recompute.
  using OnRecomputeRelease = std::function<void(const ParamState&)>;

  Coordinator(comm::World& world, Partition& partition, ReleasePolicy& policy, OnRecomputeRelease on_recompute_release);

  // The root's forward begins: settles what is in flight and turns a recorded order into a complete one. While the
  // order is not complete, ranks compare it: a collective that throws Error when they differ.
  void reset_step();

  // Before a module's forward or backward: its parameters become available, the module active in them.
  void fetch(ModuleState& module);
  // After it: frees what no module uses and, once the order is complete, what is not due again soon.
  void release(ModuleState& module, bool forward);
  // Frees everything, whoever is active.
  void release_all();

 private:
  enum class Trace { invalid, record, complete };
  // The order must be as recorded; an eval, a generate or another path starts the recording anew.
  void follow_trace(const ModuleState& module);
  bool due_again(const ParamState& state) const;

  comm::World& world_;
  Partition& partition_;
  ReleasePolicy& policy_;
  OnRecomputeRelease on_recompute_release_;
  Trace trace_ = Trace::invalid;
  std::vector<ModuleState*> order_;
  size_t step_ = 0;  // submodules fetched since reset_step
};

}  // namespace regather::shard
