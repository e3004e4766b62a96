#include <gtest/gtest.h>

#include <set>

#include "any_case.h"
#include "base/error.h"
#include "case/support.h"

namespace regather {
namespace {

// parse_id refuses illegal ids, so the parts are set one by one.
Case with(std::initializer_list<std::pair<const char*, const char*>> values, Fixes fixes = {}) {
  Case c;
  for (const auto& [axis, value] : values) set_axis(c, axis, value);
  c.fixes = std::move(fixes);
  return c;
}

TEST(Legality, CombinationsThatMeanNothing) {
  EXPECT_TRUE(illegal(with({{"head", "tied"}, {"frozen", "head"}})));
  EXPECT_FALSE(illegal(with({{"head", "tied"}, {"frozen", "embedding"}})));
  EXPECT_TRUE(illegal(with({{"call", "engine"}}, {"redirect"})));
  EXPECT_FALSE(illegal(with({{"call", "engine"}}, {"gather"})));
  EXPECT_TRUE(illegal(with({{"backend", "fsdp2"}, {"call", "method"}}, {"redirect"})));
  EXPECT_FALSE(illegal(with({{"backend", "fsdp2"}, {"call", "method"}}, {"forward_method"})));
  EXPECT_TRUE(illegal(with({{"loss", "sft"}, {"reference", "shared"}, {"frozen", "lora"}})));
  EXPECT_TRUE(illegal(with({{"loss", "dpo"}, {"reference", "shared"}})));
  EXPECT_FALSE(illegal(with({{"loss", "dpo"}, {"reference", "shared"}, {"frozen", "lora"}})));
  EXPECT_FALSE(illegal(with({{"loss", "kto"}, {"reference", "shared"}, {"frozen", "quantised"}})));
}

TEST(Legality, AnAxisWithoutMeaningForABackendIsLegal) {
  EXPECT_FALSE(illegal(with({{"backend", "ddp"}, {"persistence", "huge"}, {"early_stop", "off"}})));
  EXPECT_FALSE(unsupported(with({{"backend", "ddp"}, {"persistence", "huge"}, {"early_stop", "off"}})));
}

TEST(Support, SaysWhatIsMissing) {
  EXPECT_EQ(unsupported(parse_id("fsdp1/sft/fix=none")), "backend fsdp1 is not in the reference runtime yet");
  EXPECT_EQ(unsupported(parse_id("zero3/sft/fix=recompute_owner")),
            "fix recompute_owner is not in the reference runtime yet");
  EXPECT_TRUE(unsupported(parse_id("zero3/sft/dtype=fp16/fix=none")));
  EXPECT_EQ(unsupported(parse_id("single/sft/fix=none")), "backend single is one unsharded rank: world=1, not 2");
  for (const char* supported :
       {"ddp/sft/fix=none", "single/kto/world=1/dtype=bf16/fix=none", "zero1/dpo/accumulate=manual2/fix=none",
        "zero2/sft/frozen=quantised/dtype=bf16/fix=redirect",
        "zero3/sft/kernel=chunked/world=8/persistence=upstream/fix=gather+recompute_hold+redirect",
        "zero3/sft/head=tied/head_bias=yes/early_stop=off/input_grad=no/checkpoint_at=call/fix=none"}) {
    EXPECT_FALSE(unsupported(parse_id(supported))) << supported;
  }
}

TEST(Support, IsAskedOfEveryLegalCaseWithoutThrowing) {
  Random random(2);
  std::set<std::string> reasons;
  for (int i = 0; i < 5000; ++i) {
    if (const auto why = unsupported(any_case(random))) reasons.insert(*why);
  }
  EXPECT_GT(reasons.size(), 5U);
}

}  // namespace
}  // namespace regather
