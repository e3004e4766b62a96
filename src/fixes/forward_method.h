// forward_method: repairs mixed_dtensor where a method of the root other than forward computes the loss (FSDP2).
//
// FSDP2's hooks are forward hooks: model.loss(batch) is no forward, nothing gathers the root's parameters, and the
// first of them meets plain tensors. The fix registers the method as one (register_fsdp_forward_method): the root's own
// hooks run around it, and no other hook of the module does.
#pragma once

#include "shard/policy.h"

namespace regather::fixes {

class ForwardMethod : public shard::EntryPolicy {
 public:
  // A backend other than FSDP2 has no such registration: `body` runs as it is.
  at::Tensor enter(shard::Backend& backend, const Body& body) override;
};

}  // namespace regather::fixes
