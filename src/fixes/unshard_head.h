// unshard_head: repairs a head that is an FSDP2 unit of its own and is read outside that unit's forward (verl#7427).
//
// Memory-minded recipes give the head to fully_shard like a decoder layer. A fused loss then reads its weight without
// calling the head's module, so no hook of the unit runs: inside the root's forward, where everything else is whole,
// the head alone is still a sharded tensor, and the first product with it fails (mixed_dtensor). Taking the weight's
// full_tensor() instead silences the error and is wrong (head_full_tensor.h). The fix gathers the unit before the
// loss uses its parameters. Nothing frees it afterwards but the end of backward, which reduces its gradients as well:
// freed at once, it would be gone from under a loss that saves the weight for backward.
#pragma once

#include "loss/policy.h"
#include "shard/fsdp2/fsdp2.h"

namespace regather::fixes {

class UnshardHead : public loss::HeadScope {
 public:
  explicit UnshardHead(shard::Fsdp2& backend) : backend_(backend) {}
  at::Tensor around(const std::vector<at::Tensor>& parameters, const loss::HeadBody& body) override;

 private:
  shard::Fsdp2& backend_;
};

}  // namespace regather::fixes
