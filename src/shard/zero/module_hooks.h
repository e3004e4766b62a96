// The hooks that ZeRO-3 puts on every module: fetch and release around forward and backward, external parameters.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/module.h"
#include "shard/zero/coordinator.h"

namespace regather::shard {

class ModuleHooks {
 public:
  // A partitioned parameter was read where nothing gathers it, or one in flight, for which nobody waits then.
  // `in_engine_forward`: inside the engine's forward, after a nested call of the root had ended.
  using OnPartitionedRead = std::function<void(const ParamState&, bool in_engine_forward)>;

  ModuleHooks(Coordinator& coordinator, Partition& partition, model::Module& root, OnPartitionedRead on_read);
  ~ModuleHooks();
  ModuleHooks(const ModuleHooks&) = delete;
  ModuleHooks& operator=(const ModuleHooks&) = delete;

  // Around the engine's forward.
  void begin_engine_forward() { in_engine_forward_ = true; }
  void end_engine_forward() { in_engine_forward_ = reads_register_ = false; }

  const std::vector<std::unique_ptr<ModuleState>>& states() const { return states_; }

 private:
  void install(model::Module& module, bool is_root);
  at::Tensor before_forward(ModuleState& state, const at::Tensor& input);
  at::Tensor after_forward(ModuleState& state, const at::Tensor& output);
  void read(const at::Tensor& parameter);
  void keep_returned_parameter(ModuleState& finished, const at::Tensor& output);
  static void register_external(ModuleState& module, ParamState& parameter);

  Coordinator& coordinator_;
  Partition& partition_;
  OnPartitionedRead on_read_;
  std::vector<std::unique_ptr<ModuleState>> states_;
  std::vector<ModuleState*> running_;  // forwards in progress, the root below all
  bool in_engine_forward_ = false;
  // Reading a partitioned parameter registers it as external to the module that runs and gathers it. As upstream, any
  // call of the root turns this on when it begins and off when it ends, one that nests in another call too.
  bool reads_register_ = false;
};

}  // namespace regather::shard
