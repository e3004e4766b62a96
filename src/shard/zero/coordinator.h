// Fetches and releases the parameters of submodules as they run, and gathers ahead by a recorded order.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "comm/world.h"
#include "shard/backend.h"
#include "shard/policy.h"
#include "shard/zero/module_state.h"
#include "shard/zero/partition.h"
#include "shard/zero/trace.h"

namespace regather::shard {

class Coordinator {
 public:
  // A frozen parameter freed when a forward ended inside a backward, thus in a recompute (recompute_freed_frozen); a
  // pass that departs from the recorded order (trace_stale); ranks that recorded different ones (ranks_diverged).
  using Observe = std::function<void(const std::string& mechanism, const std::string& detail)>;

  Coordinator(comm::World& world, Partition& partition, ReleasePolicy& policy, const BackendOptions& options,
              Observe observe);

  // The root's forward begins: frees what was gathered ahead and not taken, and turns a recorded order into a complete
  // one. While the order is not complete, ranks compare it: a collective that throws Error when they differ.
  void reset_step();

  // Before a module's forward or backward: its parameters become available, the module active in them. Once the order
  // is complete, gathers of the parameters to come start, until the bucket is full.
  void fetch(ModuleState& module);
  // After it: frees what no module uses and, once the order is complete, what it does not count on.
  void release(ModuleState& module, bool forward);
  // Frees everything, whoever is active.
  void release_all();

  int64_t prefetches = 0;         // parameters gathered ahead
  int64_t prefetches_unused = 0;  // of those, freed before a module took them

 private:
  void start(const std::vector<ParamState*>& states);
  void take(ParamState& state);
  void prefetch();
  void settle();
  void drop(ParamState& state);
  void compare_with_other_ranks();

  comm::World& world_;
  Partition& partition_;
  ReleasePolicy& policy_;
  Observe observe_;
  int64_t prefetch_bucket_size_;
  int64_t max_live_parameters_;
  Trace trace_;
  std::set<ParamState*> awaited_;  // gathered for a module that has not taken them; in flight, or no longer
  int64_t live_ = 0;               // elements fetched and not yet released since reset_step
};

}  // namespace regather::shard
