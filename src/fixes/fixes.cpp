#include "fixes/fixes.h"

#include <utility>

#include "fixes/forward_method.h"
#include "fixes/gather.h"
#include "fixes/kl_backbone.h"
#include "fixes/recompute_cast.h"
#include "fixes/recompute_hold.h"
#include "fixes/recompute_rearm.h"
#include "fixes/recompute_unshard.h"
#include "fixes/redirect.h"
#include "fixes/unshard_head.h"

namespace regather::fixes {

std::shared_ptr<shard::ReleasePolicy> release_policy(const Case& c) {
  if (c.has("recompute_hold")) return std::make_shared<RecomputeHold>();
  return std::make_shared<shard::ReleasePolicy>();
}

std::shared_ptr<shard::RecomputePolicy> recompute_policy(const Case& c,
                                                         std::shared_ptr<shard::RecomputePolicy> upstream) {
  std::shared_ptr<shard::RecomputePolicy> policy = std::move(upstream);
  if (c.has("recompute_rearm")) policy = std::make_shared<RecomputeRearm>(std::move(policy));
  if (c.has("recompute_unshard")) policy = std::make_shared<RecomputeUnshard>(std::move(policy));
  if (c.has("recompute_cast")) policy = std::make_shared<RecomputeCast>(std::move(policy));
  return policy;
}

std::unique_ptr<shard::EntryPolicy> entry_policy(const Case& c) {
  if (c.has("redirect")) return std::make_unique<Redirect>();
  if (c.has("forward_method")) return std::make_unique<ForwardMethod>();
  return std::make_unique<shard::EntryPolicy>();
}

std::unique_ptr<loss::HeadScope> head_scope(const Case& c, shard::Backend& backend) {
  if (auto* fsdp = dynamic_cast<shard::Fsdp2*>(&backend); fsdp != nullptr && c.has("unshard_head")) {
    return std::make_unique<UnshardHead>(*fsdp);
  }
  if (c.has("gather")) return std::make_unique<Gather>(backend);
  return std::make_unique<loss::HeadScope>();
}

std::unique_ptr<loss::KlForward> kl_forward(const Case& c) {
  if (c.has("kl_backbone")) return std::make_unique<KlBackbone>();
  return std::make_unique<loss::KlForward>();
}

}  // namespace regather::fixes
