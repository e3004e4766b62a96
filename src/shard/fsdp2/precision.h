// The mixed precision of FSDP2: which dtype travels, computes and is reduced, while the shards keep their own.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace regather::shard {

// Sharded parameters, their gradients and the optimizer keep the parameters' own dtype whatever stands here.
struct MixedPrecision {
  // Of the all-gather and of whole parameters, so of what the units compute; unset: the parameters' own.
  std::optional<at::ScalarType> param_dtype{};
  // Of the reduce-scatter; unset: the gradients' own, which is param_dtype.
  std::optional<at::ScalarType> reduce_dtype{};
  // A unit's pre-forward casts what goes in, floating tensors alone, to param_dtype, if that is set.
  bool cast_forward_inputs = true;
};

}  // namespace regather::shard
