#include "fixes/fixes.h"

#include "fixes/gather.h"
#include "fixes/kl_backbone.h"
#include "fixes/recompute_hold.h"
#include "fixes/redirect.h"

namespace regather::fixes {

std::shared_ptr<shard::ReleasePolicy> release_policy(const Case& c) {
  if (c.has("recompute_hold")) return std::make_shared<RecomputeHold>();
  return std::make_shared<shard::ReleasePolicy>();
}

std::unique_ptr<shard::EntryPolicy> entry_policy(const Case& c) {
  if (c.has("redirect")) return std::make_unique<Redirect>();
  return std::make_unique<shard::EntryPolicy>();
}

std::unique_ptr<loss::HeadScope> head_scope(const Case& c, shard::Backend& backend) {
  if (c.has("gather")) return std::make_unique<Gather>(backend);
  return std::make_unique<loss::HeadScope>();
}

std::unique_ptr<loss::KlForward> kl_forward(const Case& c) {
  if (c.has("kl_backbone")) return std::make_unique<KlBackbone>();
  return std::make_unique<loss::KlForward>();
}

}  // namespace regather::fixes
