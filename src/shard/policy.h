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

// FSDP2: what a unit's pre-forward still does in a recompute, a forward that runs while the unit's own backward is
// under way. By default what torch 2.11 does.
class RecomputePolicy {
 public:
  virtual ~RecomputePolicy() = default;
  // Gathers the unit again where the post-backward of a later pass has freed it.
  virtual bool gathers() const { return true; }
  // Casts what goes in, as the forward did.
  virtual bool casts() const { return false; }
  // The unit's backward is over with its post-backward, so that a forward that comes after it is one like any other; by
  // default it lasts until the whole backward ends.
  virtual bool ends_with_post_backward() const { return false; }
};

// torch before 2.11: such a forward takes the unit to be whole, because its pre-backward ran.
class RecomputeBefore211 : public RecomputePolicy {
 public:
  bool gathers() const override { return false; }
};

// How a loss that does not go through the wrapper is entered.
class EntryPolicy {
 public:
  virtual ~EntryPolicy() = default;
  // The loss; `root_runs`: the root's forward is in progress, so its hooks must not run again.
  using Body = std::function<at::Tensor(bool root_runs)>;
  // By default `body` runs as it is, on the unwrapped model.
  virtual at::Tensor enter(Backend& backend, const Body& body) {
    static_cast<void>(backend);
    return body(/*root_runs=*/false);
  }
};

}  // namespace regather::shard
