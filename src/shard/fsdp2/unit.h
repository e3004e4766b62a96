// One unit of FSDP2: the parameters that are gathered, freed and reduced together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "shard/fsdp2/shard_parameter.h"
#include "shard/fsdp2/transfer.h"

namespace regather::shard {

// Memory of gathered parameters, over all units of a rank.
struct GatherCounts {
  int64_t gathers = 0;   // parameters
  int64_t releases = 0;  // parameters
  int64_t bytes = 0;
  int64_t peak_bytes = 0;
};

class Unit {
 public:
  // What ran last; the hooks (schedule.h) move it on.
  enum class Phase { idle, forward, pre_backward, post_backward };

  Unit(comm::World& world, std::string name, std::vector<ShardParameter*> parameters, bool reshard_after_forward,
       GatherCounts& counts);

  const std::string& name() const { return name_; }
  const std::vector<ShardParameter*>& parameters() const { return parameters_; }
  bool reshard_after_forward() const { return reshard_after_forward_; }
  bool is_whole() const { return is_whole_; }
  bool is_fetching() const { return gather_.has_value(); }
  // Throws Error unless the trainable parameters' shards have one dtype, as FSDP2 wants it; frozen ones may differ.
  void check_dtypes() const;

  // Starts the all-gather; no-op when it is under way or the unit is whole. A collective.
  void start_unshard();
  // Waits for a started one and swaps the whole parameters into their modules.
  void finish_unshard();
  // Swaps the sharded parameters back in and frees the whole ones.
  void reshard();
  // Waits for an all-gather that nobody needed, if there is one.
  void drop_fetched();

  // Ends a backward whose gradients are not reduced.
  void keep_gradients();
  // Takes the gradients that backward left at whole parameters and starts to reduce them; parameters without one are
  // left out, on every rank alike or the collective does not match. Nothing when there is none.
  std::optional<Reduction> start_reduction();

  Phase phase = Phase::idle;
  // Its pre-backward ran in the backward in progress: a forward that comes now is a recompute, and leaves sharding to
  // the backward around it.
  bool in_backward = false;
  // Places in the order of post-forwards, one for each forward whose backward has not begun.
  std::vector<size_t> forward_places;

 private:
  comm::World& world_;
  std::string name_;
  std::vector<ShardParameter*> parameters_;
  bool reshard_after_forward_;
  GatherCounts& counts_;
  std::optional<Gather> gather_;
  bool is_whole_ = false;
};

}  // namespace regather::shard
