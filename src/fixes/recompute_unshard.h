// recompute_unshard: repairs a second pass under one checkpoint (pytorch#187437, pytorch#153354; torch 2.11 does this
// itself).
//
// A non-reentrant checkpoint around a module whose child is a unit of FSDP2, run twice before one backward. In backward
// the last pass is rerun first, finds the unit idle and gathers it as any forward; its own backward follows, and the
// post-backward frees the unit but leaves it marked as in backward until the whole backward ends. The rerun of the
// earlier pass comes next, and the pre-forward of a unit so marked returned at once, taking it to be whole: its sharded
// parameters met plain tensors (mixed_dtensor). The fix gathers the unit there.
#pragma once

#include <memory>
#include <utility>

#include "shard/policy.h"

namespace regather::fixes {

class RecomputeUnshard : public shard::RecomputePolicy {
 public:
  explicit RecomputeUnshard(std::shared_ptr<const shard::RecomputePolicy> other) : other_(std::move(other)) {}
  bool gathers() const override { return true; }
  bool casts() const override { return other_->casts(); }
  bool ends_with_post_backward() const override { return other_->ends_with_post_backward(); }

 private:
  std::shared_ptr<const shard::RecomputePolicy> other_;
};

}  // namespace regather::fixes
