#include <gtest/gtest.h>

#include <string>
#include <unordered_map>

#include "any_case.h"
#include "base/error.h"

namespace regather {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_id(text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(CaseId, LeavesDefaultsOutAndKeepsAxisOrder) {
  EXPECT_EQ(id(Case{}), "ddp/sft/fix=none");
  Case c;
  c.backend = Backend::zero3;
  c.loss = Loss::grpo;
  c.checkpoint = Checkpoint::nonreentrant;
  c.frozen = Frozen::norms;
  EXPECT_EQ(id(c), "zero3/grpo/checkpoint=nonreentrant/frozen=norms/fix=none");
  c = {};
  c.early_stop = false;
  c.input_grad = false;
  c.head_bias = true;
  c.world = 8;
  c.fixes = {"gather", "redirect"};
  EXPECT_EQ(id(c), "ddp/sft/head_bias=yes/world=8/early_stop=off/input_grad=no/fix=gather+redirect");
}

TEST(CaseId, EveryLegalCaseParsesBackToItself) {
  Random random(1);
  std::unordered_map<std::string, Case> seen;
  for (int i = 0; i < 20000; ++i) {
    const Case c = any_case(random);
    const std::string text = id(c);
    ASSERT_EQ(parse_id(text), c) << text;
    const auto [at, added] = seen.emplace(text, c);
    ASSERT_TRUE(added || at->second == c) << "two cases print as " << text;
  }
}

TEST(CaseId, IsCanonicalWhateverTheOrderGiven) {
  EXPECT_EQ(id(parse_id("zero3/sft/world=4/head=tied/checkpoint=none/fix=redirect+gather")),
            "zero3/sft/head=tied/world=4/fix=gather+redirect");
}

TEST(CaseId, SaysWhatDoesNotParse) {
  EXPECT_EQ(error_of("zero9/sft/fix=none"),
            "case 'zero9/sft/fix=none': 'zero9' is not a value of backend: expected one of ddp, zero1, zero2, zero3, "
            "fsdp2, fsdp1, single");
  EXPECT_NE(error_of("").find("expected backend/loss"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft").find("expected backend/loss"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/frozen").find("'frozen' stands last"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/frozen=norms").find("expected fix=NAMES"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/frozen/fix=none").find("expected axis=value"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft//fix=none").find("'': expected axis=value"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/melted=yes/fix=none").find("'melted' is not an axis"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/world=3/fix=none").find("expected one of 2, 1, 4, 8"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/head=tied/head=tied/fix=none").find("a second time"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/backend=ddp/fix=none").find("a second time"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/fix=magic").find("'magic' is not a fix"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/fix=gather+gather").find("stands twice"), std::string::npos);
  EXPECT_NE(error_of("ddp/sft/fix=").find("'' is not a fix"), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '/')).find("no id is longer"), std::string::npos);
}

TEST(CaseId, AWorldOffTheAxisIsAnError) {
  Case c;
  c.world = 3;
  EXPECT_THROW(id(c), Error);
}

}  // namespace
}  // namespace regather
