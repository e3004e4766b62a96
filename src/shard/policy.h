// What the runtime asks of the fixes about sharding.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace regather::shard {

class Backend;

// ZeRO-3: what to release, when.
class ReleasePolicy {
 public:
  virtual ~ReleasePolicy() = default;
  // A module's forward has ended and `parameter` would be released: true keeps it gathered for now.
  virtual bool keep_after_forward(const at::Tensor& parameter) {
    static_cast<void>(parameter);
    return false;
  }
};

// How a loss that does not go through the wrapper is entered.
class EntryPolicy {
 public:
  virtual ~EntryPolicy() = default;
  // By default `body` runs as it is, on the unwrapped model.
  virtual at::Tensor enter(Backend& backend, const std::function<at::Tensor()>& body) {
    static_cast<void>(backend);
    return body();
  }
};

}  // namespace regather::shard
