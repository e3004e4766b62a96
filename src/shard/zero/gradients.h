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
  void start_boundary();
  void end_backward() { ran_ = true; }
  // The engine's forward begins. It is what counts micro-batches (clear_backward_seen_flag of deepspeed 0.19): from the
  // next backward on gradients add up. What an aborted backward has left in the bucket is dropped.
  void begin_forward();
  // Whether a backward has overwritten the gradients of an earlier one of the same step, since no forward came between.
  bool overwrote() const { return overwrote_; }

 private:
  void arrived(ParamState& state);

  comm::World& world_;
  Partition& partition_;
  std::vector<ParamState*> bucket_;
  int64_t bucket_numel_ = 0;
  bool first_of_boundary_ = true;
  bool ran_ = false;  // a backward, since the last forward of the engine
  bool overwrote_ = false;
};

}  // namespace regather::shard
