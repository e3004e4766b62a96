// What ZeRO-3 keeps beside each module.
#pragma once

#include <vector>

#include "model/module.h"
#include "shard/zero/param_state.h"

namespace regather::shard {

struct ModuleState {
  int id = 0;  // order of a depth-first walk, the same on every rank
  model::Module* module = nullptr;
  std::vector<ParamState*> own;       // its direct parameters
  std::vector<ParamState*> external;  // of other modules, read while this one ran
  int gradients_remaining = 0;        // inputs whose gradient has not come yet
  int pending_pre_backward = 0;       // forwards whose backward has not begun

  std::vector<ParamState*> parameters() const {
    std::vector<ParamState*> all = own;
    all.insert(all.end(), external.begin(), external.end());
    return all;
  }
};

}  // namespace regather::shard
