// gather: repairs head_read_partitioned.
//
// A fused loss reads the head's weight directly. Under ZeRO-3 no module of the head runs then, so nothing has gathered
// the weight: it has no element, and the first product with it fails. The fix gathers weight and bias for the fused
// call. A parameter that is whole already is left alone: with a tied head inside the forward the embedding's module may
// be using it, and partitioning it at the scope's end would pull it from under that module.
#pragma once

#include "loss/policy.h"
#include "shard/backend.h"

namespace regather::fixes {

class Gather : public loss::HeadScope {
 public:
  explicit Gather(shard::Backend& backend) : backend_(backend) {}
  at::Tensor around(const std::vector<at::Tensor>& parameters, const loss::HeadBody& body) override;

 private:
  shard::Backend& backend_;
};

}  // namespace regather::fixes
