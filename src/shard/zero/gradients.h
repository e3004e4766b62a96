// Reduces gradients into shards as they arrive: bucketed, averaged over ranks, the whole gradient freed.
#pragma once

#include <functional>
#include <vector>

#include "comm/world.h"
#include "shard/zero/partition.h"

namespace regather::shard {

class Gradients {
 public:
  // Called when a gradient arrives at a parameter that is not available then.
  using OnPartitioned = std::function<void(const ParamState&)>;

  // Hooks every trainable parameter.
  Gradients(comm::World& world, Partition& partition, const OnPartitioned& on_partitioned);
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // Reduces what is left in the bucket: a collective, at the end of backward.
  void flush();
  // The next backward overwrites the shards instead of adding to them.
  void start_boundary() { first_of_boundary_ = true; }
  void end_backward() { first_of_boundary_ = false; }
  // An aborted backward leaves gradients in the bucket; the next forward drops them.
  void drop_pending() { bucket_.clear(); }

 private:
  void arrived(ParamState& state);

  comm::World& world_;
  Partition& partition_;
  std::vector<ParamState*> bucket_;
  int64_t bucket_numel_ = 0;
  bool first_of_boundary_ = true;
};

}  // namespace regather::shard
