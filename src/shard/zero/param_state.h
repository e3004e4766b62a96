// What ZeRO-3 keeps beside each parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/world.h"
#include "shard/adamw.h"

namespace regather::shard {

enum class Status { not_available, inflight, available };

struct ParamState;

// One all-gather under way. Whoever waits for one of its parameters makes all of them available.
struct AllGather {
  std::vector<comm::Work> works;  // of each state, shared by those of one dtype
  std::vector<ParamState*> states;
};

struct ParamState {
  int id = 0;  // order of registration, the same on every rank
  std::string name;
  at::Tensor parameter;        // partitioned: its data is empty(0), one dimension, no element
  std::vector<int64_t> shape;  // whole
  int64_t numel = 0;
  int64_t shard_numel = 0;  // numel rounded up to a multiple of the world, over the world
  at::Tensor shard;         // [shard_numel], the parameter's dtype; zero beyond the parameter's end
  Status status = Status::not_available;
  bool persist = false;             // stays gathered once the trace is complete
  bool is_external = false;         // returned by a module: its owner's release leaves it alone
  bool freed_in_recompute = false;  // the last release was that of a forward inside a backward
  std::set<int> active_modules;     // ids of the modules that use it now; not released while there are any

  // Of trainable parameters, [shard_numel], float32.
  at::Tensor master;
  at::Tensor gradient;  // as reduced last; never cleared, only overwritten
  AdamWState optimizer;

  // While in flight.
  at::Tensor gather_buffer;
  std::shared_ptr<AllGather> gather;
};

}  // namespace regather::shard
