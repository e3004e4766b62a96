#include "case/fixes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace regather {
namespace {

TEST(Fixes, KnownNamesAreSortedAndPrintInThatOrder) {
  EXPECT_TRUE(std::ranges::is_sorted(known_fixes(), {}, &FixInfo::name));
  EXPECT_EQ(print_fixes({}), "none");
  EXPECT_EQ(print_fixes(parse_fixes("redirect+gather")), "gather+redirect");
  EXPECT_EQ(parse_fixes("none"), Fixes{});
  EXPECT_THROW(parse_fixes("none+gather"), UsageError);
}

TEST(Fixes, RecommendedSetsAreThoseOfTheInterfaces) {
  for (const Backend backend : {Backend::ddp, Backend::zero1, Backend::zero2, Backend::fsdp2}) {
    EXPECT_EQ(print_fixes(recommended_fixes(backend, Loss::kto)), "redirect");
  }
  for (const Loss loss : {Loss::sft, Loss::grpo, Loss::dpo}) {
    EXPECT_EQ(print_fixes(recommended_fixes(Backend::zero3, loss)), "gather+recompute_hold+redirect");
  }
  EXPECT_EQ(print_fixes(recommended_fixes(Backend::zero3, Loss::kto)), "gather+kl_backbone+recompute_hold+redirect");
}

TEST(Fixes, ActOnTheBackendsThatTheirBugsHave) {
  for (const FixInfo& fix : known_fixes()) {
    EXPECT_TRUE(std::ranges::any_of(fix.backends, [&](Backend b) { return fix.acts_on(b); }) || fix.backends.empty());
    // What is recommended for a backend acts on it.
    for (const Backend backend : {Backend::ddp, Backend::zero1, Backend::zero2, Backend::zero3, Backend::fsdp2}) {
      const Fixes recommended = recommended_fixes(backend, Loss::kto);
      const bool chosen = std::ranges::find(recommended, fix.name) != recommended.end();
      EXPECT_TRUE(!chosen || fix.acts_on(backend)) << fix.name;
    }
  }
  const auto& gather = *std::ranges::find(known_fixes(), "gather", &FixInfo::name);
  EXPECT_TRUE(gather.acts_on(Backend::zero3));
  EXPECT_FALSE(gather.acts_on(Backend::ddp));
}

TEST(Fixes, ACaseInsideTheEngineNeedsNoRedirect) {
  Case c = parse_id("zero3/sft/call=engine/fix=none");
  c.fixes = recommended_fixes(c);
  EXPECT_EQ(id(c), "zero3/sft/call=engine/fix=gather+recompute_hold");
  EXPECT_FALSE(illegal(c));
}

}  // namespace
}  // namespace regather
