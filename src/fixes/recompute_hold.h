// recompute_hold: repairs recompute_freed_frozen (deepspeed#8130).
//
// A non-reentrant checkpoint reruns its block in backward. When a module inside it ends, ZeRO-3's post-forward hook
// releases the module's parameters as in any forward. The checkpoint holds a trainable parameter detached, but a frozen
// one as the live object: it is emptied under the checkpoint's feet, and the recomputed metadata differ. The fix keeps
// a frozen parameter when a forward's release fires inside backward; the module's own backward, or the epilogue,
// releases it.
#pragma once

#include "shard/policy.h"

namespace regather::fixes {

class RecomputeHold : public shard::ReleasePolicy {
 public:
  bool keep_after_forward(const at::Tensor& parameter) override;
};

}  // namespace regather::fixes
