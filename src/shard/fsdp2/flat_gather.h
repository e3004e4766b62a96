// One all-gather of many tensors, whatever their dtypes: they travel as bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/world.h"

namespace regather::shard {

class FlatGather {
 public:
  // `mine`: this rank's parts, contiguous, one at least; of the same sizes and dtypes on every rank. A collective.
  FlatGather(comm::World& world, const std::vector<at::Tensor>& mine);
  // Throws what the transport throws when another rank failed.
  void wait() { work_->wait(); }
  // After wait(): fills `whole`, contiguous and of the part's dtype, from part `index` of rank 0, then of rank 1, and
  // so on. What does not fit is padding.
  void copy_to(size_t index, const at::Tensor& whole) const;

 private:
  std::vector<int64_t> offsets_;  // of each part in a rank's bytes, and the end
  at::Tensor input_;              // [bytes]
  at::Tensor output_;             // [world, bytes]
  comm::Work work_;
};

}  // namespace regather::shard
