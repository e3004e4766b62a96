// redirect: repairs head_grad_on_partitioned (ZeRO-3), reducer_unarmed (DDP) and mixed_dtensor (FSDP2).
//
// A loss computed on the unwrapped model goes around the wrapper. DDP's reducer then stays unarmed: no all-reduce, no
// error, every rank trains on its own gradients. ZeRO-3 does not learn that the root uses the head's weight, so the
// dense gradient arrives at an empty parameter. The fix runs the whole loss inside the wrapper's forward.
#pragma once

#include "shard/policy.h"

namespace regather::fixes {

class Redirect : public shard::EntryPolicy {
 public:
  at::Tensor enter(shard::Backend& backend, const Body& body) override;
};

}  // namespace regather::fixes
