#include "shard/backend.h"

#include "base/error.h"
#include "shard/ddp/ddp.h"
#include "shard/fsdp2/fsdp2.h"
#include "shard/single/single.h"
#include "shard/zero/optimizer_partition.h"
#include "shard/zero/zero3.h"

namespace regather::shard {

std::unique_ptr<Backend> make_backend(regather::Backend kind, comm::World& world, model::Module& root,
                                      const BackendOptions& options) {
  switch (kind) {
    case regather::Backend::ddp:
      return std::make_unique<Ddp>(world, root, options);
    case regather::Backend::zero1:
      return std::make_unique<ZeroOptimizerPartition>(world, root, ZeroOptimizerPartition::Stage::optimizer, options);
    case regather::Backend::zero2:
      return std::make_unique<ZeroOptimizerPartition>(world, root, ZeroOptimizerPartition::Stage::gradients, options);
    case regather::Backend::zero3:
      return std::make_unique<Zero3>(world, root, options);
    case regather::Backend::fsdp2:
      return std::make_unique<Fsdp2>(world, root, options);
    case regather::Backend::single:
      return std::make_unique<Single>(world, root, options);
    case regather::Backend::fsdp1:
      break;
  }
  throw Error("shard", "this backend is not in the reference runtime");
}

}  // namespace regather::shard
