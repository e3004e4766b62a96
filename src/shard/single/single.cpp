#include "shard/single/single.h"

#include "base/error.h"

namespace regather::shard {

Single::Single(comm::World& world, model::Module& root, const BackendOptions& options) : Replicated(root, options) {
  REGATHER_CHECK(world.size() == 1, "single", "an unsharded model is one rank's; the world has {}", world.size());
}

Tensor Single::forward(const std::function<Tensor()>& body) {
  return root_.call(Tensor(), [&](const Tensor&) { return body(); });
}

}  // namespace regather::shard
