// The order in which submodules ran in one pass, forward and backward: what ZeRO-3 gathers ahead by, and what it keeps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shard/zero/module_state.h"

namespace regather::shard {

class Trace {
 public:
  // `parameters`: how many there are. A parameter that is used again within `max_reuse_distance` elements stays.
  Trace(size_t parameters, int64_t max_reuse_distance);

  // One pass is recorded; from the next on the record is complete, until a pass departs from it.
  bool is_complete() const { return mode_ == Mode::complete; }
  // Of the order so far and of the parameters that its submodules use: equal on all ranks, or they have parted.
  int64_t digest() const;
  // The root's forward begins.
  void start_pass();

  // `module` is next. False: the complete order says otherwise and is forgotten; the pass after this one records anew.
  // An evaluation that runs as the beginning of a recorded pass departs from nothing.
  bool follow(ModuleState& module);
  size_t step() const { return step_; }  // submodules since start_pass
  void next_step() { ++step_; }

  // The uses of parameters to come, in order: by submodule, within one by id. Only while the order is complete.
  // Takes out the uses of `fetched` at this step, unless a pop has already. Says what is wrong where the next uses are
  // others: the submodule has other parameters than when it was recorded.
  std::optional<std::string> take_out(const std::vector<ParamState*>& fetched);
  // The next use's parameter; null at the end.
  ParamState* pop();

  // Those of the submodule that may go when it ends at this step: not persistent, not counted on by a use that a pop
  // has passed over, not used again soon. As upstream it is found out once for a submodule and step and never again,
  // an order that was recorded since or other prefetches notwithstanding: parameters then go early and are gathered
  // twice, or stay long.
  const std::vector<ParamState*>& releasable(const ModuleState& module);

 private:
  enum class Mode { invalid, record, complete };
  struct Use {
    ParamState* state;
    int64_t step;
  };

  bool used_soon(const ParamState& state) const;

  int64_t max_reuse_distance_;
  Mode mode_ = Mode::invalid;
  std::vector<ModuleState*> order_;
  std::vector<Use> uses_;
  size_t next_use_ = 0;
  std::vector<int64_t> fetched_for_;  // by parameter: the step of its last use that left the queue
  size_t step_ = 0;
  std::map<std::pair<int, size_t>, std::vector<ParamState*>> releasable_;  // by module and step
};

}  // namespace regather::shard
