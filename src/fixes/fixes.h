// The policies of a case: upstream's behaviour, or a fix's in its place. The one place that looks at a case's fixes.
#pragma once

#include <memory>

#include "case/case.h"
#include "loss/policy.h"
#include "shard/backend.h"

namespace regather::fixes {

// Needed to build a backend.
std::shared_ptr<shard::ReleasePolicy> release_policy(const Case& c);
// FSDP2. `upstream`: what the torch of the case does by itself.
std::shared_ptr<shard::RecomputePolicy> recompute_policy(
    const Case& c, std::shared_ptr<shard::RecomputePolicy> upstream = std::make_shared<shard::RecomputePolicy>());

std::unique_ptr<shard::EntryPolicy> entry_policy(const Case& c);
std::unique_ptr<loss::HeadScope> head_scope(const Case& c, shard::Backend& backend);
std::unique_ptr<loss::KlForward> kl_forward(const Case& c);

}  // namespace regather::fixes
