// recompute_rearm: repairs a second pass under one reentrant checkpoint (FSDP2 of torch 2.11, where it is silent), and
// with it what recompute_unshard repairs.
//
// A checkpoint around a unit's call, run twice before one backward. The rerun of the last pass finds the unit idle and
// is a forward like any other; the unit's post-backward follows, but the unit stays marked as in backward until the
// whole backward ends. The rerun of the earlier pass is then taken for a recompute that a backward of the unit
// surrounds, and gets no hooks. Under a reentrant checkpoint it is this rerun's graph that the gradients go through:
// they arrive at the whole parameters after the unit's post-backward, nobody reduces them, and the unit stays gathered,
// in the next step too. The fix ends the unit's backward with its post-backward.
#pragma once

#include <memory>
#include <utility>

#include "shard/policy.h"

namespace regather::fixes {

class RecomputeRearm : public shard::RecomputePolicy {
 public:
  explicit RecomputeRearm(std::shared_ptr<const shard::RecomputePolicy> other) : other_(std::move(other)) {}
  bool gathers() const override { return other_->gathers(); }
  bool casts() const override { return other_->casts(); }
  bool ends_with_post_backward() const override { return true; }

 private:
  std::shared_ptr<const shard::RecomputePolicy> other_;
};

}  // namespace regather::fixes
