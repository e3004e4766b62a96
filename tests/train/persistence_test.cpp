// The axis persistence: what stays gathered and what is gathered ahead, with the same bits. The card's model lies below
// upstream's threshold as a whole; here the embedding and the head lie above it.
#include "train/persistence.h"

#include <gtest/gtest.h>

#include "autograd/saved_hooks.h"
#include "case/support.h"
#include "comm/launch.h"
#include "train/given.h"
#include "train/merge.h"
#include "train/rank_run.h"
#include "train/reference.h"

namespace regather::train {
namespace {

Setting wide_setting(bool tied) {
  auto initial = std::make_shared<model::CausalLM>(model::Config{.vocab = 4096, .tied = tied});
  model::initialise(*initial, 1);
  Setting setting;
  setting.initial = initial;
  setting.reference = make_reference_model(*initial, 1);
  setting.batch.vocab = 4096;
  return setting;
}

CaseResult run(const Setting& setting, const Reference& reference, const Case& c) {
  autograd::install_engine();
  std::vector<CaseResult> ranks(static_cast<size_t>(c.world));
  comm::LaunchOptions launch;
  launch.world = c.world;
  launch.deadline = std::chrono::milliseconds(20000);
  comm::run_threads(launch, [&](comm::World& world) {
    ranks[static_cast<size_t>(world.rank())] = run_rank(world, c, setting, reference);
    return std::string();
  });
  return merge(ranks);
}

TEST(Persistence, IsUpstreamsThresholdAndBucket) {
  shard::BackendOptions options;
  set_persistence(options, Persistence::zero);
  EXPECT_EQ(options.persistence_threshold, 0);
  EXPECT_EQ(options.prefetch_bucket_size, 0);
  options = {};
  set_persistence(options, Persistence::upstream);
  EXPECT_EQ(options.persistence_threshold, 100'000);
  EXPECT_EQ(options.prefetch_bucket_size, 50'000'000);
  options = {};
  set_persistence(options, Persistence::huge);
  EXPECT_EQ(options.persistence_threshold, INT64_MAX);
  EXPECT_EQ(options.prefetch_bucket_size, 50'000'000);
}

TEST(Persistence, ChangesNoBitOfACase) {
  for (const char* id :
       {"zero3/sft/kernel=eager/call=engine/fix=none", "zero3/sft/fix=gather+redirect",
        "zero3/sft/head=tied/fix=gather+redirect", "zero3/grpo/checkpoint=reentrant/fix=gather+redirect",
        "zero3/dpo/checkpoint=nonreentrant/fix=gather+redirect", "zero3/kto/fix=gather+kl_backbone+redirect",
        "zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+recompute_hold+redirect",
        "zero3/sft/world=4/fix=gather+redirect"}) {
    Case c = parse_id(id);
    const Setting setting = wide_setting(c.head == Head::tied);
    const auto reference = compute_reference(setting, c);
    const CaseResult zero = run(setting, *reference, c);
    EXPECT_EQ(zero.outcome, Outcome::pass) << id << ": " << (zero.signature ? zero.signature->text : "");
    EXPECT_EQ(zero.counters.at("prefetches"), 0) << id;
    for (const Persistence persistence : {Persistence::upstream, Persistence::huge}) {
      c.persistence = persistence;
      const CaseResult result = run(setting, *reference, c);
      EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
      EXPECT_EQ(result.gradients, zero.gradients) << id;
      EXPECT_EQ(result.loss, zero.loss) << id;
      // A tied head read by the loss is the root's: it is fetched with the root, and nothing else is left to come.
      const bool ahead = persistence == Persistence::upstream && c.head != Head::tied;
      EXPECT_EQ(result.counters.at("prefetches") > 0, ahead) << id;
    }
  }
}

// Persistent parameters are released like any other until an order is complete, so the first recompute frees a frozen
// norm whatever the threshold.
TEST(Persistence, DoesNotSaveAFrozenNorm) {
  for (const Persistence persistence : {Persistence::upstream, Persistence::huge}) {
    Case c = parse_id("zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+redirect");
    c.persistence = persistence;
    const Setting setting = wide_setting(false);
    const CaseResult result = run(setting, *compute_reference(setting, c), c);
    EXPECT_EQ(result.outcome, Outcome::error);
    ASSERT_TRUE(result.signature);
    EXPECT_EQ(result.signature->mechanism, "recompute_freed_frozen");
    EXPECT_EQ(result.signature->step, 0);
  }
}

}  // namespace
}  // namespace regather::train
