#include "case/mechanism.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace regather {

const std::vector<MechanismInfo>& known_mechanisms() {
  static const std::vector<MechanismInfo> all{
      {"accumulation_overwritten",
       "micro-batches are counted in the engine's forward, which a direct loss never passes: each backward writes over "
       "the gradients of the one before, without an error"},
      {"accumulation_scaled",
       "the division by the number of micro-batches sits in a hook on the wrapper's outputs, which a direct loss never "
       "passes: gradients come out that many times too large, without an error"},
      {"adapter_bypassed", "the loss reads the base weight of an adapted layer, so its adapters get no gradient"},
      {"ddp_unused", "a parameter takes no part in the loss, and DDP's reducer waits for its gradient"},
      {"frozen_structure",
       "the sharding needs parameters of one unit to be frozen or trainable alike, and they differ"},
      {"head_double_touch",
       "the head is run as a module and read directly in one step, and what the one releases the other still needs"},
      {"head_grad_on_partitioned",
       "the dense gradient that a fused loss stashed for the head arrives when the parameter is partitioned again, "
       "thus empty"},
      {"head_read_partitioned", "a fused loss reads the head's weight while ZeRO-3 has it partitioned, thus empty"},
      {"kernel_gradient", "a fused kernel computes a wrong gradient"},
      {"lifecycle", "after a step a parameter is still gathered, a module still active, or a record not drained"},
      {"memory", "memory is held that should have been given back, or was never needed whole"},
      {"mixed_dtensor",
       "a parameter is read outside its FSDP2 unit's forward, where it is a sharded DTensor that meets plain tensors"},
      {"mixed_dtype", "two operands of one operator differ in dtype"},
      {"no_grad_input",
       "the input of a reentrant checkpoint does not require grad, so its output carries no graph and backward never "
       "reaches the block"},
      {"offload", "a parameter or state that was moved to another device is used where it no longer is"},
      {"param_uninitialised", "a parameter is used before its values were there"},
      {"race", "a result is read before the work that makes it has ended"},
      {"ranks_diverged", "ranks take different paths and call different collectives"},
      {"recompute_changed", "a recompute saves other tensors than the forward did"},
      {"recompute_dtype", "a recompute runs in another dtype than the forward, whose casts it does not repeat"},
      {"recompute_freed_frozen",
       "the recompute's forward releases a frozen parameter that the checkpoint holds as the live object, thus empty "
       "when backward needs it"},
      {"recompute_freed_trainable",
       "a recompute that runs to its end releases a module's parameters under that module's backward"},
      {"recompute_unhooked", "a recompute runs without the unit's hooks, so gradients that it brings are not reduced"},
      {"reduced_twice", "a parameter's gradient arrives twice in one backward, and its reduction takes the first"},
      {"reducer_unarmed",
       "DDP's forward never runs, so its reducer is never armed: no all-reduce, no error, and every rank trains on its "
       "own gradients"},
      {"tied_broken", "two names that should share one parameter no longer do"},
      {"trace_stale", "modules run in another order than ZeRO-3 recorded, and what it gathers ahead is wrong"},
      {"unit_bypassed", "an FSDP2 unit's parameter is used outside its forward, so its gradient is not reduced"},
  };
  return all;
}

const MechanismInfo& find_mechanism(std::string_view name) {
  const auto& all = known_mechanisms();
  const auto at = std::ranges::find(all, name, &MechanismInfo::name);
  if (at != all.end()) return *at;
  std::vector<std::string_view> names;
  for (const MechanismInfo& m : all) names.push_back(m.name);
  throw UsageError(fmt::format("'{}' is not a mechanism: expected one of {}", name, fmt::join(names, ", ")));
}

}  // namespace regather
