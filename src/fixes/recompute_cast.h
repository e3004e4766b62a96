// recompute_cast: repairs recompute_dtype (pytorch#159359; torch 2.13 does this itself).
//
// Under a mixed-precision policy FSDP2 casts what goes into a unit in the unit's pre-forward. A non-reentrant
// checkpoint around the unit's call reruns that pre-forward inside backward, after the unit's pre-backward, and there
// it returns before the cast: the rerun computes with the float32 input that the checkpoint saved. Either an operator
// meets two dtypes, or the recomputed tensors are float32 where bfloat16 ones were saved. The fix casts there too.
#pragma once

#include <memory>
#include <utility>

#include "shard/policy.h"

namespace regather::fixes {

class RecomputeCast : public shard::RecomputePolicy {
 public:
  explicit RecomputeCast(std::shared_ptr<const shard::RecomputePolicy> other) : other_(std::move(other)) {}
  bool gathers() const override { return other_->gathers(); }
  bool casts() const override { return true; }
  bool ends_with_post_backward() const override { return other_->ends_with_post_backward(); }

 private:
  std::shared_ptr<const shard::RecomputePolicy> other_;
};

}  // namespace regather::fixes
