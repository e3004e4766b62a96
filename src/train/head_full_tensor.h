// Not a fix, though many take it for one: reads an FSDP2 head through full_tensor().
//
// The error of a sharded head beside plain hidden states goes away, the loss is right, and so is every gradient but the
// head's. full_tensor() takes the gradient that comes back for the same on every rank, and leaves each rank with its
// own rows of its own gradient; the unit, whose hooks never ran, has nothing to reduce. No error tells
// (unit_bypassed), unless gradients wait for a later reduction in a dtype of its own: that looks for them at a whole
// parameter which was never made. unshard_head is the fix.
#pragma once

#include "loss/policy.h"
#include "shard/fsdp2/fsdp2.h"

namespace regather::train {

class HeadFullTensor : public loss::HeadScope {
 public:
  explicit HeadFullTensor(const shard::Fsdp2& backend) : backend_(backend) {}
  // Sharded parameters are given as their full tensors, in the dtype that the units compute in.
  at::Tensor around(const std::vector<at::Tensor>& parameters, const loss::HeadBody& body) override;

 private:
  const shard::Fsdp2& backend_;
};

}  // namespace regather::train
