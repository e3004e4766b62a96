// What a backend asks of the fixes.
#pragma once

#include <ATen/core/Tensor.h>

namespace regather::shard {

class ReleasePolicy {
 public:
  virtual ~ReleasePolicy() = default;
  // ZeRO-3, when a module's forward has ended: true keeps `parameter` gathered for now.
  virtual bool keep_after_forward(const at::Tensor& parameter) {
    static_cast<void>(parameter);
    return false;
  }
};

}  // namespace regather::shard
